"""When each token and each word of a spoken text begins and ends, for subtitles and lips.

Pure Python and NumPy.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Milliseconds; a frame lasts about 12.
DECIMALS = 3


def timings_to_json(symbols: Sequence[str], durations: np.ndarray, frame_seconds: float) -> dict[str, Any]:
    """Return begin and end in seconds of each token, and of each word, from durations in frames, float [S].

    Words are what spaces separate, without punctuation at their ends; with phonemes they are phonemes.
    """
    end = np.cumsum(durations.astype(np.float64)) * frame_seconds
    begin = np.concatenate([[0.0], end[:-1]])
    tokens = [
        {"symbol": symbol, "begin": round(float(first), DECIMALS), "end": round(float(last), DECIMALS)}
        for symbol, first, last in zip(symbols, begin, end, strict=True)
    ]
    words = [
        {
            "word": "".join(symbol for symbol in symbols[first : last + 1] if len(symbol) == 1),
            "begin": tokens[first]["begin"],
            "end": tokens[last]["end"],
        }
        for first, last in find_words(symbols)
    ]
    return {"words": words, "tokens": tokens}


def find_words(symbols: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last token of each word: what spaces separate, without punctuation at its ends.

    Names such as `<blank>` do not end a word, but begin none.
    """
    word: list[int] = []
    for token, symbol in enumerate([*symbols, " "]):
        category = unicodedata.category(symbol)[0] if len(symbol) == 1 else ""
        if category not in {"Z", ""} or (word and symbol == "<blank>"):
            word.append(token)
            continue
        spoken = [token for token in word if len(symbols[token]) == 1 and not _is_punctuation(symbols[token])]
        if spoken:
            yield spoken[0], spoken[-1]
        word = []


def _is_punctuation(symbol: str) -> bool:
    return unicodedata.category(symbol).startswith("P")

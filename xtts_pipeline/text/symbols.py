"""Prepare transcripts for the tokenizer, normalised or as phonemes, and list the symbols of a corpus."""

import unicodedata
from collections.abc import Iterable, Sequence

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import TextError
from xtts_pipeline.text.normalize import normalize
from xtts_pipeline.text.phonemes import PHONEME_SYMBOLS, phonemize


def build_symbols(texts: Iterable[str], config: TextConfig) -> tuple[str, ...]:
    """Return the symbols of a cache, each one character, without repeats.

    `config.symbols` is a fixed set or `corpus`. The latter gives the sorted characters of the prepared texts, or, for
    phonemes, all symbols of espeak-ng.
    """
    if config.symbols != "corpus":
        return tuple(dict.fromkeys(unicodedata.normalize("NFC", config.symbols)))
    if config.tokens == "phonemes":
        return PHONEME_SYMBOLS
    seen: set[str] = set()
    for text in texts:
        seen.update(text)
    return tuple(sorted(seen))


def prepare_texts(texts: Sequence[str], languages: Sequence[str], config: TextConfig) -> list[str | TextError]:
    """Return each text normalised or as phonemes, ready to be tokenised, or the error that rejects it.

    Raises ConfigError if phonemes are asked for and the phonemizer is not installed or lacks a language.
    """
    in_small_letters = config
    if config.tokens == "phonemes":
        # By its capitals espeak-ng tells the US from us, and the German Weg from weg.
        in_small_letters, config = (config.model_copy(update={"lowercase": lowers}) for lowers in (True, False))
    prepared: list[str | TextError] = []
    for text, language in zip(texts, languages, strict=True):
        try:
            prepared.append(normalize(text, in_small_letters if _is_in_capitals(text) else config, language))
        except TextError as error:
            prepared.append(error)
    if config.tokens == "characters":
        return prepared
    for language in sorted(set(languages)):
        places = [
            place for place, text in enumerate(prepared) if isinstance(text, str) and languages[place] == language
        ]
        spoken = phonemize([str(prepared[place]) for place in places], language)
        for place, phonemes in zip(places, spoken, strict=True):
            prepared[place] = phonemes
    return prepared


def _is_in_capitals(text: str) -> bool:
    """Return whether all of several words are in capitals: many transcripts have no small letters."""
    return text.isupper() and sum(map(str.isupper, text.split())) > 1

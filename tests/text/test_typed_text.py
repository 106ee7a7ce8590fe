"""Whatever is typed is spoken: lines with signs, accents, digits, emoji and quotes put into them."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.corpus.demo.espeak import demo_sentences
from xtts_pipeline.text.fallback import MOST_CHANGES_NAMED, TextChanges, describe_changes, fit_to_symbols
from xtts_pipeline.text.normalize import normalize
from xtts_pipeline.text.symbols import build_symbols
from xtts_pipeline.text.tokens import Tokenizer

PUT_IN = [
    *";:!?…—–-·•¿¡§%&@#+=*/\\|~^<>()[]{}_°²³½™©®€£$¥₹",
    *"éèêëàâäåãáíìîïóòôöõøúùûüñçßæœłđðþžščřğıİŐ",
    *"“”„‘’«»‹›\"'`´",
    *["😀", "❤️", "👩‍👩‍👧", "🇫🇷", "👍🏽", "→", "✓", "日本", "привет", "سلام", "\u200b", "\ufeff", "\x07", "\u0301"],
    *["3", "42", "1914-1918", "2020-12-25", "$5.50", "5€", "10:30", "1st", "½", "3.14", "007", "٣", "Ⅷ", "①", "1,000"],
    *["U.S.", "e.g.", "Mr.", "km/h", "#1", "ann@example.com", "https://example.com", "Henry VIII", "C++", "&c."],
]  # fmt: skip


def transcripts() -> list[str]:
    """Return the demo's sentences, or the texts of the file `id|text` that XTTS_TRANSCRIPTS names."""
    named = os.environ.get("XTTS_TRANSCRIPTS")
    if named is None:
        return demo_sentences()
    return [line.split("|")[-1] for line in Path(named).read_text(encoding="utf-8").splitlines()]


def typed_lines(texts: list[str], count: int) -> list[str]:
    """Return lines with one to six pieces each, between words and within them."""
    chance = np.random.default_rng(0)
    lines = []
    for number in range(count):
        line = texts[number % len(texts)]
        for _ in range(chance.integers(1, 7)):
            place = chance.integers(0, len(line) + 1)
            space = " " * int(chance.integers(0, 2))
            line = f"{line[:place]}{space}{PUT_IN[chance.integers(0, len(PUT_IN))]}{space}{line[place:]}"
        lines.append(line)
    return lines


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_typed_line_is_refused_and_each_change_is_said_once(count: int) -> None:
    config = TextConfig()
    symbols = build_symbols([normalize(sentence, config, "en") for sentence in demo_sentences()], config)
    tokenizer = Tokenizer(symbols)
    changes, unknown = TextChanges(), Counter[str]()
    for line in typed_lines(transcripts(), count):
        prepared = normalize(line, config, "en")
        fitted, changed = fit_to_symbols(prepared, symbols)
        assert "".join(tokenizer.name_of(int(token)) for token in tokenizer.encode(fitted)[1:-1]) == fitted
        unknown.update(character for character in prepared if character not in symbols)
        changes.update(changed)

    counted = Counter[str]()
    for (character, _), times in changes.items():
        counted[character] += times
    assert counted == unknown
    assert len(counted) == len(changes)  # one replacement for a character
    described = describe_changes(changes)
    assert described.count(" times)") + described.count(" (once)") == len(changes) <= MOST_CHANGES_NAMED
    assert "'é' became 'e'" in described

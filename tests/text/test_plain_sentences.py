"""Plain sentences come out right: no rule for a rare form may spoil them."""

from pathlib import Path

import pytest

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

PLAIN = Path(__file__).with_name("plain")
KEEPS_CASE = TextConfig(lowercase=False)


@pytest.mark.parametrize("language", sorted(path.stem for path in PLAIN.glob("*.txt")))
def test_plain_sentences_come_out_right(language: str) -> None:
    """Each line is a sentence that stays as it is, or one and, after a tab, its words."""
    wrong = []
    for line in (PLAIN / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        written, _, spoken = line.partition("\t")
        expected = spoken or written
        # What is said is plain too: it stays.
        for text in dict.fromkeys((written, expected)):
            heard = normalize(text, KEEPS_CASE, language)
            if heard != expected:
                wrong.append(f"{text}\n  expected: {expected}\n  heard:    {heard}")
    assert not wrong, "\n".join(wrong)

"""Phonemes of texts in International Phonetic Alphabet, by espeak-ng. Needs the extra `phonemes`."""

from collections.abc import Sequence

from xtts_pipeline.errors import ConfigError, TextError

_PUNCTUATION = " !\"'(),-.:;?[]"
_MARKED_LETTERS = "\u00e6\u00e7\u00f0\u00f8\u0127\u014b\u0153"
_IPA_LETTERS = "".join(map(chr, range(0x0250, 0x02B0)))
_MODIFIERS = "\u02b0\u02b2\u02b7\u02bc\u02c8\u02cc\u02d0\u02d1\u02de\u02e0\u02e4\u1d4a\u1d7b\u1d80\u207f"
_COMBINING = "\u0303\u0306\u030a\u030b\u030d\u030f\u031d\u031e\u031f\u0320\u0324\u0325\u0327\u0329\u032a\u032f\u0330\u033a\u0361"
_GREEK = "\u03b2\u03b8\u03c7"
PHONEME_SYMBOLS = tuple(
    dict.fromkeys(_PUNCTUATION + "abcdefghijklmnopqrstuvwxyz" + _MARKED_LETTERS + _IPA_LETTERS + _MODIFIERS + _COMBINING + _GREEK)
)


def phonemize(texts: Sequence[str], language: str) -> list[str | TextError]:
    """Return each text's phonemes, or why there are none."""
    raise ConfigError("text.tokens=phonemes needs the extra; pip install xtts_pipeline[phonemes]")

"""Bring a transcript to the form that is tokenised. Text in, text out; the raw text is kept by whoever calls.

Normalising twice changes nothing more.
"""

import re
import unicodedata

from xtts_pipeline.config import TextConfig
from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.english import expand_english
from xtts_pipeline.text.numbers import expand_numbers

PLAIN_FORMS = {
    '"': "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02",
    "'": "\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4\uff07",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d",
    "...": "\u2026",
}
# Controls, format and direction characters, lone surrogates, private use. Unassigned code points stay: which those are changes with Python.
REMOVED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co"})
JOINERS = "\u200c\u200d"
# Joiners shape letters in the scripts of Arabic and India (half of Persian's compounds hold one); elsewhere they are invisible dirt.
JOINED_SCRIPTS = r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff"
_STRAY_JOINERS = re.compile(rf"(?<![{JOINED_SCRIPTS}])[{JOINERS}]+|[{JOINERS}]+(?![{JOINED_SCRIPTS}{JOINERS}])")
_SPACES = re.compile(r"\s+")
_ASCII_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_TATWEEL: dict[int, str | None] = {0x0640: None}
# One letter, one code point: keyboards mix Arabic's yeh and kaf into Persian and Urdu.
_PERSIAN = {**_TATWEEL, 0x064A: "\u06cc", 0x0649: "\u06cc", 0x0643: "\u06a9"}
_LETTERS: dict[str, dict[int, str | None]] = {"ar": _TATWEEL, "fa": _PERSIAN, "ur": _PERSIAN}
# Turkish and Azerbaijani pair I with dotless i; str.lower knows no languages.
_TURKIC_CAPITALS = str.maketrans({"I": "\u0131", "\u0130": "i"})


class _PlainCharacters(dict[int, str | None]):
    """A str.translate table: plain quotes and dashes, nothing for what is removed; filled as characters are met."""

    def __init__(self) -> None:
        super().__init__({ord(variant): plain for plain, variants in PLAIN_FORMS.items() for variant in variants})
        self.update({ord(joiner): joiner for joiner in JOINERS})

    def __missing__(self, code_point: int) -> str | None:
        character = chr(code_point)
        kept = None if unicodedata.category(character) in REMOVED_CATEGORIES else character
        self[code_point] = kept
        return kept


_PLAIN_CHARACTERS = _PlainCharacters()


def normalize(text: str, config: TextConfig, language: str) -> str:
    """Return the text in NFC with plain quotes and dashes, single spaces, and no control or direction characters.

    `config.expand` spells out what is written in digits (in English money, years, ordinals and abbreviations too), `config.lowercase`
    folds case. `language` is a tag such as `en`, `en-GB` or `fa`. Raises TextError if no letter or digit is left.
    """
    primary = primary_language(language)
    plain = _plain(text, primary)
    if config.expand:
        plain = expand_english(plain) if primary == "en" else expand_numbers(plain, primary)
    if config.lowercase:
        plain = (plain.translate(_TURKIC_CAPITALS) if primary in ("tr", "az") else plain).lower()
    # Number words and case folding bring their own spaces and compositions.
    plain = _plain(plain, primary)
    if not any(map(str.isalnum, plain)):
        shown = ascii(text if len(text) <= 60 else f"{text[:57]}...")
        raise TextError(Reason.EMPTY_TEXT, f"the text {shown} has no letter or digit left after normalising; expected words")
    return plain


def primary_language(language: str) -> str:
    """Return the first part of a language tag: `en` for `en-GB` and `EN_us`."""
    return re.split("[-_]", language, maxsplit=1)[0].lower()


def _plain(text: str, primary: str) -> str:
    text = _SPACES.sub(" ", text)
    if text.isascii():
        return _ASCII_CONTROLS.sub("", text.replace("`", "'")).strip()
    if primary in _LETTERS:
        text = text.translate(_LETTERS[primary])
    text = text.translate(_PLAIN_CHARACTERS)
    text = unicodedata.normalize("NFC", _STRAY_JOINERS.sub("", text))
    # NFC itself makes a few characters that have a plainer form, such as the Greek question mark's.
    text = text.translate(_PLAIN_CHARACTERS)
    return _SPACES.sub(" ", text).strip()

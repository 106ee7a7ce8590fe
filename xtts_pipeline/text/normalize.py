"""Normalise transcripts before they are tokenised. Normalising is idempotent."""

import re
import unicodedata
from functools import partial

from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.languages.english import expand_english
from xtts_pipeline.text.languages.french import French
from xtts_pipeline.text.languages.german import German
from xtts_pipeline.text.languages.persian import PERSIAN_LETTERS, expand_persian, spell_persian
from xtts_pipeline.text.languages.spanish import Spanish
from xtts_pipeline.text.numbers import expand_numbers

PLAIN_FORMS = {
    '"': "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02",
    "'": "\u2018\u2019\u201a\u201b\u2032\u2039\u203a\u0060\u00b4\uff07",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d",
    "...": "\u2026",
}
# Controls, format and direction characters, lone surrogates, private use. Unassigned code points stay, because the set
# of them changes with Python's version.
REMOVED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co"})
JOINERS = "\u200c\u200d"
# Joiners shape letters in Arabic and Indian scripts (half of Persian's compounds hold one) and mean nothing elsewhere.
JOINED_SCRIPTS = r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\u0900-\u0dff"
_STRAY_JOINERS = re.compile(rf"(?<![{JOINED_SCRIPTS}])[{JOINERS}]+|[{JOINERS}]+(?![{JOINED_SCRIPTS}{JOINERS}])")
_SPACES = re.compile(r"\s+")
# A dash that opens speech or an aside is no minus: —15 años —dijo.
_DASH_AT_FIGURE = re.compile(r"(?<![^\s(])([\u2014\u2015])(?=[€$£¥]?\d)")
_ASCII_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
# Old software stored contextual letter shapes. Shapes of single marks are left out: NFKC puts these on a space.
_SHAPES = {
    code_point: unicodedata.normalize("NFKC", chr(code_point))
    for code_point in (*range(0xFB50, 0xFE00), *range(0xFE80, 0xFEFD))
    if not unicodedata.normalize("NFKC", chr(code_point)).startswith(" ")
}


def _with_shapes(letters: dict[int, str | None]) -> dict[int, str | None]:
    return {**{shape: plain.translate(letters) for shape, plain in _SHAPES.items()}, **letters}


_TATWEEL: dict[int, str | None] = {0x0640: None}
# Between numbers it is typed as a dash.
_TATWEEL_DASH = re.compile(r"(?<=\d) ?\u0640+ ?(?=\d)")
# One code point per letter: keyboards mix Arabic's yeh and kaf into Persian and Urdu.
_YEH_AND_KAF = {**_TATWEEL, 0x064A: "\u06cc", 0x0649: "\u06cc", 0x0643: "\u06a9"}
_LETTERS = {
    "ar": _with_shapes(_TATWEEL),
    "fa": _with_shapes({**_YEH_AND_KAF, **PERSIAN_LETTERS}),
    "ur": _with_shapes(_YEH_AND_KAF),
}
# Turkish and Azerbaijani pair I with dotless i; str.lower ignores the language.
_TURKIC_CAPITALS = str.maketrans({"I": "\u0131", "\u0130": "i"})


class _PlainCharacters(dict[int, str | None]):
    """A str.translate table with plain quotes and dashes; it looks up other characters on first use."""

    def __init__(self) -> None:
        super().__init__({ord(variant): plain for plain, variants in PLAIN_FORMS.items() for variant in variants})
        self.update({ord(joiner): joiner for joiner in JOINERS})

    def __missing__(self, code_point: int) -> str | None:
        character = chr(code_point)
        kept = None if unicodedata.category(character) in REMOVED_CATEGORIES else character
        self[code_point] = kept
        return kept


_PLAIN_CHARACTERS = _PlainCharacters()
_EXPANDERS = {
    "en": expand_english,
    "fa": expand_persian,
    **{reading.words.language: reading().expand for reading in (German, French, Spanish)},
}
LANGUAGES_READ = frozenset(_EXPANDERS)  # those whose signs, dates and times are read


def normalize(text: str, config: TextConfig, language: str) -> str:
    """Return the text in NFC with plain quotes and dashes, single spaces, and no control or direction characters.

    `config.expand` spells out numbers, and in languages with rules of their own signs and abbreviations.
    `config.lowercase` folds case. `language` is a tag such as `en`, `en-GB` or `fa`.
    Raises TextError if no letter or digit is left.
    """
    primary = primary_language(language)
    plain = _plain(_DASH_AT_FIGURE.sub(r"\1 ", text) if config.expand else text, primary)
    if config.expand:
        plain = _expand(plain, primary, language)
    if config.lowercase:
        plain = (plain.translate(_TURKIC_CAPITALS) if primary in ("tr", "az") else plain).lower()
    # Number words and case folding add spaces and decomposed characters.
    plain = _plain(plain, primary)
    if not any(map(str.isalnum, plain)):
        shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
        raise TextError(
            Reason.EMPTY_TEXT, f"the text {shown} has no letter or digit left after normalising; expected words"
        )
    return plain


def _expand(text: str, primary: str, language: str) -> str:
    expander = _EXPANDERS.get(primary) or partial(expand_numbers, language=language)
    expanded = expander(text)
    # Words set apart by one rule may be an abbreviation to another: `5Mr.`
    while expanded != text:
        text, expanded = expanded, expander(expanded)
    return text


def _plain(text: str, primary: str) -> str:
    text = _SPACES.sub(" ", text)
    if text.isascii():
        return _ASCII_CONTROLS.sub("", text.replace("`", "'")).strip()
    if primary in _LETTERS:
        text = _TATWEEL_DASH.sub("-", text)
        text = text.translate(_LETTERS[primary])
    text = text.translate(_PLAIN_CHARACTERS)
    text = _STRAY_JOINERS.sub("", text)
    text = unicodedata.normalize("NFC", spell_persian(text) if primary == "fa" else text)
    # NFC itself yields a few characters with a plain form, such as that of the Greek question mark.
    text = text.translate(_PLAIN_CHARACTERS)
    return _SPACES.sub(" ", text).strip()

"""Spell out numbers, in the languages of the CLDR's spelling rules and of num2words; in others digits stay."""

import re
from decimal import Decimal
from functools import lru_cache

from num2words import CONVERTER_CLASSES, num2words
from unicode_rbnf import RbnfEngine
from unicode_rbnf.engine import RbnfError

from xtts_pipeline.config.languages import primary_language

MAX_DIGITS = 15  # longer numbers are not spoken as one, and languages run out of words
_COMMA_IS_DECIMAL = re.compile(
    "af|az|be|bg|bs|ca|ce|cs|da|de|el|eo|es|et|fi|fo|fr|hr|hu|hy|id|is|it|ka|kk|ky|lb|lt|lv|mk|nb|nl|nn|no|pl|pt|ro|ru|"
    "se|sk|sl|sq|sr|sv|tg|tr|uk|vi"
)
_WITHOUT_SPACES = frozenset(["ja", "km", "lo", "my", "th", "yue", "zh"])
# Codes of num2words that are not those of the languages, and Norwegian's written form.
_NUM2WORDS_CODES = {"kk": "kz", "nb": "no", "pt-br": "pt_BR"}
# Whole numbers by the CLDR's rules: num2words writes `etttusen`, `mil, novecentos`, and Turkish as on cheques.
_RULED_WHOLE = {"pt_BR": "pt", "sv": "sv", "tr": "tr"}
# 1,234,567.5, the same with Arabic signs, and the 12,34,567 of India.
_POINT_NUMBER = re.compile(
    r"(?P<whole>(?:\d{1,3}(?:[,\u066c]\d{3})+|\d{1,2}(?:,\d\d){1,5},\d{3})(?!\d)|\d+)(?:[.\u066b](?P<decimals>\d+))?"
)
_COMMA_NUMBER = re.compile(r"(?P<whole>\d{1,3}(?:[. ]\d{3})+(?!\d)|\d+)(?:,(?P<decimals>\d+))?")
# num2words has no decimals in these languages, drops them, or reads others; the CLDR's rules are right.
_RULED_DECIMALS = frozenset(["ar", "cy", "id", "it", "tr", "vi"])
# 0.05 is read as 0.5 in Bengali, and 3.14 as 3.41 in Kyrgyz, which num2words has not.
_NO_DECIMALS = frozenset(["bn", "ky"])
# Each language is a module of its own in num2words, and they fail in different ways.
_SPELLING_ERRORS = (NotImplementedError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RbnfError)


def expand_numbers(text: str, language: str) -> str:
    """Return the text with its numbers in words; `language` is a tag such as `de` or `pt-BR`.

    A number without words stays in digits.
    """
    tag = language.lower().replace("_", "-")
    primary = primary_language(language)
    if not any(map(str.isdecimal, text)) or not has_number_words(primary):
        return text
    pattern = _COMMA_NUMBER if _COMMA_IS_DECIMAL.fullmatch(primary) else _POINT_NUMBER

    def spoken(match: re.Match[str]) -> str:
        whole, decimals = plain_digits(match["whole"]), plain_digits(match["decimals"] or "")
        words = _number_words(f"{whole}.{decimals}" if decimals else whole, tag if tag in _NUM2WORDS_CODES else primary)
        if words is None:
            return match[0]
        return words if primary in _WITHOUT_SPACES else set_apart(words, match)

    return pattern.sub(spoken, text)


def plain_digits(figure: str) -> str:
    """Return the digits of a figure of any script as 0 to 9, without all else."""
    return "".join(str(int(character)) for character in figure if character.isdecimal())


def has_number_words(primary: str) -> bool:
    """Return whether numbers can be spelled out in a language."""
    return _NUM2WORDS_CODES.get(primary, primary) in CONVERTER_CLASSES or primary in _ruled_languages()


@lru_cache(maxsize=20_000)
def spell(number: int, language: str, form: str = "numbering") -> str:
    """Return a number in words by the CLDR's rules, in a form such as `cardinal-feminine` or `ordinal-masculine`."""
    rules = f"spellout-{form}"
    return str(_rules_of(language).format_number(number, ruleset_names=[rules]).text_by_ruleset[rules])


@lru_cache(maxsize=1)
def _ruled_languages() -> frozenset[str]:
    return frozenset(RbnfEngine.get_supported_languages())


@lru_cache(maxsize=8)
def _rules_of(language: str) -> RbnfEngine:
    return RbnfEngine.for_language(language)


def set_apart(words: str, match: re.Match[str]) -> str:
    """Return the words that replace a match, with a space at each side where the match touches a letter or digit."""
    before = match.string[match.start() - 1 : match.start()] if match.start() else ""
    after = match.string[match.end() : match.end() + 1]
    return f"{' ' if before.isalnum() else ''}{words}{' ' if after.isalnum() else ''}"


@lru_cache(maxsize=10_000)
def _number_words(number: str, language: str) -> str | None:
    code, is_decimal = _NUM2WORDS_CODES.get(language, language), "." in number
    if len(number) > MAX_DIGITS or (is_decimal and language in _NO_DECIMALS):
        return None
    is_ruled = code not in CONVERTER_CLASSES or (language in _RULED_DECIMALS if is_decimal else code in _RULED_WHOLE)
    try:
        words = (
            _rules_of(_RULED_WHOLE.get(code, language))
            .format_number(Decimal(number) if is_decimal else int(number))
            .text
            if is_ruled
            else num2words(number if is_decimal else int(number), lang=code)
        )
    except _SPELLING_ERRORS:
        return None
    return words if isinstance(words, str) and not any(map(str.isdecimal, words)) else None

"""Spell out numbers, in the languages of the CLDR's spelling rules and of num2words; in others digits stay."""

import re
from functools import lru_cache

from num2words import CONVERTER_CLASSES, num2words
from unicode_rbnf import RbnfEngine

MAX_DIGITS = 15  # longer numbers are not spoken as one, and languages run out of words
_COMMA_IS_DECIMAL = re.compile(
    "az|be|ca|ce|cs|da|de|eo|es|fi|fr|hu|id|is|it|kz|lt|lv|nl|no|pl|pt|ro|ru|sk|sl|sr|sv|tg|tr|uk|vi"
)
_POINT_NUMBER = re.compile(r"(?P<whole>\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(?P<decimals>\d+))?")
_COMMA_NUMBER = re.compile(r"(?P<whole>\d{1,3}(?:[. ]\d{3})+(?!\d)|\d+)(?:,(?P<decimals>\d+))?")
# Each language is a module of its own in num2words, and they fail in different ways.
_NUM2WORDS_ERRORS = (NotImplementedError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError)


def expand_numbers(text: str, primary: str) -> str:
    """Return the text with its numbers in words; `primary` is a primary language tag, such as `de`.

    A number that num2words does not support stays in digits.
    """
    if primary not in CONVERTER_CLASSES or not any(map(str.isdecimal, text)):
        return text
    pattern = _COMMA_NUMBER if _COMMA_IS_DECIMAL.fullmatch(primary) else _POINT_NUMBER

    def spoken(match: re.Match[str]) -> str:
        whole = "".join(str(int(digit)) for digit in match["whole"] if digit.isdecimal())
        decimals = "".join(str(int(digit)) for digit in match["decimals"] or "")
        words = _number_words(f"{whole}.{decimals}" if decimals else whole, primary)
        return match[0] if words is None else set_apart(words, match)

    return pattern.sub(spoken, text)


@lru_cache(maxsize=20_000)
def spell(number: int, language: str, form: str = "numbering") -> str:
    """Return a number in words by the CLDR's rules, in a form such as `cardinal-feminine` or `ordinal-masculine`."""
    rules = f"spellout-{form}"
    return str(_rules_of(language).format_number(number, ruleset_names=[rules]).text_by_ruleset[rules])


@lru_cache(maxsize=8)
def _rules_of(language: str) -> RbnfEngine:
    return RbnfEngine.for_language(language)


def set_apart(words: str, match: re.Match[str]) -> str:
    """Return the words that replace a match, with a space at each side where the match touches a letter or digit."""
    before = match.string[match.start() - 1 : match.start()] if match.start() else ""
    after = match.string[match.end() : match.end() + 1]
    return f"{' ' if before.isalnum() else ''}{words}{' ' if after.isalnum() else ''}"


@lru_cache(maxsize=10_000)
def _number_words(number: str, primary: str) -> str | None:
    if len(number) > MAX_DIGITS:
        return None
    try:
        words = num2words(number if "." in number else int(number), lang=primary)
    except _NUM2WORDS_ERRORS:
        return None
    return words if isinstance(words, str) and not any(map(str.isdecimal, words)) else None

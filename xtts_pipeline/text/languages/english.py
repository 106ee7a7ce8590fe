"""Expand English figures and abbreviations to words: money, years, ordinals, times, decimals, titles."""

import re
from functools import lru_cache

from num2words import num2words

from xtts_pipeline.text.numbers import MAX_DIGITS, set_apart

ABBREVIATIONS = {
    "mr": "mister",
    "mrs": "misses",
    "ms": "miz",
    "messrs": "messieurs",
    "dr": "doctor",
    "drs": "doctors",
    "prof": "professor",
    "rev": "reverend",
    "hon": "honorable",
    "gen": "general",
    "maj": "major",
    "col": "colonel",
    "capt": "captain",
    "lt": "lieutenant",
    "sgt": "sergeant",
    "gov": "governor",
    "pres": "president",
    "jr": "junior",
    "sr": "senior",
    "esq": "esquire",
    "co": "company",
    "corp": "corporation",
    "ltd": "limited",
    "inc": "incorporated",
    "dept": "department",
    "ave": "avenue",
    "blvd": "boulevard",
    "mt": "mount",
    "vs": "versus",
    "etc": "et cetera",
    "approx": "approximately",
    "vol": "volume",
}
# These often end a sentence: their full stop stays before a capital letter.
_ENDING = frozenset({"etc", "inc", "ltd"})
SIGNS = {"&": "and", "%": "percent", "@": "at", "\u00b0": "degrees", "\u00a2": "cents"}
_DEGREES = {"c": "celsius", "f": "fahrenheit"}
_FRACTIONS = {"\u00bd": "1/2", "\u00bc": "1/4", "\u00be": "3/4", "\u2153": "1/3", "\u2154": "2/3"}
_FRACTIONS |= {"\u215b": "1/8", "\u215c": "3/8", "\u215d": "5/8", "\u215e": "7/8"}
_PARTS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
CURRENCIES = {
    "$": ("dollar", "cent"),
    "\u00a3": ("pound", "penny"),
    "\u20ac": ("euro", "cent"),
    "\u00a5": ("yen", "sen"),
}
SCALES = {scale: scale for scale in ("hundred", "thousand", "million", "billion", "trillion")}
SCALES |= {"k": "thousand", "m": "million", "bn": "billion"}
_PLURALS = {"penny": "pence", "yen": "yen", "sen": "sen"}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Whole words only: `disco.` does not end in `co.`.
_ABBREVIATION = re.compile(rf"(?<![\w.])({'|'.join(ABBREVIATIONS)})\.(?!\w)", re.IGNORECASE)
_LETTER_NEXT = re.compile(r" [\"'(]?[^\W\d_]")
_SAINT_OR_STREET = re.compile(r"(?<![\w.])st\.(?=( ?\w)?)(?!\w)", re.IGNORECASE)
_NUMBER_SIGN = re.compile(r"(?<![\w.])nos?\. ?(?=\d)", re.IGNORECASE)
_FIGURE = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)"
_MONEY = re.compile(rf"([{''.join(CURRENCIES)}]) ?({_FIGURE})(?:\.(\d+))?(?: ?({'|'.join(SCALES)})\b)?", re.IGNORECASE)
_FEET = re.compile(r"(?<=\d) ?ft\.(?!\w)", re.IGNORECASE)
# Never from within a long figure: each start would be tried to the figure's end, in quadratic time.
_ORDINAL = re.compile(rf"(?<![\w.])(?<!\d,)({_FIGURE})(?:st|nd|rd|th)\b", re.IGNORECASE)
_CENTS = re.compile(rf"([{''.join(CURRENCIES)}]) ?\.(?=\d)")
_VULGAR = re.compile(f" ?([{''.join(_FRACTIONS)}])")
_FRACTION = re.compile(r"(?<![\w/.,:-])(?:(\d{1,3}) )?([1-9])/([2-9]|10)(?![\w/]|[.,]\d)")
_TEMPERATURE = re.compile(r" ?\u00b0 ?([CF])\b", re.IGNORECASE)
_PHONE = re.compile(r"(?<![\w.,/+-])(?:\d{3}-)?\d{3}-\d{4}(?![\w/-]|[.,]\d)")
_DECADE = re.compile(r"(?<![\w.,])'?(1[1-9]\d0|20\d0|[2-9]0)'?s\b")
_TIME = re.compile(r"(?<![\w:.])([01]?\d|2[0-3]):([0-5]\d)(?: ?([ap])(?:m|\.m(\.)?))?(?![\w:])", re.IGNORECASE)
_HOUR = re.compile(r"(?<![\w:.,])(1[0-2]|0?[1-9]) ?([ap])(?:m|\.m(\.)?)(?!\w)", re.IGNORECASE)
_YEAR = re.compile(r"(?<![\w.,$])(?<!\d-)(1[1-9]\d\d|20\d\d)(?![\w,]\d|\w|\.\d)")
_DECIMAL = re.compile(rf"(?<![\d.])(?<!\d,)({_FIGURE})?\.(\d+)(?!\.?\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")  # in version numbers, such as 1.2.3
_NEGATIVE = re.compile(r"(?:(?<=\s)|(?<=^))-(?=\d)")
_WHOLE = re.compile(_FIGURE)
_SIGN = re.compile(f" ?([{''.join(SIGNS)}])")
_TOUCHING = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")


def expand_english(text: str) -> str:
    """Return the text without figures. A number from 1100 to 2099 that stands alone is read as a year.

    An abbreviation at the end of the text keeps its full stop.
    """
    # Each rule needs a full stop, a sign or a digit, so most lines pass untouched.
    if "." in text:
        text = _ABBREVIATION.sub(_abbreviation, text)
        text = _SAINT_OR_STREET.sub(_saint_or_street, text)
        text = _FEET.sub(" feet", text)
        text = _NUMBER_SIGN.sub(lambda match: "numbers " if match[0][2] in "sS" else "number ", text)
    text = _VULGAR.sub(lambda match: set_apart(_FRACTIONS[match[1]], match), text)
    if any(map(str.isdecimal, text)):
        text = _expand_figures(text)
    return _SIGN.sub(lambda match: f" {set_apart(SIGNS[match[1]], match)}", text)


def _expand_figures(text: str) -> str:
    text = _MONEY.sub(_money, _CENTS.sub(r"\g<1>0.", text))
    text = _PHONE.sub(lambda match: ", ".join(map(_digit_by_digit, match[0].split("-"))), text)
    text = _TEMPERATURE.sub(lambda match: f" degrees {_DEGREES[match[1].lower()]}", text)
    text = _FRACTION.sub(_fraction, text)
    text = _DECADE.sub(lambda match: _plural(_year(match[1])), text)
    text = _ORDINAL.sub(lambda match: _spoken(match[1], "ordinal"), text)
    text = _HOUR.sub(_hour, _TIME.sub(_time, text))
    text = _YEAR.sub(lambda match: _year(match[1]), text)
    text = _NEGATIVE.sub("minus ", text)
    text = _TOUCHING.sub(" ", text)
    text = _DECIMAL.sub(_decimal, text)
    return _WHOLE.sub(lambda match: _spoken(match[0]), _POINT.sub(" point ", text))


def _decimal(match: re.Match[str]) -> str:
    return set_apart(f"{_spoken(match[1] or '0')} point {_digit_by_digit(match[2])}", match)


def _abbreviation(match: re.Match[str]) -> str:
    word = match[1].lower()
    return ABBREVIATIONS[word] + _full_stop(match, before_capital=word in _ENDING)


def _saint_or_street(match: re.Match[str]) -> str:
    follows = (match[1] or "").strip()
    return "saint" if follows.isalpha() and follows.isupper() else "street" + _full_stop(match)


def _full_stop(match: re.Match[str], *, before_capital: bool = False) -> str:
    """Return the full stop if it ends a sentence: at the end of the text, or, if asked for, before a capital letter."""
    following = _LETTER_NEXT.match(match.string, match.end()) if before_capital else None
    is_end = match.end() == len(match.string) or (following is not None and following[0][-1].isupper())
    return "." if is_end else ""


def _money(match: re.Match[str]) -> str:
    sign, whole, fraction, scale = match.groups()
    unit, part = CURRENCIES[sign]
    if scale or (fraction and len(fraction) != 2):
        amount = _spoken(whole) + (f" point {_digit_by_digit(fraction)}" if fraction else "")
        return set_apart(" ".join(filter(None, (amount, SCALES.get((scale or "").lower()), _plural(unit)))), match)
    said = [_amount(whole, unit)] if _plain_digits(whole).strip("0") or not fraction else []
    if fraction and (fraction.strip("0") or not said):
        said.append(_amount(fraction, part))
    return set_apart(" and ".join(said), match)


def _amount(figure: str, unit: str) -> str:
    digits = _plain_digits(figure).lstrip("0") or "0"
    return f"{_spoken(digits)} {unit if digits == '1' else _plural(unit)}"


def _plural(word: str) -> str:
    if word in _PLURALS:
        return _PLURALS[word]
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}es" if word.endswith("x") else f"{word}s"


def _fraction(match: re.Match[str]) -> str:
    whole, above, below = match[1], int(match[2]), int(match[3])
    one, many = _PARTS.get(below) or (_spoken(match[3], "ordinal"), _plural(_spoken(match[3], "ordinal")))
    part = f"{_spoken(match[2])} {one if above == 1 else many}"
    return set_apart(f"{_spoken(whole)} and {part}" if whole else part, match)


def _half_of_day(letter: str, full_stop: str | None, match: re.Match[str]) -> str:
    """Return `a m` or `p m`, with the full stop if it ends the sentence."""
    return f" {letter.lower()} m{_full_stop(match, before_capital=True) if full_stop else ''}"


def _hour(match: re.Match[str]) -> str:
    return _spoken(str(int(match[1]))) + _half_of_day(match[2], match[3], match)


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    said = _spoken(str(hour))
    if minute:
        said += f" {'oh ' if minute < 10 else ''}{_spoken(str(minute))}"
    if match[3]:
        return said + _half_of_day(match[3], match[4], match)
    if minute:
        return said
    return f"{said} o'clock" if 1 <= hour <= 12 else f"{said} hundred"


@lru_cache(maxsize=2_000)
def _year(figure: str) -> str:
    return str(num2words(int(figure), to="year")).replace("oh-", "oh ")


@lru_cache(maxsize=10_000)
def _spoken(figure: str, form: str = "cardinal") -> str:
    digits = _plain_digits(figure)
    # A number with leading zeros, or too long for words, is read digit by digit.
    if len(digits) > MAX_DIGITS or (digits[0] == "0" and len(digits) > 1):
        return _digit_by_digit(digits)
    return str(num2words(int(digits), to=form)).replace(",", "")


def _plain_digits(figure: str) -> str:
    return figure.replace(",", "")


def _digit_by_digit(figure: str) -> str:
    return " ".join(_DIGITS[int(digit)] for digit in figure)

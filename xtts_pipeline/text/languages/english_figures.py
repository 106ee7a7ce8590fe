"""Expand English figures to words: money, dates, times, telephone numbers, units, ranges, fractions, ordinals.

Dates in figures have the month first, unless it can only be the day. No rule begins inside a figure, so the time is
linear in the length of the text.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from num2words import num2words

from xtts_pipeline.text.languages.english_ranges import write_ranges
from xtts_pipeline.text.languages.english_words import (
    BOOKS_WITH_VERSES,
    CURRENCIES,
    CURRENCY_SIGNS,
    MONTH_NAMES,
    MONTHS,
    PER_WORDS,
    PLURALS,
    SCALES,
    UNITS,
    small_letters,
)
from xtts_pipeline.text.numbers import MAX_DIGITS, plain_digits, set_apart

_DEGREES = {"c": "celsius", "f": "fahrenheit"}
_FRACTION_PARTS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
# Other pairs are read as `seven over twenty`.
_FRACTIONS = frozenset([*range(2, 11), 12, 16, 32, 64, 100])
_SPOKEN_PAIRS = frozenset({"24/7", "9/11", "50/50", "20/20", "7/7"})
_POWERS = {None: "", "\u00b2": "square ", "\u00b3": "cubic "}
_ERAS = {"BC": "b c", "AD": "a d", "BCE": "b c e", "CE": "c e"}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Never from within a long figure: each start would be tried to the figure's end, in quadratic time.
_START = r"(?<![\w.])(?<!\d,)"
# 1,234,567 and the 12,34,567 of India.
_FIGURE = r"(?:(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d\d){1,6},\d{3})(?!\d)|\d+)"
_NUMBER = rf"{_FIGURE}(?:\.\d+)?"
_SCALE = "|".join(sorted(SCALES, key=len, reverse=True))
_UNIT = "|".join(sorted(UNITS, key=len, reverse=True))
_PER = "|".join(sorted({*UNITS, *PER_WORDS}, key=len, reverse=True))
_UNIT_WORDS = "|".join(sorted({*UNITS.values(), "square", "cubic", "degrees", "percent"} | {"feet", "inches"}))

# 20 000, and with a currency any groups; other groups of three may be numbers side by side.
_SPACED = re.compile(
    rf"(?<![\w.,+-])(?<!\d )(?:[1-9]\d{{0,2}}(?: \d{{3}})* 000|(?<=[{CURRENCY_SIGNS}])[1-9]\d{{0,2}}(?: \d{{3}})+)"
    r"(?!\d|[.,]\d{3}| \d)"
)
_SIGN_FIRST = re.compile(rf"([{CURRENCY_SIGNS}]) ?-(?=[\d.])")
_MINUS_MONEY = re.compile(rf"(?<![\w-])-(?=[{CURRENCY_SIGNS}] ?\.?\d)")
_CENTS = re.compile(rf"([{CURRENCY_SIGNS}]) ?\.(?=\d)")
_MONEY = re.compile(
    rf"(?:(?<!\w)US)?((?-i:(?<!\w)(?:AU?|CA?|HK|NZ)(?=\$))?[{CURRENCY_SIGNS}])"
    rf" ?({_FIGURE})(?:\.(\d+))?(?:-({_NUMBER})(?![\d-]))?"
    rf"(?:(?: ?|-(?=(?:hundred|thousand|million|billion|trillion)\b))({_SCALE})\b)?",
    re.IGNORECASE,
)
_MONEY_AFTER = re.compile(
    rf"{_START}(?:({_NUMBER})-)?({_FIGURE})(?:\.(\d+))?(?: ?({_SCALE}))? ?([{CURRENCY_SIGNS}])(?! ?\d)", re.IGNORECASE
)
_PER_AFTER_NUMBER = re.compile(rf"(?<=\d)/({_PER})(?!\w)")
_PHONE = re.compile(
    r"(?<![\w.,/+-])(?:\+\d{1,3}(?: \(0\)\d{1,4})?(?:[ -]\(?\d{1,5}\)?){2,5}|\+\d{7,15}"
    r"|(?:1-)?(?:\(\d{3}\) ?|\d{3}-)?\d{3}-\d{4}"
    r"|\d{3}(?P<between>[ .])\d{3}(?P=between)\d{4}"
    r"|0[1-9]\d{3} \d{6}|0[1-9]\d{1,3}(?: \d{3,4}){2}|\(0\d{1,4}\) ?\d{3,4}[ -]?\d{3,4})"
    r"(?![\w/-]|[.,]\d)"
)
_PHONE_IN_LETTERS = re.compile(r"(?<![\w.,/+-])1-(8\d\d|900)-(?=[A-Z])")
_CALL = re.compile(
    r"(?<!\w)((?:call|dial|text)(?:l?ed|l?ing)? )((?!\d+00(?!\d)|(?:19|20)\d\d(?!\d))\d{3,6})"
    r"(?![\w,.:/-]\w|\w| (?:people|(?:wo)?men|children|[a-z]{4,}s)\b)",
    re.IGNORECASE,
)
_DATE_OF_YEAR = re.compile(r"(?<![\w.,/-])(1\d{3}|20\d\d)([-/])(0[1-9]|1[0-2])\2(0[1-9]|[12]\d|3[01])(?![\w/-])")
_DATE = re.compile(r"(?<![\w.,/-])(\d{1,2})(?:/(\d{1,2})/(\d{4}|\d\d)|([.-])(\d{1,2})\4(\d{4}))(?![\w/-]|\.\d)")
_VERB_IN_CAPITALS = r"MA(?:Y|R|RCH) (?:\d{1,2} )?[A-Z]"
_MONTH_DAY = re.compile(
    # No day follows `in`: in May 20 people came.
    rf"(?<!\w)(?!{_VERB_IN_CAPITALS})(?!(?<=\b[iI]n )[A-Z][a-z]{{2,8}} \d{{1,2}} [a-z])"
    rf"({MONTH_NAMES})\.? (\d{{1,2}})(?:st|nd|rd|th)?(?:-(\d{{1,2}})(?:st|nd|rd|th)?)?"
    r"(?![\w:/%-]|[.,]\d| ?[ap]\.?m\b)"
)
_DAY_MONTH = re.compile(
    rf"(?<![\w.,:/$-])(\d{{1,2}})(?:-(\d{{1,2}}))? (?!{_VERB_IN_CAPITALS})({MONTH_NAMES})(?!\w)(\.(?=[ ,]))?"
)
_MONTH_YEAR = re.compile(rf"(?<!\w)({MONTH_NAMES})\.? (?='?\d)")
_YEARS = re.compile(r"(?<![\w.,/-])(1[1-9]\d\d|20\d\d)/(\d{4}|\d\d)(?![\w/-]|[.,]\d)")
_ON_DAY = re.compile(r"(?<=\b[oO]n )(?!9/11)(1[0-2]|0?[1-9])/(3[01]|[12]?\d|0[1-9])(?![\w/]|[.,]\d| of\b)")
_FRACTION = re.compile(
    r"(?:(?<![\w/.,:-])|(?<=[a-z]-))(?:(\d{1,3})[ -])?(\d{1,3})/(\d{1,3})(?:rds?|ths?)?(?![\w/]|[.,]\d)"
)
_PLURAL_FIGURE = re.compile(rf"{_START}(?:'(?=\d0))?(\d{{1,4}})'?s\b")
_ORDINAL = re.compile(rf"{_START}({_FIGURE})(?:st|nd|rd|th)\b", re.IGNORECASE)
_VERSE = re.compile(rf"(?<!\w)({'|'.join(BOOKS_WITH_VERSES)}) (\d{{1,3}}):([1-9]\d{{0,2}})(?![\w:]| ?[ap]\.?m\b)")
_DOT_TIME = re.compile(r"(?<![\w.,])(1[0-2]|0?[1-9])\.([0-5]\d)(?= ?[ap]\.?m\b)", re.IGNORECASE)
_CLOCK = re.compile(r"(?<![\w:.])(\d{1,2}):([0-5]\d):(?!00)([0-5]\d)(?![\w:])")
_TIME = re.compile(r"(?<![\w:.])([01]?\d|2[0-3]):([0-5]\d)(?::00)?(?: ?([ap])(?:m|\.m(\.)?))?(?![\w:])", re.IGNORECASE)
_HOUR = re.compile(r"(?<![\w:.,])(1[0-2]|0?[1-9]) ?([ap])(?:m|\.m(\.)?)(?!\w)", re.IGNORECASE)
_HOURS_MINUTES = re.compile(r"(?<![\w.:,])(\d{1,3}) ?h ?(\d{1,2}) ?m(?:in)?(?!\w)")
_DAY = "(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\\.)"
_ZONE = "(?:(?:[ECMP][SD]?|GM|BS|IS|CES?|JS|AE[SD]|AK[SD]|HS)T|UTC)"
_ZONE_NAME = "(?:Eastern|Central|Mountain|Pacific)(?! (?!Time|Standard|Daylight)[A-Z])"
# What may follow `a.m.` within a sentence: a day, a date, a time zone.
TIME_GOES_ON = rf"\s(?:{_DAY}|(?:{MONTH_NAMES})\.? (?:\d|[a-z-]{{1,14}}(?:st|nd|rd|th)\b)|{_ZONE}|{_ZONE_NAME})(?!\w)"
_TIME_GOES_ON = re.compile(TIME_GOES_ON)
_RATIO = re.compile(r"(?<![\w:.,])(\d{1,4}(?:\.\d{1,3})?):(\d{1,4})(?![\w:])")
_TEMPERATURE = re.compile(r" ?\u00b0 ?([CF])?(?!\w)", re.IGNORECASE)
_HEIGHT = re.compile(r"(?<![\w.,'\u00b0])(\d{1,2})' ?(\d{1,2})(\"|'')?(?!\w)")
_MEASURE = re.compile(
    rf"(?<=\d)(?P<between>[ -]?)(?!W\. (?!(?:The|It|He|She|This|But|In|A) )[A-Z])"
    rf"(?P<unit>{_UNIT}|(?:(?<= )|(?<=\.\d)|(?<=\.\d\d))s"
    r"|(?<=\d)in(?!\w)|in(?=[.\u00b2\u00b3]| (?:tall|long|wide|high|deep|thick)\b))"
    rf"(?P<power>[\u00b2\u00b3])?(?:/(?P<per>{_PER})(?P<per_power>[\u00b2\u00b3])?)?"
    r"(?:(?P<to>-)(?=\d)|(?P<stop>\.)(?!\w)|(?![\w\u00b2\u00b3]|/(?!\d)))"
)
_BY = re.compile(rf"{_START}({_NUMBER}) ?[xX\u00d7] ?(?=\d)")
_SCALED = re.compile(rf"{_START}({_NUMBER})(?:([kKMB])| ?(bn|mn|tn))(?!\w)")
_CHAIN = re.compile(r"(?<![\w.,-])\d+(?:-\d+){2,}(?![\w-])")
_RANGE = re.compile(rf"(?<![\w.,-])({_NUMBER})(%?)-({_NUMBER})(?!-?\d|[.,]\d)")
_PRODUCT = re.compile(r"(?<=\d) ?[xX\u00d7] ?(?=\d{1,15}(?:\.\d{1,15})?(?: ?[xX\u00d7] ?\d{1,15}){0,3} ?=)")
_SUBTRACTION = re.compile(r"(?<=\d) ?- ?(?=\d{1,15}(?:\.\d{1,15})? ?=)")
_ERA_AFTER = re.compile(r"(?<=\d) ?(BCE?|CE|AD)(?!\w)")
_ERA_BEFORE = re.compile(r"(?<!\w)AD (?=\d)")
_YEAR = re.compile(
    rf"(?<![\w.,$])(?<!\d-)(1[1-9]\d\d|20\d\d|(?<=[iI]n )10[1-9]\d)(?![\w,]\d|\w|\.\d| (?:{_UNIT_WORDS})s?\b)"
)
_DECIMAL = re.compile(rf"(?<![\d.])(?<!\d,)({_FIGURE})?\.(\d+)(?!\.?\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")  # in version numbers, such as 1.2.3
_NEGATIVE = re.compile(r"(?:(?<=[\s(])|(?<=^))-(?=\.?\d)")
_WHOLE = re.compile(_FIGURE)
_TOUCHING = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_LETTER_NEXT = re.compile(r" [\"'(]?[^\W\d_]")
_ARTICLE = re.compile(r"(?<!\w)(?:an?|the|this|that|his|her|its|our|their) \Z", re.IGNORECASE)
_PRICED = re.compile(r"[ -](?:bill|contract|deal|fee|fine|fund|house|loan|note|project|settlement|tax)(?!\w)")
_ARTICLE_NUMBER = re.compile(r"(?<!\w)[aA]n? [\d.,]{1,9} ?\Z")
_NOUN_NEXT = re.compile(r"[ -](?!(?:to|or|and) )[a-z]")
_IS_ONE = re.compile(r"(?:(?<![\d.,/-])1|(?<![\d/.-])(?<!\d )\d{1,2}/\d{1,2}) ?\Z")
_SIGNED = re.compile(r"([~<>#\u00a7]) ?(?=\.?\d)|(?<=\d) ?\* ?(?=\d)|(?<=\w)\^(?:-(?=\d)|(?=\w))|(?<=\d)/(?=\d)")
_SIGNED_WORDS = {"~": "about ", "<": "less than ", ">": "greater than ", "#": "number ", "\u00a7": "section "}
_SIGNED_WORDS |= {"*": " times ", "^": " to the power of ", "^-": " to the power of minus ", "/": " slash "}


def expand_figures(text: str) -> str:
    """Return the text without digits. A number from 1100 to 2099 that stands alone is read as a year."""
    text = _SPACED.sub(lambda match: match[0].replace(" ", ""), text)
    text = _MINUS_MONEY.sub("minus ", _SIGN_FIRST.sub(r"-\1", text))
    text = _PER_AFTER_NUMBER.sub(lambda match: f" per {unit_of(match[1])}", write_ranges(text))
    text = _MONEY.sub(_money, _CENTS.sub(r"\g<1>0.", text))
    text = _MONEY_AFTER.sub(_money_after, text)
    for pattern, read in _RULES:
        text = pattern.sub(read, text)
    text = _TOUCHING.sub(" ", _NEGATIVE.sub("minus ", text))
    text = _DECIMAL.sub(lambda match: set_apart(f"{spoken(match[1] or '0')} point {_each(match[2])}", match), text)
    return _WHOLE.sub(lambda match: spoken(match[0]), _POINT.sub(" point ", text))


@lru_cache(maxsize=10_000)
def spoken(figure: str, form: str = "cardinal") -> str:
    """Return a whole number in words, as a `cardinal` or an `ordinal`."""
    digits = plain_digits(figure)
    # A number with leading zeros, or too long for words, is read digit by digit.
    if len(digits) > MAX_DIGITS or (digits[0] == "0" and len(digits) > 1):
        return _each(digits)
    return str(num2words(int(digits), to=form)).replace(",", "")


def unit_of(written: str) -> str:
    """Return the name of a unit: `kilogram` for `kg`."""
    return PER_WORDS.get(written) or UNITS[written]


def unit_words(match: re.Match[str]) -> str:
    """Return a unit without a number before it, such as `km/h`, in words."""
    return f"{plural(unit_of(match[1]))} per {unit_of(match[2])}"


def plural(words: str) -> str:
    """Return the plural of a noun, such as `mile per hour`."""
    word, per, rest = words.partition(" per ")
    if per:
        return f"{plural(word)}{per}{rest}"
    if word in PLURALS or word.endswith("hertz"):
        return PLURALS.get(word, word)
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("x") else f"{word}s"


def full_stop(match: re.Match[str], *, before_capital: bool = False) -> str:
    """Return the full stop if it ends a sentence: at the end of the text, or, if asked for, before a capital letter."""
    following = _LETTER_NEXT.match(match.string, match.end()) if before_capital else None
    is_end = match.end() == len(match.string) or (following is not None and following[0][-1].isupper())
    return "." if is_end else ""


def month_of(written: str) -> str:
    """Return the whole name of a month: `September` for `Sept` and `Sep`."""
    return next(month for month in MONTHS if month.startswith(written[:3].capitalize()))


def _money(match: re.Match[str]) -> str:
    sign, whole, fraction, last, scale = match.groups()
    string, start = match.string, match.start()
    # a $20 bill, the $5 million house
    article = _ARTICLE.search(string, max(0, start - 7), start)
    noun = article and (_NOUN_NEXT if article[0][0] in "aA" else _PRICED).match(string, match.end())
    is_single = noun is not None and (scale is not None or not fraction)
    return set_apart(_sum(sign, whole, fraction, scale, last, is_single=is_single), match)


def _money_after(match: re.Match[str]) -> str:
    first, whole, fraction, scale, sign = match.groups()
    said = _sum(sign, whole, fraction, scale, None)
    return set_apart(f"{_decimal(first)} to {said}" if first else said, match)


def _sum(
    sign: str, whole: str, fraction: str | None, scale: str | None, last: str | None, *, is_single: bool = False
) -> str:
    unit, part = CURRENCIES[sign]
    if last or scale or (fraction and len(fraction) != 2):
        amounts = [_decimal(f"{whole}.{fraction}" if fraction else whole), *([_decimal(last)] if last else [])]
        words = (" to ".join(amounts), SCALES.get(small_letters(scale or "")), unit if is_single else plural(unit))
        return " ".join(filter(None, words))
    if is_single:
        return f"{spoken(whole)} {unit}"
    said = [_amount(whole, unit)] if plain_digits(whole).strip("0") or not fraction else []
    if fraction and (fraction.strip("0") or not said):
        said.append(_amount(fraction, part))
    return " and ".join(said)


def _amount(figure: str, unit: str) -> str:
    digits = plain_digits(figure).lstrip("0") or "0"
    return f"{spoken(digits)} {unit if digits == '1' else plural(unit)}"


def _decimal(figure: str) -> str:
    whole, _, decimals = figure.partition(".")
    return f"{spoken(whole)} point {_each(decimals)}" if decimals else spoken(whole)


def _phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    # 500-1000 is a range.
    if len(groups) == 2 and groups[1].endswith("00"):
        return match[0]
    return ("plus " if match[0].startswith("+") else "") + ", ".join(map(_phone_group, groups))


def _phone_group(digits: str) -> str:
    return spoken(digits) if digits in ("800", "900") else _each(digits)


def _date_of_year(match: re.Match[str]) -> str:
    return _date(match[3], match[4], match[1])


def _date_in_figures(match: re.Match[str]) -> str:
    first, second, year = (match[1], match[2], match[3]) if match[3] else (match[1], match[5], match[6])
    month, day = (second, first) if int(first) > 12 else (first, second)
    is_date = 1 <= int(month) <= 12 and 1 <= int(day) <= 31
    return _date(month, day, year) if is_date else match[0]


def _date(month: str, day: str, year: str) -> str:
    return f"{MONTHS[int(month) - 1]} {_nth(day)}, {_year(year)}"


def _month_day(match: re.Match[str]) -> str:
    month, first, last = match.groups()
    if not all(1 <= int(day) <= 31 for day in (first, last or first)):
        return match[0]
    return f"{month_of(month)} {_nth(first)}{f' to {_nth(last)}' if last else ''}"


def _day_month(match: re.Match[str]) -> str:
    first, last, month, _ = match.groups()
    if not all(1 <= int(day) <= 31 for day in (first, last or first)):
        return match[0]
    article = "" if match.string[: match.start()].lower().endswith("the ") else "the "
    return f"{article}{_nth(first)}{f' to {_nth(last)}' if last else ''} of {month_of(month)}"


def _nth(day: str) -> str:
    return spoken(str(int(day)), "ordinal")


def _fraction(match: re.Match[str]) -> str:
    whole, above, below = match[1], int(match[2]), int(match[3])
    if f"{match[2]}/{match[3]}" in _SPOKEN_PAIRS:
        words = f"{spoken(match[2])} {spoken(match[3])}"
    elif above == below:
        words = f"{spoken(match[2])} out of {spoken(match[3])}"
    elif below in _FRACTIONS and 0 < above < max(below, 10) and match[2][0] != "0":
        one, many = _FRACTION_PARTS.get(below) or (spoken(match[3], "ordinal"), plural(spoken(match[3], "ordinal")))
        words = f"{spoken(match[2])} {one if above == 1 else many}"
        if whole:
            return set_apart(f"{spoken(whole)} and {words}", match)
    else:
        words = f"{spoken(match[2])} over {spoken(match[3])}"
    return set_apart(f"{spoken(whole)} {words}" if whole else words, match)


def _half_of_day(letter: str, stop: str | None, match: re.Match[str]) -> str:
    """Return `a m` or `p m`, with the full stop if it ends the sentence."""
    goes_on = _TIME_GOES_ON.match(match.string, match.end()) is not None
    return f" {letter.lower()} m{full_stop(match, before_capital=not goes_on) if stop else ''}"


def _hour(match: re.Match[str]) -> str:
    return spoken(str(int(match[1]))) + _half_of_day(match[2], match[3], match)


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    said = spoken(str(hour))
    if minute:
        said += f" {_two_digits(match[2])}"
    if match[3]:
        return said + _half_of_day(match[3], match[4], match)
    if minute:
        return said
    return f"{said} o'clock" if 1 <= hour <= 12 else f"{said} hundred"


def _two_digits(figure: str) -> str:
    return f"oh {spoken(figure[1])}" if figure[0] == "0" and figure != "00" else spoken(figure)


def _temperature(match: re.Match[str]) -> str:
    scale = f" {_DEGREES[match[1].lower()]}" if match[1] else ""
    return f" degree{'' if _is_one(match) else 's'}{scale}"


def _height(match: re.Match[str]) -> str:
    feet, inches, mark = match.groups()
    return f"{_amount(feet, 'foot')} {_amount(inches, 'inch') if mark else spoken(inches)}"


def _measure(match: re.Match[str]) -> str:
    unit, power, per = match["unit"], match["power"], match["per"]
    string, start = match.string, match.start()
    is_single = match["between"] == "-" or _is_one(match)
    # a 5 km run
    if not per and _NOUN_NEXT.match(string, match.end()):
        is_single |= _ARTICLE_NUMBER.search(string, max(0, start - 14), start) is not None
    words = "inch" if unit == "in" else unit_of(unit)
    words = f"{'-' if match['between'] == '-' else ' '}{_POWERS[power]}{words if is_single else plural(words)}"
    if per:
        is_squared = match["per_power"] and unit_of(per) == "second"
        words += f" per {'second squared' if is_squared else _POWERS[match['per_power']] + unit_of(per)}"
    if match["to"]:
        return f"{words} to "
    return words + (full_stop(match, before_capital=True) if match["stop"] else "")


def _is_one(match: re.Match[str]) -> bool:
    """Return whether the number before the match is 1 or a fraction."""
    return _IS_ONE.search(match.string, max(0, match.start() - 7), match.start()) is not None


def _scaled(match: re.Match[str]) -> str:
    number, letter, word = match.groups()
    # 4K, 10K and 221B are names; 10k, 1.5K and 100K are numbers.
    is_name = "." not in number and (letter == "B" or (letter == "K" and len(number) < 3))
    return f"{number} {letter}" if is_name else f"{number} {SCALES[(letter or word).lower()]}"


def _chain(match: re.Match[str]) -> str:
    groups = match[0].split("-")
    if all(len(group) <= 2 for group in groups):
        return ("-" if all(len(group) == 1 for group in groups) else ", ").join(map(spoken, groups))
    return ", ".join(map(_each, groups))


def _range(match: re.Match[str]) -> str:
    first, percent, last = match.groups()
    if first == last:
        return f"{first}{percent} {last}"
    is_year = len(first) == 4 and len(last) == 2 and last[0] == "0"
    return f"{first}{percent} to {_two_digits(last) if is_year else last}"


@lru_cache(maxsize=2_000)
def _year(figure: str) -> str:
    if len(figure) == 2:
        return _two_digits(figure)
    return str(num2words(int(figure), to="year")).replace("oh-", "oh ") if "1010" <= figure < "2100" else spoken(figure)


def _signed(match: re.Match[str]) -> str:
    return set_apart(_SIGNED_WORDS[match[0].strip()], match)


def _plural_figure(match: re.Match[str]) -> str:
    """Return `nineteen ninety-nines`, which sounds as the possessive does, or `hundreds`."""
    figure = match[1]
    if figure in ("100", "1000"):
        return plural(spoken(figure)).removeprefix("one ")
    return plural(_year(figure) if len(figure) == 4 else spoken(figure))


def _each(figure: str) -> str:
    return " ".join(_DIGITS[int(digit)] for digit in figure)


# In this order: an early rule takes what a later one would misread.
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_PHONE, _phone),
    (_PHONE_IN_LETTERS, lambda match: f"one, {_phone_group(match[1])}, "),
    (_CALL, lambda match: match[1] + _each(match[2])),
    (_DATE_OF_YEAR, _date_of_year),
    (_DATE, _date_in_figures),
    (_MONTH_DAY, _month_day),
    (_DAY_MONTH, _day_month),
    (_MONTH_YEAR, lambda match: f"{month_of(match[1])} "),
    (_YEARS, lambda match: f"{_year(match[1])} {_year(match[2])}"),
    (_VERSE, r"\1 \2 \3"),
    (_DOT_TIME, r"\1:\2"),
    (_CLOCK, lambda match: f"{spoken(match[1])} {_two_digits(match[2])} {_two_digits(match[3])}"),
    (_TIME, _time),
    (_HOUR, _hour),
    (_HOURS_MINUTES, lambda match: f"{_amount(match[1], 'hour')} {_amount(match[2], 'minute')}"),
    (_RATIO, r"\1 to \2"),
    (_TEMPERATURE, _temperature),
    (_HEIGHT, _height),
    (_SCALED, _scaled),
    (_MEASURE, _measure),
    (_ON_DAY, lambda match: f"{MONTHS[int(match[1]) - 1]} {_nth(match[2])}"),
    (_FRACTION, _fraction),
    (_PLURAL_FIGURE, _plural_figure),
    (_ORDINAL, lambda match: spoken(match[1], "ordinal")),
    (_CHAIN, _chain),
    (_SUBTRACTION, " minus "),
    (_PRODUCT, " times "),
    (_RANGE, _range),
    (_BY, lambda match: f"{_decimal(match[1])} by "),
    (_ERA_BEFORE, "a d "),
    (_ERA_AFTER, lambda match: f" {_ERAS[match[1]]}"),
    (_SIGNED, _signed),
    (_YEAR, lambda match: _year(match[1])),
)

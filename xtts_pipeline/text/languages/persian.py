"""Normalise Persian spelling and read its figures and signs aloud: dates, times, ranges, money, units, ordinals.

A slash between two numbers is the decimal sign, as it is typed on Persian keyboards. No rule begins inside a figure,
so the time is linear in the length of the text.
"""

import re
from collections.abc import Callable

from xtts_pipeline.text.languages.powers import read_low_digits, write_powers
from xtts_pipeline.text.numbers import MAX_DIGITS, expand_numbers, set_apart

_HEH, _HAMZA_ABOVE = "\u0647", "\u0654"
# Kurdish, Urdu and Arabic keyboards have their own code points for heh, kaf and digits that look the same.
PERSIAN_LETTERS: dict[int, str | None] = {
    0x06AA: "\u06a9",
    **dict.fromkeys((0x06BE, 0x06C1, 0x06D5), _HEH),
    **dict.fromkeys((0x06C0, 0x06C2), _HEH + _HAMZA_ABOVE),
    **{0x0660 + digit: chr(0x06F0 + digit) for digit in range(10)},
    # A zero-width joiner only changes a letter's shape, as in the abbreviation of the solar year.
    0x200D: None,
}
# The linking sound after a silent heh has two spellings: a hamza above it, or a separate yeh.
_LINK = re.compile(rf"{_HEH}\u200c\u06cc(?![\w\u200c\u064b-\u0655])")
_STRAY_NON_JOINER = re.compile(r"(?<![^\W\d_\u060c])(?<![\u064b-\u0655])\u200c|\u200c(?![^\W\d_])")
# The Arabic teh marbuta sounds as t after an alef and before an article, and as e elsewhere.
_TEH_BEFORE_ARTICLE = re.compile("\u0629(\u200c| )?(?=\u0627\u0644)")
_TEH_AFTER_ALEF = re.compile("(?<=\u0627)\u0629")

# Several entries a line keep the tables in sight.
# fmt: off
_SOLAR_MONTHS = (
    "فروردین", "اردیبهشت", "خرداد", "تیر", "مرداد", "شهریور", "مهر", "آبان", "آذر", "دی", "بهمن", "اسفند",
)
_GREGORIAN_MONTHS = (
    "ژانویه", "فوریه", "مارس", "آوریل", "مه", "ژوئن", "ژوئیه", "اوت", "سپتامبر", "اکتبر", "نوامبر", "دسامبر",
)
# These are words of other meanings too.
_AMBIGUOUS_MONTHS = frozenset({"تیر", "مهر", "آذر", "دی", "بهمن", "مارس", "مه"})
_PERCENT, _POINT, _DOT, _AND, _TO, _AGAINST = "درصد", "ممیز", "نقطه", "و", "تا", "بر"
_MINUS, _PLUS, _MINUTES, _SECONDS, _NUMBER = "منفی", "مثبت", "دقیقه", "ثانیه", "شماره" + _HAMZA_ABOVE
_TO_THE_POWER = "به توان"
_CURRENCIES = {"$": "دلار", "€": "یورو", "£": "پوند", "¥": "ین", "₺": "لیر", "₽": "روبل", "₹": "روپیه"}
_CENTS = {"$": "سنت", "€": "سنت", "£": "پنس"}
_UNITS = {
    "km": "کیلومتر", "m": "متر", "cm": "سانتی‌متر", "mm": "میلی‌متر", "kg": "کیلوگرم", "g": "گرم", "mg": "میلی‌گرم",
    "l": "لیتر", "L": "لیتر", "ml": "میلی‌لیتر", "mL": "میلی‌لیتر", "h": "ساعت", "min": "دقیقه", "s": "ثانیه",
    "KB": "کیلوبایت", "MB": "مگابایت", "GB": "گیگابایت", "TB": "ترابایت", "Hz": "هرتز", "MHz": "مگاهرتز",
    "GHz": "گیگاهرتز", "W": "وات", "kW": "کیلووات", "V": "ولت", "kcal": "کیلوکالری",
}
_POWERS = {"": "", "²": " مربع", "³": " مکعب"}
_FRACTIONS = {"½": "نیم", "¼": "یک چهارم", "¾": "سه چهارم", "⅓": "یک سوم", "⅔": "دو سوم"}
_SIGNS = {
    "%": _PERCENT, "٪": _PERCENT, "&": _AND, "@": "ات", "+": "به علاوه" + _HAMZA_ABOVE, "=": "مساوی", "°": "درجه",
    "×": "ضرب در", "÷": "تقسیم بر", "±": f"{_PLUS} {_MINUS}", "#": "هشتگ", "≤": "کوچک‌تر یا مساوی",
    "≥": "بزرگ‌تر یا مساوی", "≈": "تقریباً", **_CURRENCIES,
}
# fmt: on
_ABBREVIATIONS = {"ه. ش": "هجری شمسی", "ه. ق": "هجری قمری", "ق. م": "قبل از میلاد"}

_FIGURE = r"\d+(?:[./٫]\d+)?"
# Never from within a figure: each start would be tried to the figure's end, in quadratic time.
_START = r"(?<![\d./٫])"
_MONTH = "|".join((*_SOLAR_MONTHS, *_GREGORIAN_MONTHS))
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_CURRENCY = "".join(_CURRENCIES)
_ABBREVIATION = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, _ABBREVIATIONS))})(\.)?(?!\w)".replace(r"\ ", " ?"))
_THOUSANDS = re.compile(r"(?<=\d)[,٬،](?=\d{3}(?!\d))")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}(?:[ -]\d{2,8}){1,4}|\+\d{8,15}|(?:\([0۰]\d{1,3}\) ?|[0۰]\d{1,3}[ -])\d{5,8}"
    r"|[0۰]\d{2,3}[ -]\d{3,4}[ -]\d{4})(?![\w-])"
)
# A telephone number without its area code, a postal code or a number of identity.
_CODE = re.compile(r"(?<!\w)((?:تلفن|کد[ \u200c]?پستی|کد[ \u200c]?ملی)(?:: ?| ))(\d[\d-]{5,20}\d)(?![\w-])")
# Prices are grouped by slashes or points: 1/200/000.
_SLASHED_THOUSANDS = re.compile(
    r"(?<![\d./٫])[1-9۱-۹]\d{0,2}(?:(?:[./]\d{3})*[./](?:000|۰۰۰)(?![\d/٫]|\.\d)"
    r"|(?:[./]\d{3}){1,4}(?= ?(?:تومان|ریال)))"
)
_SLASHED_CLOCK = re.compile(r"(?<=\bساعت )([01۰۱]?\d|[2۲][0-4۰-۴])[/.]([0-5۰-۵]\d)(?![\d/٫]|\.\d)")
_FRACTION_OF = re.compile(r"(?<![\d./٫])([1-3۱-۳])/([2-8۲-۸])(?=[ \u200c](?:نهایی|فنجان|قاشق|پیمانه|لیوان|استکان))")
_DATE = re.compile(r"(?<![\w./-])(\d{1,4})([/.-])(\d{1,2})\2(\d{1,4})(?![\w/-]|\.\d)")
_DAY_OF_MONTH = re.compile(
    rf"(?<![\w.:/-])(\d{{1,2}}) ({_MONTH})(?=([ \u200c]?ماه(?![\w\u200c])| [,،]?\d{{2,4}}(?![\d/]))|(?![\w\u200c]))"
)
_CLOCK = re.compile(r"(?<![\w:.])(\d{1,2}):(\d\d)(?::(\d\d))?(?![\w:])")
_TIMES_TO = re.compile(r"(?<=:\d\d) ?- ?(?=\d{1,2}:\d\d)")
_RATIO = re.compile(r"(?<![\w:.])(\d{1,4}):(\d{1,4})(?![\w:])")
_RANGE = re.compile(rf"(?<![\w./٫-])({_FIGURE})([%٪]?)( ?)-\3({_FIGURE})(?![\d-]| ?=)")
_SUBTRACTION = re.compile(r"(?<=\d) ?- ?(?=\d{1,15} ?=)")
_NEGATIVE = re.compile(rf"(?:(?<=[\s(])|(?<=^))-(?=[{_CURRENCY}]?\d)")
_SIGN_FIRST = re.compile(rf"(?<!\d)(?<!\d )([{_CURRENCY}])-(?=\d)")
_TO_MONEY = re.compile(rf"(?<=\d[{_CURRENCY}])-(?=\d)|(?<=\d)-(?=[{_CURRENCY}] ?\d)")
_AT_LEAST = re.compile(r"(?<![\w./٫])(\d{1,15})\+(?= [^\W\d]|[،.]|$)")
_BARE_POINT = re.compile(r"(?<!\S)[.٫](?=\d)")
_POSITIVE = re.compile(r"(?:(?<=[\s(])|(?<=^))\+(?=\d)")
_TIMES = re.compile(r"(?<=\d) ?[*x] ?(?=\d)")
_HASH = re.compile(r"#(?=\d)|№ ?(?=\d)")
_MONEY_BEFORE = re.compile(rf"([{_CURRENCY}]) ?({_MINUS} )?({_FIGURE})(?: ?(هزار|میلیون|میلیارد)(?!\w))?")
_DEGREES = re.compile(r" ?° ?([CF])?(?!\w)|(?<=\d) ?([℃℉])")
_MEASURE = re.compile(rf"(?<=\d) ?({_UNIT})([²³]?)(?:/({_UNIT}))?(?!\w)")
_POWER = re.compile(r"(?<=[^\W\d_]) ?([²³])")
_ORDINAL = re.compile(r"(?<![\w./٫])(\d{1,15})(?:[\u200c ]?اُ?م|\u200c?ُ?م)(ین)?(?![\w\u200c])")
# Without a space, 1984م may also be the 1984th.
_YEAR_OF_ERA = re.compile(
    r"(?:(?<![\w./٫])(?=\d{3,4} )|(?:(?<=سال )|(?<=\()|(?<=\d{3} تا ))(?=\d{4}م))(\d{3,4}) ?م(\.)?(?![\w\u200c])"
)
_PERCENTAGE = re.compile(rf"[%٪] ?({_FIGURE})|{_START}({_FIGURE}) ?[%٪]")
_DECIMAL = re.compile(r"(?<![\d./٫])(\d+)[./٫]([0۰]*)(\d*)(?![./٫]?\d)")
_DOTTED = re.compile(r"(?<=\d)[.٫](?=\d)")  # in version numbers, such as 1.2.3
_SLASHED = re.compile(r"(?<=\d)/(?=\d)|(?<=[^\W_])/(?=[^\W\d_])")
_PER = re.compile(rf"(?<!\w)({'|'.join(sorted({*_UNITS.values()}, key=len, reverse=True))})/(?=[^\W\d_])")
_DIGIT_BY_DIGIT = re.compile(rf"(?<!\d)[0۰]\d+|\d{{{MAX_DIGITS + 1},}}")
_VULGAR = re.compile(f"(?:(?<!\\d)(\\d{{1,{MAX_DIGITS}}}) ?)?([{''.join(_FRACTIONS)}])")
_SIGN = re.compile(f" ?([{re.escape(''.join(_SIGNS))}])")


def spell_persian(text: str) -> str:
    """Return the text with one spelling of the linking heh and of teh, and with non-joiners between letters only.

    PERSIAN_LETTERS maps single letters.
    """
    if "\u0629" in text:
        text = _TEH_AFTER_ALEF.sub("\u062a", _TEH_BEFORE_ARTICLE.sub(_teh, text)).replace("\u0629", _HEH)
    return _STRAY_NON_JOINER.sub("", _LINK.sub(_HEH + _HAMZA_ABOVE, text))


def expand_persian(text: str) -> str:
    """Return the text with figures, signs and a few abbreviations in words.

    A number with a leading zero, such as a telephone number, is read digit by digit.
    """
    text = _ABBREVIATION.sub(_abbreviation, write_powers(text, _TO_THE_POWER, _MINUS))
    text = read_low_digits(_VULGAR.sub(_fraction, text), lambda number: expand_numbers(str(number), "fa"))
    if any(map(str.isdecimal, text)):
        for pattern, read in _RULES:
            text = pattern.sub(read, text)
        text = expand_numbers(text, "fa")
    text = _SLASHED.sub(" ", _PER.sub(rf"\1 {_AGAINST} ", text))
    text = _POWER.sub(lambda match: set_apart(_POWERS[match[1]], match), text)
    return _SIGN.sub(lambda match: f" {set_apart(_SIGNS[match[1]], match)}", text)


def _teh(match: re.Match[str]) -> str:
    return f"\u062a{match[1] or chr(0x200C)}"


def _abbreviation(match: re.Match[str]) -> str:
    words = _ABBREVIATIONS[match[1] if " " in match[1] else match[1].replace(".", ". ")]
    return words + _full_stop(match)


def _full_stop(match: re.Match[str]) -> str:
    """Return the full stop of an abbreviation, the second group, if it also ends the text."""
    return "." if match[2] and match.end() == len(match.string) else ""


def _fraction(match: re.Match[str]) -> str:
    whole = f"{match[1]} {_AND} " if match[1] else ""
    return set_apart(whole + _FRACTIONS[match[2]], match)


def _phone(match: re.Match[str]) -> str:
    groups = (" ".join(group) for group in re.findall(r"\d+", match[0]))
    return (f"{_PLUS} " if match[0].startswith("+") else "") + "، ".join(groups)


def _code(match: re.Match[str]) -> str:
    return match[1] + "، ".join(" ".join(group) for group in match[2].split("-") if group)


def _fraction_of(match: re.Match[str]) -> str:
    above, below = int(match[1]), int(match[2])
    return f"{expand_numbers(str(above), 'fa')} {_nth(match[2])}" if above < below else match[0]


def _date(match: re.Match[str]) -> str:
    first, separator, month, last = match.groups()
    year, day = (first, last) if len(first) in (2, 4) and len(last) <= 2 else (last, first)
    is_year = len(year) == 4 or (len(year) == 2 and separator == "/")
    if not (is_year and len(day) <= 2 and 1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return match[0]
    # Solar years of our time begin with 13 or 14.
    is_solar = len(year) == 2 or 1300 <= int(year) < 1500
    name = (_SOLAR_MONTHS if is_solar else _GREGORIAN_MONTHS)[int(month) - 1]
    return f"{_nth(day)} {name} {year}"


def _day_of_month(match: re.Match[str]) -> str:
    day, month, follows = match[1], match[2], match[3]
    is_certain = 1 <= int(day) <= 31 and (follows or month not in _AMBIGUOUS_MONTHS)
    return f"{_nth(day)} {month}" if is_certain else match[0]


def _nth(figure: str) -> str:
    """Return an ordinal: the third is irregular, and after a vowel the ending has a letter of its own."""
    words = expand_numbers(str(int(figure)), "fa")
    if words.endswith("سه"):
        return f"{words[:-1]}وم"
    return f"{words}\u200cام" if words.endswith("ی") else f"{words}م"


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 24 or minute > 59 or second > 59:
        return match[0]
    parts = [str(hour), f"{minute} {_MINUTES}" if minute else "", f"{second} {_SECONDS}" if second else ""]
    return f" {_AND} ".join(filter(None, parts))


def _range(match: re.Match[str]) -> str:
    first, percent, space, last = match.groups()
    # The years 1398-99.
    is_range = _value(first) < _value(last) or (len(first), len(last)) == (4, 2)
    if space and not is_range:
        return match[0]
    return f"{first}{percent} {_TO if is_range else _AGAINST} {last}"


def _value(figure: str) -> float:
    return float(re.sub("[/٫]", ".", figure)) if len(figure) <= MAX_DIGITS else 0.0


def _money(match: re.Match[str]) -> str:
    sign, minus, figure, scale = match.groups()
    whole, _, cents = re.sub("[/٫]", ".", figure).partition(".")
    if sign in _CENTS and len(cents) == 2 and not scale:
        part = f" {_AND} {int(cents)} {_CENTS[sign]}" if int(cents) else ""
        return set_apart(f"{minus or ''}{whole} {_CURRENCIES[sign]}{part}", match)
    return set_apart(" ".join(filter(None, ((minus or "").strip(), figure, scale, _CURRENCIES[sign]))), match)


def _degrees(match: re.Match[str]) -> str:
    scale = {"C": "سانتی‌گراد", "℃": "سانتی‌گراد", "F": "فارنهایت", "℉": "فارنهایت"}.get(match[1] or match[2])
    return f" درجه{_HAMZA_ABOVE} {scale}" if scale else " درجه"


def _measure(match: re.Match[str]) -> str:
    unit, power, per = match.groups()
    return f" {_UNITS[unit]}{_POWERS[power]}{f' {_AGAINST} {_UNITS[per]}' if per else ''}"


def _decimal(match: re.Match[str]) -> str:
    if not match[2] and not match[3]:
        return match[0]
    return set_apart(" ".join((match[1], _POINT, *match[2], match[3])).strip(), match)


# In this order: an early rule takes what a later one would misread.
_RULES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_THOUSANDS, ""),
    (_PHONE, _phone),
    (_CODE, _code),
    (_SLASHED_THOUSANDS, lambda match: re.sub("[./]", "", match[0])),
    (_SLASHED_CLOCK, r"\1:\2"),
    (_FRACTION_OF, _fraction_of),
    (_DATE, _date),
    (_DAY_OF_MONTH, _day_of_month),
    (_BARE_POINT, "0٫"),
    (_AT_LEAST, r"بیش از \1"),
    (_TIMES_TO, f" {_TO} "),
    (_CLOCK, _clock),
    (_RATIO, r"\1 به \2"),
    (_SUBTRACTION, " منهای "),
    (_TO_MONEY, f" {_TO} "),
    (_RANGE, _range),
    (_SIGN_FIRST, rf"\1{_MINUS} "),
    (_NEGATIVE, f"{_MINUS} "),
    (_POSITIVE, f"{_PLUS} "),
    (_TIMES, " ضرب در "),
    (_HASH, f"{_NUMBER} "),
    (_MONEY_BEFORE, _money),
    (_DEGREES, _degrees),
    (_MEASURE, _measure),
    (_YEAR_OF_ERA, lambda match: f"{match[1]} میلادی{_full_stop(match)}"),
    (_ORDINAL, lambda match: f"{_nth(match[1])}{match[2] or ''}"),
    (_PERCENTAGE, lambda match: set_apart(f"{match[1] or match[2]} {_PERCENT}", match)),
    (_DECIMAL, _decimal),
    (_DOTTED, f" {_DOT} "),
    (_DIGIT_BY_DIGIT, lambda match: set_apart(" ".join(match[0]), match)),
)

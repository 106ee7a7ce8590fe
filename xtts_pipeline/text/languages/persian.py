"""Normalise Persian spelling and spell out its numbers."""

import re

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

_PERCENT = "\u062f\u0631\u0635\u062f"
_POINT = "\u0645\u0645\u06cc\u0632"
_DOT = "\u0646\u0642\u0637\u0647"
_AND = "\u0648"
_MINUTES = "\u062f\u0642\u06cc\u0642\u0647"
_THOUSANDS = re.compile(r"(?<=\d)[,\u066c](?=\d{3}(?!\d))")
_TIME = re.compile(r"(?<![\w:.])(\d{1,2}):(\d\d)(?![\w:])")
_FIGURE = r"\d+(?:[.\u066b]\d+)?"
# Never from within a figure: each start would be tried to the figure's end, in quadratic time.
_PERCENTAGE = re.compile(rf"[%\u066a] ?({_FIGURE})|(?<![\d.\u066b])({_FIGURE}) ?[%\u066a]")
_DECIMAL = re.compile(r"(?<![\d.\u066b])(\d+)[.\u066b]([0\u06f0]*)(\d*)(?![.\u066b]?\d)")
_DOTTED = re.compile(r"(?<=\d)[.\u066b](?=\d)")  # in version numbers, such as 1.2.3
_DIGIT_BY_DIGIT = re.compile(rf"(?<!\d)[0\u06f0]\d+|\d{{{MAX_DIGITS + 1},}}")


def spell_persian(text: str) -> str:
    """Return the text with one spelling of the linking heh, and with non-joiners between letters only.

    PERSIAN_LETTERS maps single letters.
    """
    return _STRAY_NON_JOINER.sub("", _LINK.sub(_HEH + _HAMZA_ABOVE, text))


def expand_persian(text: str) -> str:
    """Return the text with numbers, decimals, percentages and times of day in words.

    A number with a leading zero, such as a telephone number, is read digit by digit.
    """
    if not any(map(str.isdecimal, text)):
        return text
    text = _TIME.sub(_time, _THOUSANDS.sub("", text))
    text = _PERCENTAGE.sub(lambda match: set_apart(f"{match[1] or match[2]} {_PERCENT}", match), text)
    text = _DOTTED.sub(f" {_DOT} ", _DECIMAL.sub(_decimal, text))
    text = _DIGIT_BY_DIGIT.sub(lambda match: set_apart(" ".join(match[0]), match), text)
    return expand_numbers(text, "fa")


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    if hour > 24 or minute > 59:
        return match[0]
    return f"{hour} {_AND} {minute} {_MINUTES}" if minute else str(hour)


def _decimal(match: re.Match[str]) -> str:
    if not match[2] and not match[3]:
        return match[0]
    return set_apart(" ".join((match[1], _POINT, *match[2], match[3])).strip(), match)

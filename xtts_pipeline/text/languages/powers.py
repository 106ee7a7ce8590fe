"""Write powers and square units so that the languages' rules read them."""

import re
from collections.abc import Callable

from xtts_pipeline.text.numbers import set_apart

_TYPED_UNIT = re.compile(r"(?<=\d)( ?)(?:(km|cm|mm|m)([23])|(m/s)(2))(?![\w.,]\d|\w)")
RAISED = {"2": "\u00b2", "3": "\u00b3"}
# One raised 2 or 3 is a square or a cube, with words of its own.
_POWER = re.compile(r"(?<=\d)(⁻?[⁰¹²³⁴-⁹]{2,}|⁻[⁰¹²³⁴-⁹]|[⁴-⁹](?!\w))")
_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_LOW_DIGITS = re.compile("[₀-₉]{1,15}")
_LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def write_powers(text: str, power: str, minus: str) -> str:
    """Return the text with `m2` and `km3` after a number as `m²` and `km³`, and with exponents in figures.

    `power` is said between a number and its exponent, and `minus` before a negative one.
    """

    def in_figures(match: re.Match[str]) -> str:
        exponent = match[1].translate(_PLAIN).replace("\u207b", f"{minus} ")
        return set_apart(f"{power} {exponent}", match)

    text = _TYPED_UNIT.sub(lambda match: f"{match[1]}{match[2] or match[4]}{RAISED[match[3] or match[5]]}", text)
    return _POWER.sub(in_figures, text)


def read_low_digits(text: str, spell: Callable[[int], str]) -> str:
    """Return the text with the low digits of formulas such as `CO₂` in words: CO2 500 would be read as 2,500."""
    return _LOW_DIGITS.sub(lambda match: set_apart(spell(int(match[0].translate(_LOW))), match), text)

"""Write powers, square units and low digits so that the languages' rules read them."""

import re

from xtts_pipeline.text.numbers import set_apart

_TYPED_UNIT = re.compile(r"(?<=\d)( ?)(?:(km|cm|mm|m)([23])|(m/s)(2))(?![\w.,]\d|\w)")
_RAISED = {"2": "\u00b2", "3": "\u00b3"}
# One raised 2 or 3 is a square or a cube, with words of its own.
_POWER = re.compile(r"(?<=\d)(⁻?[⁰¹²³⁴-⁹]{2,}|⁻[⁰¹²³⁴-⁹]|[⁴-⁹](?!\w))")
_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_LOW = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


def write_powers(text: str, power: str, minus: str) -> str:
    """Return the text with `m2` and `km3` after a number as `m²` and `km³`, and with exponents and `CO₂` in figures.

    `power` is said between a number and its exponent, and `minus` before a negative one.
    """

    def in_figures(match: re.Match[str]) -> str:
        exponent = match[1].translate(_PLAIN).replace("\u207b", f"{minus} ")
        return set_apart(f"{power} {exponent}", match)

    text = _TYPED_UNIT.sub(lambda match: f"{match[1]}{match[2] or match[4]}{_RAISED[match[3] or match[5]]}", text)
    return _POWER.sub(in_figures, text).translate(_LOW)

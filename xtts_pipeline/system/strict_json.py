"""How the JSON that this package writes is checked when it is read again: exact types, no other keys, no NaN."""

from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]


def first_problem(error: ValidationError) -> str:
    """Return the first problem: where, unless it is the whole, found, expected."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
    found = first["input"].decode(errors="replace") if isinstance(first["input"], bytes) else str(first["input"])
    return f"{where}found {found[:80]!r}: {first['msg'][0].lower()}{first['msg'][1:]}"

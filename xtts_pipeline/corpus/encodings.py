"""Decode the beginning of a table, and name the encoding of one that is not UTF-8.

A legacy encoding is never guessed silently: nothing in the bytes tells cp1252 from cp1250.
"""

import codecs
import re
from pathlib import Path
from typing import NamedTuple

from xtts_pipeline.errors import LayoutError
from xtts_pipeline.system.terminal import UNSAFE_CHARACTERS

HEAD_BYTES = 1 << 20
# So many lines of letters must be no UTF-8, and none with other letters than ASCII may be: fewer are bad rows.
LEAST_FOREIGN_LINES = 8
_WIDE = ("utf16", "utf32")
_BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
# What bytes.decode takes them for; an incremental decoder raises an error of its own.
_WITHOUT_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}
_EXCEL_LINE = re.compile("sep=(.)", re.IGNORECASE)
_BY_LANGUAGE = {
    "cp1250": "cs hr hu pl ro sk sl",
    "cp1251": "be bg kk ky mk mn ru sr tg tt uk",
    "cp1253": "el",
    "cp1254": "az tr",
    "cp1255": "he yi",
    "cp1256": "ar fa ps ur",
    "cp1257": "et lt lv",
    "cp1258": "vi",
    "cp874": "th",
    "gb18030": "zh",
    "cp932": "ja",
    "cp949": "ko",
}


def is_text_encoding(name: str) -> bool:
    """Return whether Python knows a text encoding of this name."""
    try:
        "".encode(name)
    except (LookupError, ValueError):
        return False
    return True


def wide_encoding(start: bytes, given: str = "") -> str:
    """Return the encoding of a file whose newline is more than one byte, by its first bytes or as given, or ``."""
    if given:
        return given if codecs.lookup(given).name.replace("-", "").startswith(_WIDE) else ""
    return "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else ""


def decode_head(raw: bytes, given: str = "", errors: str = "strict") -> str:
    """Return the text of a file's first bytes; a character that is cut off at the end is left out.

    Raises UnicodeDecodeError if the file has another encoding and `errors` is strict.
    """
    encoding = given or wide_encoding(raw) or "utf-8"
    if not raw.startswith(_BYTE_ORDER_MARKS):
        encoding = _WITHOUT_MARK.get(codecs.lookup(encoding).name, encoding)
    return codecs.getincrementaldecoder(encoding)(errors).decode(raw).removeprefix("\ufeff")


class FirstLine(NamedTuple):
    """The first line with content, without its end; its number; the delimiter that a line `sep=;` before it names."""

    text: str = ""
    number: int = 1
    delimiter: str = ""


def first_line(raw: bytes, given: str = "") -> FirstLine:
    """Return the first line of a file's first bytes. Raises UnicodeDecodeError if it has another encoding."""
    is_wide, delimiter = bool(wide_encoding(raw, given)), ""
    lines = decode_head(raw, given).split("\n") if is_wide else (decode_head(line, given) for line in raw.split(b"\n"))
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r")
        if match := _EXCEL_LINE.fullmatch(text.strip(" ")):
            delimiter = match[1]
        elif text.strip():
            return FirstLine(text, number, delimiter)
    return FirstLine()


def decode_text(raw: bytes, given: str = "") -> str:
    """Return the text of a whole file. Raises UnicodeDecodeError if it has another encoding."""
    return raw.decode(given or wide_encoding(raw) or "utf-8").removeprefix("\ufeff")


def require_encoding(path: Path, given: str, language: str) -> None:
    """Raise LayoutError that names an encoding if the lines of a table are not UTF-8; a few such lines are bad rows."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return  # the reader of the rows says why
    if given or head.isascii() or wide_encoding(head):
        return
    try:
        decode_head(head)
    except UnicodeDecodeError:
        lines = [(number, line) for number, line in enumerate(head.split(b"\n"), 1) if not line.isascii()]
        encoding = likely_encoding(head, language)
        if len(lines) < LEAST_FOREIGN_LINES or not all(_is_foreign(line, encoding) for _, line in lines):
            return
        number, line = lines[0]
        found = f"{len(lines)} lines are not UTF-8, the first is line {number}"
        shown = line.decode(encoding, "replace").strip()[:60]
        raise LayoutError(
            f"{path}: {found}", f"add --encoding {encoding} if line {number} is: {shown}; or save the table as UTF-8"
        ) from None


def likely_encoding(raw: bytes, language: str) -> str:
    """Return the legacy encoding that text of the language, or else with so many letters beyond ASCII, often has."""
    code = language.partition("-")[0]
    default = "cp1251" if sum(byte > 0x7F for byte in raw) * 2 > len(raw) else "cp1252"
    return next((encoding for encoding, codes in _BY_LANGUAGE.items() if code in codes.split()), default)


def _is_foreign(line: bytes, encoding: str) -> bool:
    """Return whether a line is no UTF-8, but words in the encoding."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        text = line.decode(encoding, "replace").strip()
        is_text = not UNSAFE_CHARACTERS.search(text) and "\ufffd" not in text
        return is_text and 2 * sum(character.isalpha() or character == " " for character in text) > len(text)
    return False

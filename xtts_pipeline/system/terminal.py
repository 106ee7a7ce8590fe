"""Lines for people: durations as they write them, lines that fit the terminal, and names that cannot forge one."""

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import IO

DEFAULT_COLUMNS = 80
MAX_SHOWN = 80
# Controls, line and paragraph separators, direction marks and surrogates.
UNSAFE_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A term and the spaces behind it: where the explanation starts, its next line starts too.
_TERM = re.compile(r" *\S+(?: \S+)*  +")
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def duration_text(seconds: float, decimals: int = 0) -> str:
    """Return seconds as people write them: `12 s`, `3 min 20 s`, `10 h 13 min`, `2 d 4 h`.

    decimals: digits behind the point, under a minute.
    """
    if round(seconds, decimals) >= 60:
        for (unit, size), (smaller, smaller_size) in pairwise(_UNITS):
            # Rounded before it is split: 119.7 s are 2 min, not 1 min 60 s.
            whole, rest = divmod(round(seconds / smaller_size), size // smaller_size)
            if whole:
                return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"
    return f"{seconds:.{decimals}f} s"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural takes an s: `1 clip`, `2 clips`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shell_word(text: str | Path) -> str:
    """Return a text as a word of a command that a message names; letters of any alphabet need no quotes."""
    word = str(text)
    return word if re.fullmatch(r"[\w@%+=:,./-]+", word) else shlex.quote(word)


def columns_of(stream: IO[str] | None) -> int | None:
    """Return the width of the terminal of a stream; None if it is no terminal, or closed."""
    if stream is None or not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except OSError:
        return None


def fold(text: str, columns: int | None) -> str:
    """Return the text with lines broken between words where they are longer than the terminal; a log keeps them."""
    return text if columns is None else "\n".join(_fold_line(line, columns) for line in text.split("\n"))


def _fold_line(line: str, columns: int) -> str:
    # The columns of a Markdown table would be lost.
    if len(line) <= columns or line.startswith("|"):
        return line
    term = _TERM.match(line)
    indent = " " * (term.end() if term and term.end() <= columns // 2 else 2)
    wrapped = textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped)


def escape(text: str) -> str:
    r"""Return text as one line, each unsafe character as \uXXXX, so that escaped JSON is the same JSON."""
    return UNSAFE_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def join_lines(lines: Iterable[str]) -> str:
    """Return the lines of a report, each escaped: a line break within a name begins no new line."""
    return "\n".join(map(escape, lines))


def has_surrogate(text: str) -> bool:
    """Return whether the text holds a lone surrogate: Python maps bytes of an argument that are not UTF-8 to these."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def echo_line(line: str) -> None:
    """Print a line on stderr, escaped, and folded at the terminal's width."""
    sys.stderr.write(f"{fold(escape(line), columns_of(sys.stderr))}\n")


def printable(text: str) -> str:
    """Return text from a file as one short line without control characters, for a message or a JSON line."""
    shown = without_unsafe(text.strip()[: MAX_SHOWN + 1])
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 3]}..."


def without_unsafe(text: str) -> str:
    """Return text with a mark in place of each unsafe character."""
    return UNSAFE_CHARACTERS.sub("\ufffd", text)

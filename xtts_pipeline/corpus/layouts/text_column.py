"""Tell by the content of a table's columns which of them is the text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.tables import NUMBER
from xtts_pipeline.errors import LayoutError
from xtts_pipeline.system.terminal import printable

MAX_COLUMN_NAME = 40


def is_no_text(before: Sequence[str], last: Sequence[str]) -> bool:
    """Return whether the last column has lengths, or labels such as speakers, which repeat where the texts do not."""
    if all(NUMBER.fullmatch(field) and field for field in last):
        return True
    return all(last) and 2 * len(set(last)) <= len(last) and 2 * len(set(before)) > len(before)


def text_column(table: Path, columns: Mapping[str, Sequence[str]]) -> str | None:
    """Return which of the columns is the text, or None. Raises LayoutError if several are, and hold different texts."""
    columns = {name: values for name, values in columns.items() if not all(map(NUMBER.fullmatch, values))}
    # Labels, such as speakers, repeat.
    texts = {name: values for name, values in columns.items() if 2 * len(set(values)) > len(values)} or columns
    if not texts:
        return None
    first, last = next(iter(texts)), next(reversed(texts))
    beginning = "".join(texts[first])
    # Behind the text stands its romanisation, which is no text to speak, or its normalised form.
    if "".join(texts[last]).isascii() and sum(map(str.isascii, beginning)) * 2 < len(beginning):
        return first
    if all(_is_normalised(texts[first], values) for values in texts.values()):
        return last
    shown = "; ".join(f"{printable(name)}: {printable(values[0][:MAX_COLUMN_NAME])}" for name, values in texts.items())
    found = f"{table}: {len(texts)} columns look like text: {shown}"
    longest = max(texts, key=lambda name: sum(map(len, texts[name])))
    said = ReadOptions(columns={"text": printable(longest)}).to_words()
    raise LayoutError(found, f"add {said}, or another; texts with the delimiter need quotes")


def _is_normalised(texts: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether half of the texts or more have the same letters, whatever their case and punctuation."""
    same = sum(_letters(text) == _letters(other) for text, other in zip(texts, others, strict=True))
    return 2 * same >= len(texts)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))

"""Tables of sentences: each line is followed by an indented line with its words."""


def read_table(table: str) -> list[tuple[str, str]]:
    """Return the pairs of what is written and what is said."""
    lines = table.strip().splitlines()
    return [(written, spoken.strip()) for written, spoken in zip(lines[::2], lines[1::2], strict=True)]

"""What the tests of languages share: tables of sentences, and what holds for any text."""

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import TextError
from xtts_pipeline.text.normalize import normalize

TEXT = TextConfig()


def read_table(table: str) -> list[tuple[str, str]]:
    """Return the pairs of what is written and what is said: each line is followed by an indented one with its words."""
    lines = table.strip().splitlines()
    return [(written, spoken.strip()) for written, spoken in zip(lines[::2], lines[1::2], strict=True)]


def assert_no_figure_is_left(text: str, language: str, config: TextConfig = TEXT) -> None:
    """Assert that a text, if it can be read, has no figure after that, and that reading it twice changes no more."""
    try:
        once = normalize(text, config, language)
    except TextError:
        return
    assert not any(map(str.isdecimal, once))
    assert normalize(once, config, language) == once

"""How a corpus is read: what the user says, or what was found. Empty values are found from the files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from xtts_pipeline.system.terminal import shell_word


@dataclass(frozen=True)
class ReadOptions:
    """The options of every command that reads a corpus, and the record of a reading in the manifest.

    `columns` maps roles (columns.ROLES) to column names in lower case, or to positions in a table without a header.
    """

    layout: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict)
    audio_dir: str = ""
    delimiter: str = ""
    encoding: str = ""

    @property
    def is_guided(self) -> bool:
        """Whether anything but the layout is said."""
        return self != ReadOptions(self.layout)

    def to_words(self) -> str:
        """Return the options as on a command line, without the layout."""
        words = []
        if self.columns:
            columns = ",".join(f"{role}={column}" for role, column in self.columns.items())
            words.append(f"--columns {shell_word(columns)}")
        if self.audio_dir:
            words.append(f"--audio-dir {shell_word(self.audio_dir)}")
        if self.delimiter:
            words.append(f"--delimiter {shown_delimiter(self.delimiter)}")
        if self.encoding:
            words.append(f"--encoding {self.encoding}")
        return " ".join(words)

    def with_layout(self, layout: str) -> "ReadOptions":
        """Return the same options for another layout."""
        return replace(self, layout=layout)


AUTO = ReadOptions()


def shown_delimiter(delimiter: str) -> str:
    """Return a delimiter as a word of a shell, in quotes always."""
    word = delimiter.replace("\t", r"\t").replace("'", """'"'"'""")
    return f"'{word}'"

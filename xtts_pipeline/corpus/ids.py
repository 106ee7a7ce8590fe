"""Read a list of ids, such as that of `--exclude`."""

from pathlib import Path

from xtts_pipeline.errors import CorpusError
from xtts_pipeline.system.regular_files import read_regular_file

MAX_LIST_BYTES = 1 << 30


def read_ids(path: Path) -> frozenset[str]:
    """Return the ids in a text file, one a line; blank lines and comments, # and a space or nothing, are skipped.

    An id may begin with #. Raises CorpusError if it cannot be read.
    """
    try:
        lines = read_regular_file(path, MAX_LIST_BYTES).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "it is not UTF-8"
        raise CorpusError(f"{path}: cannot be read ({found}); expected a text file with one id a line") from None
    ids = (line.strip() for line in lines)
    return frozenset(id for id in ids if id and id.split()[0] != "#")

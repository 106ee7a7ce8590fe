"""What can be wrong with a cache, and where."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from xtts_pipeline.errors import CacheError

REPAIR = "run xtts verify-cache --repair --data DIR"


class Kind(StrEnum):
    """What sort of problem it is; the fixed vocabulary of `xtts verify-cache`."""

    MANIFEST = "manifest"  # missing, damaged, or not true of the files it describes
    MISSING = "missing"  # a file that the manifest lists is not there
    EXTRA = "extra"  # a file that the manifest does not list
    NOT_A_FILE = "not_a_file"  # a link, pipe, device or folder where a file belongs; it is not opened
    UNREADABLE = "unreadable"  # the system refuses to read it
    SIZE = "size"  # not as many bytes as the manifest says
    CHECKSUM = "checksum"  # as many bytes, but not the ones the manifest says
    RECORD = "record"  # a record is damaged, or not the one that utterances.jsonl says
    UTTERANCE = "utterance"  # a line of utterances.jsonl is malformed or contradicts the manifest
    REJECTED = "rejected"  # the same of rejected.jsonl
    RECEIPT = "receipt"  # a shard's receipt is damaged or belongs to no shard
    SOURCE = "source"  # recomputed from the corpus, the record is another one


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `where` is the file in the cache, with a line or record where that is known."""

    kind: Kind
    where: str
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return the problem as `xtts verify-cache --json` lists it."""
        return {"kind": str(self.kind), "where": self.where, "detail": self.detail}


def refuse(folder: Path, problems: Sequence[Problem]) -> None:
    """Raise CacheError that names the first of a cache's problems and how many more there are, if there are any."""
    if problems:
        first, more = problems[0], f" and {len(problems) - 1} more problems" if len(problems) > 1 else ""
        raise CacheError(f"{folder / first.where}: {first.detail}{more}; run xtts verify-cache --cache {folder}")

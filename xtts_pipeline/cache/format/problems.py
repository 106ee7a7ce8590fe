"""Kinds of problems of a cache, and where one was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.terminal import counted, shell_word

REPAIR = "run xtts verify-cache --cache CACHE --repair --data DIR"


class Kind(StrEnum):
    """The fixed vocabulary of `xtts verify-cache`."""

    MANIFEST = "manifest"  # missing, damaged, or in contradiction to the files
    MISSING = "missing"  # a listed file does not exist
    EXTRA = "extra"  # a file that the manifest does not list
    NOT_A_FILE = "not_a_file"  # a link, pipe, device or folder in a file's place; not opened
    UNREADABLE = "unreadable"  # the system cannot read the file
    SIZE = "size"  # another size than the manifest says
    CHECKSUM = "checksum"  # the right size, but other bytes
    RECORD = "record"  # a record is damaged or contradicts utterances.jsonl
    UTTERANCE = "utterance"  # a line of utterances.jsonl is malformed or contradicts the manifest
    REJECTED = "rejected"  # the same of rejected.jsonl
    RECEIPT = "receipt"  # a shard's receipt is damaged or belongs to no shard
    SOURCE = "source"  # the record differs from one recomputed from the corpus


@dataclass(frozen=True)
class Problem:
    """One problem. `where` is the file in the cache, with its line or record if known."""

    kind: Kind
    where: str
    detail: str


def verify_command(cache: Path) -> str:
    """Return the command that finds what is wrong with a cache."""
    return f"xtts verify-cache --cache {shell_word(cache)}"


def refuse(folder: Path, problems: Sequence[Problem]) -> None:
    """Raise CacheError with the first problem and the number of others, if there are any."""
    if problems:
        first, more = problems[0], f" and {counted(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
        raise CacheError(f"{folder / first.where}: {first.detail}{more}; run {verify_command(folder)}")


def damaged_file(folder: Path, name: str) -> CacheError:
    """Return the error for a file of a cache that is not the one in its manifest."""
    return CacheError(f"{folder / name}: found other bytes than the manifest says; run {verify_command(folder)}")

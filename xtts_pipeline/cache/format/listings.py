"""The lines of utterances.jsonl and rejected.jsonl: typed, checked as they are read.

cache/verify/listings.py compares the lines with the shards and the manifest.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from xtts_pipeline.cache.format.manifest import (
    REJECTED_NAME,
    UTTERANCES_NAME,
    Checksum,
    Name,
)
from xtts_pipeline.cache.format.problems import verify_command
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.regular_files import open_regular_file
from xtts_pipeline.system.sealed_json import canonical_json
from xtts_pipeline.system.strict_json import STRICT, Natural, first_problem

_strict = dataclass(frozen=True, slots=True, config=STRICT)
Entry = TypeVar("Entry")

MAX_LISTING_BYTES = 64 << 30
_EXPONENT = re.compile(rb":-?[0-9.]+e")


def _inside_the_corpus(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError("source.path: found a path that leaves the corpus")
    return path


# The fields of an entry stand in the order of their names, as in its line: Listing compares what pydantic writes.


@_strict
class SourceEntry:
    """The sound file of a record; `path` is relative to the corpus."""

    bytes: Natural
    checksum: Checksum
    path: Annotated[Name, AfterValidator(_inside_the_corpus)]


@_strict
class UtteranceEntry:
    """One kept utterance. `text` is the tokenized text; `frames` and `tokens` are the record's lengths."""

    frames: Annotated[int, Field(ge=1)]
    id: Name
    language: str
    position: Natural
    raw_text: str
    seconds: Annotated[float, Field(ge=0)]
    shard: str
    source: SourceEntry
    speaker: str
    split: Literal["train", "val", "test"]
    text: Name
    tokens: Annotated[int, Field(ge=1)]


class Listing(Generic[Entry]):
    """Reads lines of one kind."""

    def __init__(self, entry: type[Entry]) -> None:
        self._adapter = TypeAdapter(entry)

    def parse_line(self, line: bytes) -> Entry:
        """Return the entry of one line.

        Raises ValueError, saying what is wrong, unless it is the canonical line of an entry.
        """
        try:
            entry = self._adapter.validate_json(line)
            # The quick way for most lines. Python and pydantic write the exponent of a float differently.
            if self._adapter.dump_json(entry) + b"\n" == line and not _EXPONENT.search(line):
                return entry
        except ValidationError:
            pass
        try:
            content = json.loads(line)
            is_canonical = f"{canonical_json(content)}\n".encode() == line
        except (ValueError, RecursionError):
            raise ValueError("found no valid JSON line") from None
        if not is_canonical:
            raise ValueError("found JSON that is not in its canonical form")
        try:
            return self._adapter.validate_json(line)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None

    def to_json(self, entry: Entry) -> dict[str, Any]:
        """Return the object of an entry's line."""
        content: dict[str, Any] = self._adapter.dump_python(entry, mode="json")
        return content

    def read(self, path: Path, most_bytes: int = MAX_LISTING_BYTES) -> Iterator[tuple[int, Entry | ValueError]]:
        """Yield each line's number, from 1, and its entry or the error in it.

        Raises OSError if the file cannot be read, is not regular or exceeds `most_bytes`.
        """
        with open_regular_file(path, most_bytes) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, self.parse_line(line)
                except ValueError as error:
                    yield number, error


UTTERANCES = Listing(UtteranceEntry)
REJECTED = Listing(Rejection)


def read_utterances(cache: Path, most_bytes: int = MAX_LISTING_BYTES) -> Iterator[UtteranceEntry]:
    """Yield every kept utterance, in the order of the lines of utterances.jsonl; the first yielded is line 1.

    Raises CacheError with file and line if a line is malformed, or if the file cannot be read or exceeds `most_bytes`.
    """
    return _read_sound(UTTERANCES, cache / UTTERANCES_NAME, most_bytes)


def read_rejected(cache: Path) -> Iterator[Rejection]:
    """Yield every rejected row, in the order of the lines of rejected.jsonl; raise as `read_utterances` does."""
    return _read_sound(REJECTED, cache / REJECTED_NAME)


def _read_sound(listing: Listing[Entry], path: Path, most_bytes: int = MAX_LISTING_BYTES) -> Iterator[Entry]:
    try:
        for number, entry in listing.read(path, most_bytes):
            if isinstance(entry, ValueError):
                raise CacheError(f"{path}:{number}: {entry}; run {verify_command(path.parent)}")
            yield entry
    except OSError as error:
        raise CacheError(f"{path}: cannot be read ({error.strerror}); run {verify_command(path.parent)}") from None

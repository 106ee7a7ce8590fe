"""Compare utterances.jsonl and rejected.jsonl with the manifest: every line, every sum, every shard."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from xtts_pipeline.cache.format.listings import REJECTED, UTTERANCES, UtteranceEntry
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    MEASURES,
    REJECTED_NAME,
    UTTERANCES_NAME,
    FileEntry,
    Manifest,
    bucket_specs,
    file_checksum,
    summarize,
)
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.schema import RecordSpec, bucket_of
from xtts_pipeline.cache.format.shards import digest_of, parse_shard_file, shard_of
from xtts_pipeline.corpus.utterance import Rejection

_parse_shard_file = lru_cache(maxsize=4)(parse_shard_file)  # the lines of a shard are adjacent


@dataclass
class ListingCheck:
    """Problems and entries of a listing, by shard; `is_whole` if the lines have the manifest's checksum."""

    problems: list[Problem] = field(default_factory=list)
    by_shard: Mapping[str, list[UtteranceEntry]] = field(default_factory=dict)
    is_whole: bool = False


@dataclass
class RejectedCheck:
    """Problems of rejected.jsonl, and (id, reason, detail) of its rows; `is_whole` as in ListingCheck."""

    problems: list[Problem] = field(default_factory=list)
    rows: set[tuple[str, str, str]] = field(default_factory=set)
    is_whole: bool = False


def check_checksum(folder: Path, name: str, expected: str) -> Iterator[Problem]:
    """Yield a problem unless the file has this checksum."""
    try:
        found = file_checksum(folder / name)
    except OSError as error:
        yield Problem(Kind.UNREADABLE, name, f"cannot be read ({error.strerror})")
        return
    if found != expected:
        yield Problem(Kind.CHECKSUM, name, f"found {found}, expected {expected}")


def check_utterances(folder: Path, manifest: Manifest) -> ListingCheck:
    """Read utterances.jsonl and report every contradiction within it or with the manifest."""
    check = ListingCheck(list(check_checksum(folder, UTTERANCES_NAME, manifest.files[UTTERANCES_NAME].checksum)))
    entries: list[UtteranceEntry] = []
    by_shard: dict[str, list[UtteranceEntry]] = defaultdict(list)
    lines: dict[str, int] = {}
    specs = bucket_specs(manifest)
    is_whole = not check.problems
    try:
        for number, entry in UTTERANCES.read(folder / UTTERANCES_NAME, manifest.files[UTTERANCES_NAME].bytes):
            if isinstance(entry, ValueError):
                is_whole = False
                details = [str(entry)]
            else:
                details = list(_contradictions(entry, manifest, specs))
                if entry.id in lines:
                    details.append(f"id {entry.id!r} is that of line {lines[entry.id]} too")
                lines[entry.id] = number
                entries.append(entry)
                by_shard[entry.shard].append(entry)
            check.problems += [Problem(Kind.UTTERANCE, f"{UTTERANCES_NAME}:{number}", detail) for detail in details]
    except OSError:
        return check  # reported with the checksum
    check.by_shard, check.is_whole = by_shard, is_whole
    if is_whole:
        check.problems += _order_problems(entries, by_shard, manifest)
        check.problems += _sum_problems(entries, manifest)
    return check


def check_rejected(folder: Path, manifest: Manifest) -> RejectedCheck:
    """Read rejected.jsonl and report every contradiction with the manifest."""
    expected: FileEntry = manifest.files[REJECTED_NAME]
    check = RejectedCheck(list(check_checksum(folder, REJECTED_NAME, expected.checksum)))
    is_whole = not check.problems
    reasons: Counter[str] = Counter()
    try:
        for number, entry in REJECTED.read(folder / REJECTED_NAME, expected.bytes):
            if isinstance(entry, Rejection):
                reasons[entry.reason] += 1
                check.rows.add((entry.id, entry.reason, entry.detail))
            else:
                is_whole = False
                check.problems.append(Problem(Kind.REJECTED, f"{REJECTED_NAME}:{number}", str(entry)))
    except OSError:
        return check  # reported with the checksum
    check.is_whole = is_whole
    if reasons != Counter(manifest.rejected_by_reason):
        expected_reasons = dict(sorted(manifest.rejected_by_reason.items()))
        detail = f"found {dict(sorted(reasons.items()))} rows by reason, the manifest says {expected_reasons}"
        check.problems.append(Problem(Kind.REJECTED, REJECTED_NAME, detail))
    return check


def _contradictions(entry: UtteranceEntry, manifest: Manifest, specs: Sequence[RecordSpec]) -> Iterator[str]:
    """Yield the contradictions between an entry and the manifest."""
    limits = manifest.limits
    if entry.tokens > limits.max_text_length:
        yield f"{entry.tokens} tokens are over limits.max_text_length={limits.max_text_length}"
    if entry.frames > limits.max_mel_frames:
        yield f"{entry.frames} frames are over limits.max_mel_frames={limits.max_mel_frames}"
    if entry.speaker not in manifest.speakers:
        yield f"speaker {entry.speaker!r} is not among the manifest's {len(manifest.speakers)} speakers"
    if entry.language not in manifest.languages:
        yield f"language {entry.language!r} is not among the manifest's {len(manifest.languages)} languages"
    shard, bucket = _parse_shard_file(entry.shard) or (None, None)
    if shard is None or shard.split != entry.split or (bucket is None) != (len(specs) == 1):
        yield f"{entry.shard!r} is no shard of the {entry.split} split"
        return
    number = shard_of(digest_of(manifest.cache.seed, entry.id), shard.count)
    if number != shard.number:
        yield f"id {entry.id!r} is in shard {shard.number} of {shard.count}, its digest says {number}"
    expected = bucket_of(specs, entry.tokens, entry.frames)
    if bucket is not None and expected is not None and bucket != expected:
        yield f"{entry.tokens} tokens and {entry.frames} frames belong in bucket {expected}, found in bucket {bucket}"


def _order_problems(
    entries: list[UtteranceEntry], by_shard: Mapping[str, list[UtteranceEntry]], manifest: Manifest
) -> Iterator[Problem]:
    """Yield the first misplaced line: lines are ordered by shard, then digest, with positions from 0."""
    # By text, shard 100000 would come before shard 99999.
    number_of = {shard.name: number for number, shard in enumerate(manifest.shards)}
    expected = [
        (shard, position, entry.id)
        for shard in sorted(by_shard, key=lambda name: (number_of.get(name, len(number_of)), name))
        for position, entry in enumerate(
            sorted(by_shard[shard], key=lambda entry: digest_of(manifest.cache.seed, entry.id))
        )
    ]
    found = [(entry.shard, entry.position, entry.id) for entry in entries]
    for number, (have, want) in enumerate(zip(found, expected, strict=True), 1):
        if have != want:
            place = "{2!r} at {0} position {1}"
            detail = f"found {place.format(*have)}, expected {place.format(*want)}"
            yield Problem(Kind.UTTERANCE, f"{UTTERANCES_NAME}:{number}", detail)
            return


def _sum_problems(entries: list[UtteranceEntry], manifest: Manifest) -> Iterator[Problem]:
    """Yield the manifest's sums that the lines do not confirm."""
    records = Counter(entry.shard for entry in entries)
    for shard in manifest.shards:
        if records[shard.name] != shard.records:
            detail = f"found {records[shard.name]} lines of {shard.name}, the manifest says {shard.records} records"
            yield Problem(Kind.UTTERANCE, UTTERANCES_NAME, detail)
    for name in sorted(set(records) - {shard.name for shard in manifest.shards}):
        detail = f"found {records[name]} lines of {name}, the manifest lists no such shard"
        yield Problem(Kind.UTTERANCE, UTTERANCES_NAME, detail)
    for measure in MEASURES if entries else ():
        found, expected = summarize([getattr(entry, measure) for entry in entries]), manifest.statistics.get(measure)
        if found != expected:
            detail = f"statistics.{measure}: found {expected}, the lines of {UTTERANCES_NAME} give {found}"
            yield Problem(Kind.MANIFEST, MANIFEST_NAME, detail)

"""Publish a cache: write utterances.jsonl, rejected.jsonl and the manifest from all receipts.

Receipts are read one at a time, so memory does not grow with the corpus's metadata.
"""

import shutil
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import xxhash

from xtts_pipeline.cache.build.folder import invalidate
from xtts_pipeline.cache.build.plan import CorpusIndex, reading_order
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.receipts import RECEIPTS_FOLDER, ClipReceipt, load_receipt
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    MEASURES,
    REJECTED_NAME,
    UTTERANCES_NAME,
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    bucket_specs,
    buckets_of,
    fingerprint,
    is_file_of,
    manifest_bytes,
    record_spec,
    summarize,
)
from xtts_pipeline.cache.format.schema import FORMAT_VERSION, SPLITS
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import canonical_json


@dataclass
class BuildTotals:
    """Sums over all receipts."""

    shards: list[ShardEntry] = field(default_factory=list)
    waves: list[FileEntry] = field(default_factory=list)
    rejections: list[tuple[int, Rejection]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    frames: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("q"))
    characters: "array[int]" = field(default_factory=lambda: array("q"))
    speakers: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)
    texts: dict[str, "array[int]"] = field(default_factory=lambda: {split: array("q") for split in SPLITS})

    @property
    def known_validation_texts(self) -> int:
        """The number of validation clips whose text a training clip has too."""
        trained = set(self.texts["train"])
        return sum(text in trained for text in self.texts["val"])

    def add(self, clip: ClipReceipt, split: str) -> None:
        """Count a kept clip."""
        self.ids.append(clip.id)
        self.texts[split].append(hash(clip.text))
        self.speakers.append(clip.speaker)
        self.languages.append(clip.language)
        self.seconds.append(clip.seconds)
        self.frames.append(clip.frames)
        self.tokens.append(clip.tokens)
        self.characters.append(len(clip.text))


def publish_cache(
    folder: Path, work_folder: Path, index: CorpusIndex, layout: dict[ShardName, list[PlannedRow]], config: Config
) -> tuple[Manifest, BuildTotals]:
    """Write all files that are not shards, the manifest last; unchanged files are not touched."""
    totals = BuildTotals(rejections=list(index.rejections))
    with (
        tempfile.TemporaryFile(dir=work_folder) as utterances,
        tempfile.TemporaryFile(dir=work_folder) as rejected,
    ):
        utterance_entry = write_listing(utterances, _utterance_lines(folder, layout, config, totals))
        totals.rejections.sort(key=reading_order)
        rejections = [rejection for _, rejection in totals.rejections]
        rejected_entry = write_listing(rejected, (rejection.to_json() for rejection in rejections))
        lengths = {measure: getattr(totals, measure) for measure in MEASURES}
        files = {UTTERANCES_NAME: utterance_entry, REJECTED_NAME: rejected_entry}
        manifest = manifest_of(index, config, totals.shards, lengths, rejections, files, totals.waves)
        data = manifest_bytes(manifest)
        if not _has_content(folder / MANIFEST_NAME, data):
            invalidate(folder)
        for name, source, entry in (
            (UTTERANCES_NAME, utterances, utterance_entry),
            (REJECTED_NAME, rejected, rejected_entry),
        ):
            if not is_file_of(folder / name, entry):
                invalidate(folder)
                _copy(source, folder / name, work_folder)
    if not (folder / MANIFEST_NAME).exists():
        with atomic_write(folder / MANIFEST_NAME, work_folder) as file:
            file.write(data)
    return manifest, totals


def _utterance_lines(
    folder: Path, layout: dict[ShardName, list[PlannedRow]], config: Config, totals: BuildTotals
) -> Iterator[dict[str, object]]:
    """Yield the lines of utterances.jsonl and add up the totals."""
    specs = bucket_specs(config)
    for name, rows in layout.items():
        receipt = load_receipt(folder, name)
        if receipt is None:
            raise CacheError(
                f"{folder}: the receipt of {name} vanished during the run; leave the cache alone and run again"
            )
        for clip, row in zip(receipt.rows, rows, strict=True):
            if clip.reason is not None:
                totals.rejections.append((row.corpus, Rejection(row.id, row.where, clip.reason, clip.detail)))
        totals.waves += [FileEntry(file.bytes, file.shard_checksum) for file in receipt.waves]
        for bucket, file in enumerate(receipt.files):
            entry_bucket = bucket if receipt.buckets else None
            totals.shards.append(
                ShardEntry(file.shard, name.split, file.records, file.bytes, file.shard_checksum, entry_bucket)
            )
            clips = receipt.kept_rows(specs, bucket)
            if len(clips) != file.records:
                found = (
                    f"the receipt of {name} has {len(clips)} clips of {file.shard}, which has {file.records} records"
                )
                raise CacheError(f"{folder}: {found}; remove the folder {RECEIPTS_FOLDER} in it, and run again")
            for position, clip in enumerate(clips):
                totals.add(clip, name.split)
                yield _utterance_line(name.split, file.shard, position, clip)


def _utterance_line(split: str, shard: str, position: int, clip: ClipReceipt) -> dict[str, object]:
    source_bytes = clip.source.bytes if clip.source else 0
    return {
        "id": clip.id,
        "split": split,
        "shard": shard,
        "position": position,
        "text": clip.text,
        "raw_text": clip.raw_text,
        "speaker": clip.speaker,
        "language": clip.language,
        "seconds": clip.seconds,
        "frames": clip.frames,
        "tokens": clip.tokens,
        "source": {"path": clip.audio, "bytes": source_bytes, "checksum": clip.checksum},
    }


def manifest_of(
    index: CorpusIndex,
    config: Config,
    shards: Sequence[ShardEntry],
    lengths: Mapping[str, Sequence[float]],
    rejections: Sequence[Rejection],
    files: dict[str, FileEntry],
    waves: Sequence[FileEntry],
) -> Manifest:
    """Return the manifest of a cache of these shards and listings.

    `lengths` has each of MEASURES of every kept clip.
    """
    kept, rejected = len(lengths[MEASURES[0]]), len(rejections)
    return Manifest(
        format_version=FORMAT_VERSION,
        fingerprint=fingerprint(config, index.symbols),
        fields=record_spec(config).fields,
        audio=config.audio,
        text=config.text,
        limits=config.limits,
        cache=config.cache,
        symbols=index.symbols,
        speakers=index.speakers,
        languages=index.languages,
        layout=index.layout,
        readings=index.readings if any(reading.is_guided for reading in index.readings) else (),
        counts=Counts(kept + rejected, kept, rejected),
        rejected_by_reason=dict(Counter(rejection.reason.value for rejection in rejections)),
        shards=tuple(shards),
        statistics={measure: summarize(lengths[measure]) for measure in MEASURES} if kept else {},
        files=files,
        buckets=buckets_of(config),
        waves=tuple(waves),
        excluded=index.excluded,
    )


def write_listing(file: IO[bytes], lines: Iterable[Mapping[str, object]]) -> FileEntry:
    """Write the lines of utterances.jsonl or rejected.jsonl and return the file's size and checksum."""
    digest, size = xxhash.xxh3_128(), 0
    for line in lines:
        data = f"{canonical_json(line)}\n".encode()
        file.write(data)
        digest.update(data)
        size += len(data)
    return FileEntry(size, digest.hexdigest())


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return read_regular_file(path, len(data)) == data
    except OSError:
        return False


def _copy(source: IO[bytes], path: Path, work_folder: Path) -> None:
    source.seek(0)
    with atomic_write(path, work_folder) as file:
        shutil.copyfileobj(source, file)

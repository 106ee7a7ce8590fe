"""Make a cache of the records of others: a part of one, or several as one.

Records are copied, never computed again; only their padding changes where the caches have other buckets. A part is the
cache that `preprocess --exclude` would make of the same rows in the buckets of the whole.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.cache.build.folder import check_free_space
from xtts_pipeline.cache.build.plan import CorpusIndex
from xtts_pipeline.cache.build.publish import manifest_of, write_listing
from xtts_pipeline.cache.build.shapes import auto_buckets
from xtts_pipeline.cache.format.example import decode_example, decode_values, encode_example, encode_values
from xtts_pipeline.cache.format.listings import UTTERANCES, UtteranceEntry, read_rejected, read_utterances
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    MEASURES,
    REJECTED_NAME,
    UTTERANCES_NAME,
    FileEntry,
    Manifest,
    ShardEntry,
    bucket_specs,
    cache_settings,
    fingerprint,
    is_file_of,
    manifest_bytes,
)
from xtts_pipeline.cache.format.problems import damaged_file, verify_command
from xtts_pipeline.cache.format.schema import RecordSpec, bucket_of, padded_wave, wave_fields, without_padding
from xtts_pipeline.cache.format.shards import (
    WAVE_PREFIX,
    ShardName,
    ShardPlan,
    default_shard_count,
    digest_of,
    split_of,
)
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_record, record_starts
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import CacheConfig, Config, TextConfig, show_value
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import CacheError, Reason, output_errors
from xtts_pipeline.system.atomic_files import atomic_folder
from xtts_pipeline.system.storage import real_path
from xtts_pipeline.text.symbols import build_symbols
from xtts_pipeline.text.tokens import Tokenizer

_OTHER_PLACE = "choose another DST"


@dataclass(frozen=True)
class SourceCache:
    """A cache to take records from."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True)
class _Member:
    """An utterance of a source; `entry` has its place there, `split` is that in the new cache."""

    source: SourceCache
    entry: UtteranceEntry
    split: str
    digest: bytes

    @property
    def spec(self) -> RecordSpec:
        """The static shape of its records in the source."""
        return self.source.manifest.spec_of_shard[self.entry.shard]


def compose_cache(
    sources: Sequence[SourceCache],
    target: Path,
    taken: Collection[str] | None,
    progress: Callable[[int], object],
) -> Manifest:
    """Write the utterances of the ids `taken`, all of them if it is None, to a new folder: it appears whole or not.

    The others of the sources become rejections with the reason `excluded`. `progress` receives the clips done. Raises
    CacheError if the sources have other settings or an id in common, if one is damaged, or if nothing is kept;
    OutputError if the target cannot be written.
    """
    first = sources[0].manifest
    _check_settings(sources)
    entries = [(source, entry) for source in sources for entry in read_utterances(source.folder)]
    chosen = [(source, entry) for source, entry in entries if taken is None or entry.id in taken]
    _check_ids(chosen)
    members = _with_splits(sources, chosen, first.cache)
    rejections = _rejections(sources, [entry for _, entry in entries], {entry.id for _, entry in chosen})
    config = load_config((), (), cache_settings(first))
    if any(source.manifest.buckets != first.buckets for source in sources):
        # Those of `auto`, which depend on the corpus.
        tokens, frames = [entry.tokens for _, entry in chosen], [entry.frames for _, entry in chosen]
        config = config.with_settings("data", buckets=auto_buckets(config.limits, tokens, frames))
    index = _index_of(sources, [entry for _, entry in chosen], rejections, config.text)
    needed_bytes = sum(entry.bytes for source in sources for entry in source.manifest.all_files.values())
    target = real_path(target)
    with output_errors(target, _OTHER_PLACE, names_file=True), atomic_folder(target) as folder:
        check_free_space(target.parent, needed_bytes * len(chosen) // len(entries), _OTHER_PLACE)
        writer = _Writer(folder, config, index, progress)
        lines = [
            line for name, rows in _lay_out(members, first.cache).items() for line in writer.write_shard(name, rows)
        ]
        _check_files(sources, chosen)
        files = {}
        for name, content in ((UTTERANCES_NAME, lines), (REJECTED_NAME, [row.to_json() for row in rejections])):
            with (folder / name).open("wb") as file:
                files[name] = write_listing(file, content)
        lengths = {measure: [line[measure] for line in lines] for measure in MEASURES}
        manifest = manifest_of(index, config, writer.shards, lengths, rejections, files, writer.waves)
        if first.mels_from is not None:
            known_as = fingerprint(manifest, manifest.symbols, first.mels_from)
            manifest = replace(manifest, mels_from=first.mels_from, fingerprint=known_as)
        (folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    return manifest


def _check_files(sources: Sequence[SourceCache], chosen: Sequence[tuple[SourceCache, UtteranceEntry]]) -> None:
    """Raise CacheError unless the files with the chosen utterances have the bytes that their manifests say.

    Padded records of another build are as large, and whole.
    """
    for source in sources:
        shards = {entry.shard for owner, entry in chosen if owner is source}
        needed = {UTTERANCES_NAME, REJECTED_NAME, *shards, *(f"{WAVE_PREFIX}{shard}" for shard in shards)}
        for name, entry in source.manifest.all_files.items():
            if name in needed and not is_file_of(source.folder / name, entry):
                raise damaged_file(source.folder, name)


def _check_settings(sources: Sequence[SourceCache]) -> None:
    """Raise CacheError that names the settings, but for buckets, in which a source differs from the first one."""
    wanted, origin = cache_settings(sources[0].manifest), sources[0].manifest.mels_from
    for source in sources[1:]:
        settings = cache_settings(source.manifest)
        differences = [
            f"{section}.{key} is {show_value(value)} there, {show_value(wanted[section][key])} in the first"
            for section, values in settings.items()
            for key, value in values.items()
            if value != wanted[section][key] and section != "data"
        ]
        if source.manifest.mels_from != origin:
            differences.append("its mels are not of the same origin")
        if differences:
            found = f"{source.folder}: has other settings than {sources[0].folder}"
            raise CacheError(f"{found}: {'; '.join(differences)}; make both by xtts preprocess with the same settings")


def _check_ids(chosen: Sequence[tuple[SourceCache, UtteranceEntry]]) -> None:
    if not chosen:
        raise CacheError("no utterance is left; choose more of them")
    places: dict[str, Path] = {}
    for source, entry in chosen:
        if entry.id in places:
            found = f"{source.folder}: id {entry.id} is in {places[entry.id]} too"
            raise CacheError(f"{found}; leave it out of one by xtts cache subset, or give the corpora other ids")
        places[entry.id] = source.folder


def _with_splits(
    sources: Sequence[SourceCache], chosen: Sequence[tuple[SourceCache, UtteranceEntry]], config: CacheConfig
) -> list[_Member]:
    """Return the members with their splits, one of them in `val` as `preprocess` would."""
    members = [_Member(source, row, row.split, digest_of(config.seed, row.id)) for source, row in chosen]
    candidates = [member for member in members if member.split == "train"]
    # Without a validation clip, the corpus itself put all of a source's clips into other splits.
    is_wanted = config.validation_share and any(
        source.manifest.split_records("val") or source.manifest.counts.kept < 2 for source in sources
    )
    if is_wanted and len(members) > 1 and candidates and all(row.split != "val" for row in members):
        moved = min(candidates, key=lambda member: member.digest)
        members[members.index(moved)] = replace(moved, split="val")
    return members


def _lay_out(members: Sequence[_Member], config: CacheConfig) -> dict[ShardName, list[_Member]]:
    rows = Counter(member.split for member in members)
    others = (member for member in members if member.split in ("train", "val"))
    first = min(others, key=lambda member: member.digest, default=None)
    if first and (rows["val"], first.split, split_of(first.digest, config)) == (1, "val", "train"):
        # Moved to `val`, here or by `preprocess`, which counts shards before.
        rows["train"] += 1
    plan = ShardPlan({split: default_shard_count(count, config.records_per_shard) for split, count in rows.items()})
    shards: dict[ShardName, list[_Member]] = {name: [] for name in plan.names()}
    for member in sorted(members, key=lambda member: member.digest):
        shards[plan.shard(member.split, member.digest)].append(member)
    return shards


def _rejections(
    sources: Sequence[SourceCache], entries: Iterable[UtteranceEntry], kept: Collection[str]
) -> list[Rejection]:
    """Return the rejected rows of the sources and what is left out here; no excluded row with an id that is kept.

    Parts of one cache have rows in common. A row is returned as many times as it occurs in the source that has it most.
    """
    rows: list[Rejection] = []
    returned: Counter[tuple[str, ...]] = Counter()

    def add(candidates: Iterable[Rejection]) -> None:
        seen: Counter[tuple[str, ...]] = Counter()
        for row in candidates:
            is_excluded = row.reason == Reason.EXCLUDED
            key = (row.id, row.reason) if is_excluded else (row.id, row.reason, row.where)
            seen[key] += 1
            if seen[key] > returned[key] and not (is_excluded and row.id in kept):
                returned[key] += 1
                rows.append(row)

    for source in sources:
        add(read_rejected(source.folder))
    detail = "left out by xtts cache subset"
    left_out = (entry for entry in entries if entry.id not in kept)
    add(Rejection(entry.id, entry.source.path, Reason.EXCLUDED, detail) for entry in left_out)
    return rows


def _index_of(
    sources: Sequence[SourceCache], kept: Sequence[UtteranceEntry], rejections: Sequence[Rejection], text: TextConfig
) -> CorpusIndex:
    return CorpusIndex(
        readings=tuple(itertools.chain(*(source.manifest.all_readings for source in sources))),
        roots=(),
        rows=(),
        rejections=(),
        symbols=build_symbols([entry.text for entry in kept], text),
        speakers=tuple(sorted({entry.speaker for entry in kept})),
        languages=tuple(sorted({entry.language for entry in kept})),
        excluded=tuple(sorted(row.id for row in rejections if row.reason is Reason.EXCLUDED)),
    )


class _Writer:
    """Writes the shards of a new cache, and keeps what the manifest says of them."""

    def __init__(self, folder: Path, config: Config, index: CorpusIndex, progress: Callable[[int], object]) -> None:
        self._folder, self._config, self._index, self._progress = folder, config, index, progress
        self._specs = bucket_specs(config)
        self._tokenizer = Tokenizer(index.symbols, config.text.blank)
        self._starts = cache(record_starts)
        self.shards: list[ShardEntry] = []
        self.waves: list[FileEntry] = []

    def write_shard(self, name: ShardName, members: Sequence[_Member]) -> Iterator[dict[str, Any]]:
        """Write all files of a shard and yield the lines of its utterances, in order."""
        for bucket, (file, wave) in enumerate(
            zip(name.files(len(self._specs)), name.wave_files(len(self._specs)), strict=True)
        ):
            rows = [row for row in members if bucket_of(self._specs, row.entry.tokens, row.entry.frames) == bucket]
            written = self._write_file(file, (self._record_of(row, bucket) for row in rows))
            entry_bucket = bucket if len(self._specs) > 1 else None
            self.shards.append(ShardEntry(file, name.split, len(rows), written.bytes, written.checksum, entry_bucket))
            if self._config.cache.store_waves:
                self.waves.append(self._write_file(wave, (self._wave_of(row, bucket) for row in rows)))
            for position, row in enumerate(rows):
                yield UTTERANCES.to_json(row.entry) | {"split": name.split, "shard": file, "position": position}
            self._progress(len(rows))

    def _write_file(self, name: str, payloads: Iterable[bytes]) -> FileEntry:
        with (self._folder / name).open("xb") as file:
            writer = RecordWriter(file)
            for payload in payloads:
                writer.write(payload)
        return FileEntry(writer.bytes, writer.checksum)

    def _record_of(self, row: _Member, bucket: int) -> bytes:
        """Return the record with the ids that symbols, speaker and language have in the new cache."""
        spec, entry = self._specs[bucket], row.entry
        example = without_padding(decode_example(self._read(row), row.spec))
        if example.id != entry.id:
            where = f"{row.source.folder / entry.shard} record {entry.position}"
            raise CacheError(
                f"{where}: found {example.id}, expected {entry.id}; run {verify_command(row.source.folder)}"
            )
        return encode_example(
            replace(
                example,
                tokens=self._tokenizer.encode(entry.text),
                speaker=self._index.speakers.index(entry.speaker),
                language=self._index.languages.index(entry.language),
            ),
            spec,
        )

    def _wave_of(self, row: _Member, bucket: int) -> bytes:
        """Return the record of the wave, with the padding of the new bucket."""
        record, hop_samples = self._read(row, WAVE_PREFIX), self._config.audio.hop_samples
        if row.spec == self._specs[bucket]:
            return record
        wave = np.asarray(decode_values(record, wave_fields(row.spec, hop_samples))["wave"])
        fields = wave_fields(self._specs[bucket], hop_samples)
        # Behind the clip's frames are zeros.
        return encode_values(padded_wave(row.entry.id, wave[: row.entry.frames * hop_samples], fields), fields)

    def _read(self, row: _Member, prefix: str = "") -> bytes:
        path = row.source.folder / f"{prefix}{row.entry.shard}"
        starts = self._starts(path)
        if row.entry.position >= len(starts):
            raise CacheError(f"{path}: has no record {row.entry.position}; run {verify_command(path.parent)}")
        return read_record(path, starts[row.entry.position])

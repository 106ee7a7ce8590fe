"""The manifest: the description of a cache, validated as a whole before anything in it is used."""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import xxhash
from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from xtts_pipeline.cache.format.schema import FORMAT_VERSION, RecordField, RecordSpec
from xtts_pipeline.cache.format.shards import WAVE_PREFIX, ShardName, parse_shard_file, parse_shard_name
from xtts_pipeline.cache.format.tfrecord import FRAME_BYTES
from xtts_pipeline.config.languages import same_language
from xtts_pipeline.config.schema import (
    AudioConfig,
    Bucket,
    CacheConfig,
    Config,
    DataConfig,
    LimitsConfig,
    TextConfig,
    check_bucket_order,
    check_last_bucket,
    show_value,
)
from xtts_pipeline.corpus.encodings import is_text_encoding
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, OtherCacheVersionError, Reason
from xtts_pipeline.system.regular_files import open_regular_file, read_regular_file
from xtts_pipeline.system.sealed_json import canonical_json, seal_json, unseal_json
from xtts_pipeline.system.strict_json import STRICT, Natural, first_problem

MANIFEST_NAME = "manifest.json"
UTTERANCES_NAME = "utterances.jsonl"
REJECTED_NAME = "rejected.jsonl"
MEASURES = ("seconds", "frames", "tokens")
RECORD_SECTIONS = ("audio", "text", "limits")  # the settings that change a record
CACHE_SECTIONS = (*RECORD_SECTIONS, "cache")  # and those that lay records out
# Six million ids that are left out take 128 MiB.
MAX_MANIFEST_BYTES = 128 << 20
# Limit of `data.cache_records: auto`: not much more than the shuffle buffer takes otherwise.
SMALL_BYTES = 512 << 20

Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, config=STRICT)
class Counts:
    """Every row that was read is either kept or rejected."""

    read: Natural
    kept: Natural
    rejected: Natural


@dataclass(frozen=True, config=STRICT)
class ShardEntry:
    """One shard file. Without buckets, `bucket` is None and the file has no such key."""

    name: str
    split: str
    records: Natural
    bytes: Natural
    checksum: Checksum
    bucket: Natural | None = None


@dataclass(frozen=True, config=STRICT)
class FileEntry:
    """One of the other files that the manifest protects."""

    bytes: Natural
    checksum: Checksum


@dataclass(frozen=True, config=STRICT)
class Statistics:
    """The distribution of a length over the kept utterances."""

    min: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, config=STRICT)
class MelOrigin:
    """The acoustic model that predicted the mels of a cache, and the `synthesis` settings that drew them."""

    weights_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    step: Natural
    flow_steps: Natural
    guidance: float


@dataclass(frozen=True, config=STRICT)
class Manifest:
    """Everything a reader must know about a cache. Constructing one checks every type, range and sum.

    The file has no key for what is empty or None from `buckets` on, and without stored waves no `cache.store_waves`.
    `waves` has the wave file of each of `shards`. `mels_from` is None if the mels are those of recordings. `readings`
    has how each corpus was read where the layouts do not say it; `excluded`, the ids that the user left out.
    """

    format_version: int
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    fields: tuple[RecordField, ...]
    audio: AudioConfig
    text: TextConfig
    limits: LimitsConfig
    cache: CacheConfig
    symbols: tuple[Name, ...]
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    layout: Name
    counts: Counts
    rejected_by_reason: Mapping[str, Annotated[int, Field(ge=1)]]
    shards: tuple[ShardEntry, ...]
    statistics: Mapping[str, Statistics]
    files: Mapping[str, FileEntry]
    buckets: tuple[Bucket, ...] = ()
    waves: tuple[FileEntry, ...] = ()
    mels_from: MelOrigin | None = None
    readings: tuple[ReadOptions, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def all_readings(self) -> tuple[ReadOptions, ...]:
        """How each corpus was read."""
        return self.readings or tuple(map(ReadOptions, self.layout.split("+")))

    @property
    def first_reading(self) -> ReadOptions:
        """How the first corpus was read."""
        return self.all_readings[0]

    @property
    def has_several_corpora(self) -> bool:
        """Whether it was made with --val-data or by `xtts cache merge`: the layout names each corpus."""
        return "+" in self.layout

    @property
    def all_files(self) -> dict[str, FileEntry]:
        """Every file of the cache except the manifest, by name."""
        shards = {shard.name: FileEntry(shard.bytes, shard.checksum) for shard in self.shards}
        return {**shards, **self.wave_files, **self.files}

    @property
    def wave_files(self) -> dict[str, FileEntry]:
        """The wave files by name, in the order of the shards."""
        names = (WAVE_PREFIX + shard.name for shard in self.shards)
        return dict(zip(names, self.waves, strict=bool(self.waves)))

    @property
    def bucket_count(self) -> int:
        """Number of static shapes of the records."""
        return len(self.buckets) or 1

    def split_records(self, split: str, bucket: int | None = None) -> int:
        """Return the number of records of a split, or of one of its buckets."""
        return sum(shard.records for shard in self.shards_of(split, bucket))

    def split_bytes(self, split: str) -> int:
        """Return the total size of a split's shard files."""
        return sum(shard.bytes for shard in self.shards_of(split))

    def is_kept_in_memory(self, data: DataConfig) -> bool:
        """Return whether the training records are read once and kept in memory."""
        return self.split_bytes("train") <= SMALL_BYTES if data.cache_records == "auto" else data.cache_records

    def shard_names(self, split: str, bucket: int | None = None) -> list[str]:
        """Return the file names of a split's shards, or of one of its buckets, in order."""
        return [shard.name for shard in self.shards_of(split, bucket)]

    @cached_property
    def spec_of_shard(self) -> dict[str, RecordSpec]:
        """The static shape of the records of each shard file."""
        specs = bucket_specs(self)
        return {shard.name: specs[shard.bucket or 0] for shard in self.shards}

    def shards_of(self, split: str, bucket: int | None = None) -> list[ShardEntry]:
        """Return the shards of a split, or of one of its buckets, in order."""
        return [shard for shard in self.shards if shard.split == split and bucket in (None, shard.bucket or 0)]

    @model_validator(mode="after")
    def _consistent(self) -> "Manifest":
        self._check_names()
        self._check_readings()
        self._check_buckets()
        self._check_records()
        self._check_shards()
        self._check_sizes()
        counts = self.counts
        _expect("counts.read", counts.read, counts.kept + counts.rejected)
        _expect("counts.kept", counts.kept, sum(shard.records for shard in self.shards))
        _expect("counts.rejected", counts.rejected, sum(self.rejected_by_reason.values()))
        _expect("rejected_by_reason", sorted(set(self.rejected_by_reason) - set(Reason)), [])
        _expect("excluded", len(self.excluded), self.rejected_by_reason.get(Reason.EXCLUDED, 0))
        _expect("waves", len(self.waves), len(self.shards) if self.cache.store_waves else 0)
        self._check_listings()
        _expect("statistics", sorted(self.statistics), sorted(MEASURES) if counts.kept else [])
        for measure, spread in self.statistics.items():
            ordered = [0.0, spread.min, spread.p50, spread.p90, spread.p95, spread.p99, spread.max]
            if ordered != sorted(ordered) or not spread.min <= spread.mean <= spread.max:
                raise ValueError(f"statistics.{measure} is not in ascending order")
        return self

    def _check_readings(self) -> None:
        if self.readings:
            _expect("readings", len(self.readings), len(self.layout.split("+")))
        for reading in self.readings:
            if reading.encoding and not is_text_encoding(reading.encoding):
                raise ValueError(f"readings: {reading.encoding!r} is no text encoding")

    def _check_records(self) -> None:
        _expect("fields", self.fields, record_spec(self).fields)
        _expect("fingerprint", self.fingerprint, fingerprint(self, self.symbols, self.mels_from))

    def _check_buckets(self) -> None:
        """Apply the rules of `data.buckets`."""
        if len(self.buckets) == 1:
            raise ValueError("buckets: found 1, expected several, or none where there is one shape")
        if self.buckets:
            check_bucket_order(self.buckets)
            check_last_bucket(self.buckets, self.limits)

    def _check_names(self) -> None:
        for key in ("symbols", "speakers", "languages", "excluded"):
            if len(set(names := getattr(self, key))) != len(names):
                raise ValueError(f"{key} holds a name twice")

    def _check_shards(self) -> None:
        parsed = []
        for shard in self.shards:
            name, bucket = parse_shard_file(shard.name) or (None, None)
            if name is None:
                raise ValueError(f"shards: {shard.name!r} is not a shard's name")
            _expect(f"{shard.name}.split", shard.split, name.split)
            _expect(f"{shard.name}.bucket", shard.bucket, bucket)
            parsed.append(name)
        counts = {name.split: name.count for name in parsed}
        for split, listed in Counter(name.split for name in parsed).items():  # a name may claim any count
            _expect(f"shards of the {split} split", listed, counts[split] * self.bucket_count)
        expected = sorted(ShardName(split, number, count) for split, count in counts.items() for number in range(count))
        _expect(
            "shards",
            [shard.name for shard in self.shards],
            [file for name in expected for file in name.files(self.bucket_count)],
        )

    def _check_sizes(self) -> None:
        """Raise ValueError if a shard is too small for its records, whose number decides how much memory is taken."""
        arrays = [[field for field in spec.fields if field.is_array] for spec in bucket_specs(self)]
        array_bytes = [sum(field.array_bytes for field in fields) for fields in arrays]
        for shard in self.shards:
            least_bytes = shard.records * (FRAME_BYTES + array_bytes[shard.bucket or 0])
            if shard.bytes < least_bytes or (shard.records == 0) != (shard.bytes == 0):
                found = f"{shard.records} records in {shard.bytes} bytes"
                raise ValueError(f"{shard.name} has {found}, expected at least {least_bytes} bytes")

    def _check_listings(self) -> None:
        """Raise ValueError if a listing is too small for its lines, which are JSON objects."""
        _expect("files", sorted(self.files), [REJECTED_NAME, UTTERANCES_NAME])
        for name, lines in ((UTTERANCES_NAME, self.counts.kept), (REJECTED_NAME, self.counts.rejected)):
            if self.files[name].bytes < len("{}\n") * lines:
                raise ValueError(f"{name} has {lines} lines in {self.files[name].bytes} bytes")


def listed_shards(manifest: Manifest) -> list[ShardName]:
    """Return the shards whose files the manifest lists, in order."""
    return sorted({name for shard in manifest.shards if (name := parse_shard_name(shard.name))})


def record_spec(settings: Config | Manifest) -> RecordSpec:
    """Return the static shape of the largest records under these settings."""
    limits, audio = settings.limits, settings.audio
    return RecordSpec(limits.max_text_length, limits.max_mel_frames, audio.mel_bins, math.log(audio.floor))


def buckets_of(settings: Config | Manifest) -> tuple[Bucket, ...]:
    """Return the buckets of a cache, or those that a cache of this config lists: none if one shape holds every record.

    Raises ValueError if the config's buckets are still `auto`.
    """
    buckets = settings.buckets if isinstance(settings, Manifest) else settings.data.buckets
    if buckets == "auto":
        raise ValueError("data.buckets is auto, expected pairs")
    return buckets if buckets is not None and len(buckets) > 1 else ()


def bucket_specs(settings: Config | Manifest) -> tuple[RecordSpec, ...]:
    """Return the static shape of each bucket's records, the smallest first; one shape without buckets."""
    largest = record_spec(settings)
    shapes = (replace(largest, max_text_length=text, max_mel_frames=mel) for text, mel in buckets_of(settings))
    return tuple(shapes) or (largest,)


def fingerprint(settings: Config | Manifest, symbols: tuple[str, ...], mels_from: MelOrigin | None = None) -> str:
    """Return the SHA-256 hex digest of everything that changes a record."""
    content: dict[str, object] = {
        "format_version": FORMAT_VERSION,
        **{section: getattr(settings, section).model_dump(mode="json") for section in RECORD_SECTIONS},
        "symbols": symbols,
        "fields": [asdict(field) for field in record_spec(settings).fields],
    }
    if buckets := buckets_of(settings):
        content["buckets"] = buckets
    if mels_from is not None:
        content["mels_from"] = asdict(mels_from)
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def config_differences(manifest: Manifest, config: Config, sections: Sequence[str] = RECORD_SECTIONS) -> list[str]:
    """Return one line for each setting of the sections that differs from the cache's.

    Example: `audio.trim_db: the cache has null, the config 30.0`.
    """
    differences = []
    for section in sections:
        cached = getattr(manifest, section).model_dump(mode="json")
        wanted = getattr(config, section).model_dump(mode="json")
        differences += [
            f"{section}.{key}: the cache has {show_value(cached[key])}, the config {show_value(wanted[key])}"
            for key in cached
            if cached[key] != wanted[key] and not (key == "language" and same_language(cached[key], wanted[key]))
        ]
    if config.data.buckets != "auto" and manifest.buckets != buckets_of(config):  # auto accepts the cache's buckets
        had, wants = (show_value(buckets or None) for buckets in (manifest.buckets, buckets_of(config)))
        differences.append(f"data.buckets: the cache has {had}, the config {wants}")
    return differences


def cache_settings(manifest: Manifest) -> dict[str, dict[str, object]]:
    """Return the settings of a cache by section, as `load_config` takes them for a base."""
    settings = {section: getattr(manifest, section).model_dump(mode="json") for section in CACHE_SECTIONS}
    return {**settings, "data": {"buckets": [list(bucket) for bucket in manifest.buckets] or None}}


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the exact content of manifest.json. Raises CacheError for one that is too large to be read again."""
    content = _MANIFEST.dump_python(manifest, mode="json")
    if not manifest.buckets:  # the bytes of a cache of one shape never had these keys
        for shard in content["shards"]:
            del shard["bucket"]
    if not manifest.cache.store_waves:  # nor do those of a cache without waves
        del content["waves"], content["cache"]["store_waves"]
    for key in ("buckets", "mels_from", "readings", "excluded"):
        if not content[key]:
            del content[key]
    data = seal_json(content)
    if len(data) > MAX_MANIFEST_BYTES:
        found = f"found {len(data)} bytes, with {len(manifest.excluded)} ids that are left out"
        raise CacheError(f"{MANIFEST_NAME}: {found}, expected at most {MAX_MANIFEST_BYTES}; leave out fewer clips")
    return data


def load_manifest(folder: Path) -> Manifest:
    """Return a cache's manifest after checking every type, range, sum and its checksum; no other file is opened.

    Raises CacheError with what was found, what was expected and what to do.
    """
    path = folder / MANIFEST_NAME
    remedy = "run xtts preprocess to make the cache"
    if not folder.is_dir():
        raise CacheError(f"{folder}: no such folder, expected a cache; {remedy}")
    try:
        data = read_regular_file(path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        raise CacheError(f"{path}: no such file, so this is no finished cache; {remedy} or to finish it") from None
    except OSError as error:
        raise CacheError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    try:
        content = unseal_json(data)
    except ValueError as error:
        raise CacheError(f"{path}: found {error}; restore the file or {remedy} anew") from None
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        found = f"found format_version {version}, expected {FORMAT_VERSION}"
        raise OtherCacheVersionError(f"{path}: {found}; remove the cache, and run the command that made it again")
    try:
        manifest = _MANIFEST.validate_json(canonical_json(content))
    except ValidationError as error:
        raise CacheError(f"{path}: {first_problem(error)}; {remedy} anew") from None
    if manifest_bytes(manifest) != data:
        raise CacheError(
            f"{path}: found missing keys or numbers of another type, expected what preprocess writes; {remedy} anew"
        )
    return manifest


def find_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder, or None where `load_manifest` raises CacheError.

    Raises CacheError for another version of the format: whether such a cache may be replaced, it does not tell.
    """
    try:
        return load_manifest(folder)
    except OtherCacheVersionError:
        raise
    except CacheError:
        return None


_MANIFEST = TypeAdapter(Manifest)


def summarize(values: Sequence[float]) -> Statistics:
    """Return minimum, mean, percentiles and maximum of at least one value, in any order.

    Percentiles are nearest ranks: the smallest value that this percentage of values does not exceed. Equal values give
    equal bytes on every machine.
    """
    ordered = sorted(float(value) for value in values)
    # Rounding can move the mean of equal values past them by one bit.
    mean = min(max(math.fsum(ordered) / len(ordered), ordered[0]), ordered[-1])
    p50, p90, p95, p99 = (ordered[-(-percent * len(ordered) // 100) - 1] for percent in (50, 90, 95, 99))
    return Statistics(min=ordered[0], mean=mean, p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])


def file_checksum(path: Path) -> str:
    """Return the xxh3-128 hex digest of a file. Raises OSError if it is not regular or cannot be read."""
    with open_regular_file(path) as file:
        # Never mapped: a failing disk, or a file that is cut off meanwhile, would end the process by a signal.
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()  # type: ignore[arg-type]  # xxhash has hashlib's interface


def is_file_of(path: Path, entry: FileEntry) -> bool:
    """Return whether a file can be read and has the entry's size and checksum."""
    try:
        return path.stat().st_size == entry.bytes and file_checksum(path) == entry.checksum
    except OSError:
        return False


def _expect(where: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"{where}: found {found}, expected {expected}")

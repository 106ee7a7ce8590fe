"""Fixtures of more than one test folder."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest
import xxhash

from xtts_pipeline.cache.build.receipts import (
    ClipReceipt,
    FileReceipt,
    SourceStat,
    make_receipt,
    receipt_bytes,
    receipt_path,
)
from xtts_pipeline.cache.format.example import encode_example
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    REJECTED_NAME,
    UTTERANCES_NAME,
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    bucket_specs,
    buckets_of,
    file_checksum,
    fingerprint,
    load_manifest,
    manifest_bytes,
    record_spec,
    summarize,
)
from xtts_pipeline.cache.format.schema import Example, bucket_of
from xtts_pipeline.cache.format.shards import ShardName, digest_of, shard_of
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Bucket, Config, DataConfig
from xtts_pipeline.system.sealed_json import canonical_json
from xtts_pipeline.text.tokens import Tokenizer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SYMBOLS = tuple("abcdefgh")

# The tests' programs run for milliseconds, but LLVM takes half a minute to optimise them. Commands started by tests
# inherit this; CI's main job, on real speech, compiles with full optimisation.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
# One test process runs per core; OpenBLAS's threads wait in busy loops and would take the cores from other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell starts a command in the background with Ctrl-C ignored, and the commands that tests start would inherit that.
# Checked in each test process: xdist runs tests outside the one that was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: one slow example on a busy machine is not a failure.
hypothesis.settings.register_profile("shared", deadline=None)
hypothesis.settings.load_profile("shared")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Return a headless Chromium of the module: while it is open, no other event loop may run in this thread."""
    # Here: few tests open a browser, and the import takes half a second.
    from tests.browser import open_browser

    with open_browser() as opened:
        yield opened


@dataclass(frozen=True)
class FakeClip:
    """One clip of a made-up cache."""

    split: str
    text: str
    example: Example

    @property
    def seconds(self) -> float:
        return len(self.example.mel) * 0.1

    @property
    def digest(self) -> bytes:
        return digest_of(0, self.example.id)


def make_clip(id: str, split: str, config: Config, *, speaker: int = 0) -> FakeClip:
    """Return a clip whose tokens and frames depend on the id alone, so that any two clips differ."""
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big"))
    text = "".join(random.choice(SYMBOLS, random.integers(1, config.limits.max_text_length - 1)))
    frames = random.normal(-5, 1, (random.integers(2, config.limits.max_mel_frames + 1), config.audio.mel_bins))
    return FakeClip(split, text, Example(id, Tokenizer(SYMBOLS).encode(text), frames.astype(np.float32), speaker, 0))


def write_shards(
    folder: Path, utterances: list[FakeClip], shard_counts: Mapping[str, int], config: Config
) -> list[ShardEntry]:
    """Write the shards and utterances.jsonl as docs/cache-format.md describes."""
    buckets = buckets_of(config)
    specs = bucket_specs(config)
    entries: list[ShardEntry] = []
    lines: list[dict[str, Any]] = []
    names = sorted(ShardName(split, number, count) for split, count in shard_counts.items() for number in range(count))
    for name in names:
        members = [u for u in utterances if u.split == name.split and shard_of(u.digest, name.count) == name.number]
        members.sort(key=lambda member: member.digest)
        of_shard: dict[str, dict[str, Any]] = {member.example.id: {} for member in members}
        files = []
        for bucket, file_name in enumerate(name.files(len(specs))):
            in_bucket = [u for u in members if bucket_of(specs, len(u.example.tokens), len(u.example.mel)) == bucket]
            with (folder / file_name).open("wb") as file:
                writer = RecordWriter(file)
                for position, utterance in enumerate(in_bucket):
                    writer.write(encode_example(utterance.example, specs[bucket]))
                    of_shard[utterance.example.id] = utterance_line(utterance, file_name, position)
                    lines.append(of_shard[utterance.example.id])
            files.append(FileReceipt(file_name, writer.records, writer.bytes, 0, writer.checksum))
            entry_bucket = bucket if buckets else None
            entries.append(
                ShardEntry(file_name, name.split, writer.records, writer.bytes, writer.checksum, entry_bucket)
            )
        write_receipt(folder, name, files, list(of_shard.values()), config)
    (folder / "utterances.jsonl").write_text("".join(canonical_json(line) + "\n" for line in lines), encoding="utf-8")
    return entries


def write_receipt(
    folder: Path, name: ShardName, files: list[FileReceipt], lines: list[dict[str, Any]], config: Config
) -> None:
    """Write the receipt of a shard as preprocess does."""
    rows = [
        ClipReceipt(
            id=line["id"],
            corpus=0,
            audio=line["source"]["path"],
            raw_text=line["raw_text"],
            text=line["text"],
            speaker=line["speaker"],
            language=line["language"],
            speaker_id=("anna", "ben").index(line["speaker"]),
            language_id=0,
            source=SourceStat(line["source"]["bytes"], 0),
            checksum=line["source"]["checksum"],
            seconds=line["seconds"],
            frames=line["frames"],
            tokens=line["tokens"],
            reason=None,
            detail="",
        )
        for line in lines
    ]
    receipt = make_receipt(fingerprint(config, SYMBOLS), files, tuple(rows), buckets_of(config))
    receipt_path(folder, name).parent.mkdir(exist_ok=True)
    receipt_path(folder, name).write_bytes(receipt_bytes(receipt))


def utterance_line(utterance: FakeClip, shard: str, position: int) -> dict[str, Any]:
    example = utterance.example
    return {
        "id": example.id,
        "split": utterance.split,
        "shard": shard,
        "position": position,
        "text": utterance.text,
        "raw_text": utterance.text.upper(),
        "speaker": ("anna", "ben")[example.speaker],
        "language": "en",
        "seconds": utterance.seconds,
        "frames": len(example.mel),
        "tokens": len(example.tokens),
        "source": {
            "path": f"wavs/{example.id}.wav",
            "bytes": 44,
            "checksum": xxhash.xxh3_128_hexdigest(example.id.encode()),
        },
    }


@pytest.fixture(scope="session")
def cache_config() -> Config:
    """Settings with records of 3 kB, so that a cache is read quickly."""
    return load_config(overrides=["audio.mel_bins=4", "limits.max_text_length=16", "limits.max_mel_frames=24"])


@pytest.fixture(scope="session")
def write_cache(cache_config: Config) -> Callable[..., Manifest]:
    """Return a function that writes a valid cache of made-up features; `buckets` must end at (16, 24)."""

    def write(
        folder: Path,
        *,
        train: int = 29,
        val: int = 5,
        shards: int = 3,
        buckets: tuple[Bucket, ...] | None = None,
        base: Config = cache_config,
    ) -> Manifest:
        folder.mkdir(parents=True, exist_ok=True)
        config = base.model_copy(update={"data": DataConfig(buckets=buckets)})
        utterances = [
            make_clip(f"clip-{i:03d}", "train" if i < train else "val", base, speaker=i % 2) for i in range(train + val)
        ]
        counts = {
            split: count
            for split, count in (("train", shards), ("val", 1))
            if any(u.split == split for u in utterances)
        }
        entries = write_shards(folder, utterances, counts, config)
        rejected = [
            {
                "id": "lost",
                "where": "metadata.csv:7",
                "reason": "audio_missing",
                "detail": "wavs/lost.wav: no such file",
            }
        ]
        (folder / "rejected.jsonl").write_text(
            "".join(canonical_json(line) + "\n" for line in rejected), encoding="utf-8"
        )
        (folder / ".lock").touch()
        lengths = {
            "seconds": [u.seconds for u in utterances],
            "frames": [len(u.example.mel) for u in utterances],
            "tokens": [len(u.example.tokens) for u in utterances],
        }
        manifest = Manifest(
            format_version=2,
            fingerprint=fingerprint(config, SYMBOLS),
            fields=record_spec(base).fields,
            audio=base.audio,
            text=base.text,
            limits=base.limits,
            cache=base.cache,
            symbols=SYMBOLS,
            speakers=("anna", "ben"),
            languages=("en",),
            layout="ljspeech",
            counts=Counts(train + val + 1, train + val, 1),
            rejected_by_reason={"audio_missing": 1},
            shards=tuple(entries),
            statistics={measure: summarize(values) for measure, values in lengths.items()},
            files=file_entries(folder),
            buckets=buckets_of(config),
        )
        (folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
        return load_manifest(folder)

    return write


def file_entries(folder: Path) -> dict[str, FileEntry]:
    return {
        name: FileEntry((folder / name).stat().st_size, file_checksum(folder / name))
        for name in (UTTERANCES_NAME, REJECTED_NAME)
    }


@pytest.fixture
def reseal() -> Callable[[Path], None]:
    """Return a function that renews every checksum and size of a changed cache, as a skilled forger would."""

    def reseal_folder(folder: Path) -> None:
        manifest = load_manifest(folder)
        shards = []
        for shard in manifest.shards:
            path = folder / shard.name
            records = sum(1 for _ in read_records(path))
            shards.append(replace(shard, records=records, bytes=path.stat().st_size, checksum=file_checksum(path)))
        kept = sum(shard.records for shard in shards)
        counts = replace(manifest.counts, kept=kept, read=kept + manifest.counts.rejected)
        forged = replace(manifest, shards=tuple(shards), counts=counts, files=file_entries(folder))
        (folder / MANIFEST_NAME).write_bytes(manifest_bytes(forged))

    return reseal_folder


@pytest.fixture
def cache(tmp_path: Path, write_cache: Callable[..., Manifest]) -> Path:
    """A small sound cache: 29 training clips in 3 shards, 5 validation clips in one, 1 rejected row."""
    write_cache(tmp_path / "cache")
    return tmp_path / "cache"

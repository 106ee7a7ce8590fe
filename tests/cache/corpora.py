"""Small synthetic corpora, and builds for tests."""

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from xtts_pipeline.cache.build.build import BuildOptions, BuildResult, build_cache
from xtts_pipeline.cache.build.folder import locked_folder
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.build.pool import Pool
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.manifest import ShardEntry, load_manifest
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.corpus.read import read_corpus

SAMPLE_RATE = 8_000
CONFIG = [
    "audio.sample_rate=8000",
    "audio.max_hz=4000.0",
    "audio.fft_size=256",
    "audio.window_samples=256",
    "audio.hop_samples=128",
    "audio.mel_bins=8",
    "limits.max_text_length=40",
    "limits.max_mel_frames=80",
    "cache.validation_share=0.1",
    "cache.records_per_shard=8",
]
SETTINGS = [f"--set={setting}" for setting in CONFIG]


def make_config(*overrides: str) -> Config:
    """Return settings with records of 1.5 kB, so that builds are fast."""
    return load_config(overrides=[*CONFIG, *overrides])


def write_clip(root: Path, name: str, *, hz: float = 440.0, seconds: float = 0.4) -> Path:
    """Write a sine as a 16-bit WAV and return its path."""
    path = root / "wavs" / f"{name}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    soundfile.write(path, 0.5 * np.sin(2 * np.pi * hz * time), SAMPLE_RATE, "PCM_16")
    return path


def write_corpus(root: Path, count: int = 40) -> Path:
    """Write an LJSpeech-shaped corpus of `count` sines, each with its own pitch, length and text."""
    for number in range(count):
        write_clip(root, f"clip-{number:03d}", hz=200 + 10 * number, seconds=0.3 + 0.005 * number)
    write_metadata(root, count)
    return root


def write_metadata(root: Path, count: int, *, changed: dict[int, str] | None = None) -> None:
    """Write metadata.csv; `changed` are texts that differ from their default."""
    lines = [
        f"clip-{number:03d}|x|{(changed or {}).get(number, f'this is clip {number}')}\n" for number in range(count)
    ]
    (root / "metadata.csv").write_text("".join(lines), encoding="utf-8")


# One thread: all of the write path but the processes.
THREAD_POOL = Pool(lambda _tasks: ThreadPoolExecutor(1), 2)


def build(
    data: Path,
    cache: Path,
    config: Config | None = None,
    pool: Pool = THREAD_POOL,
    reading: ReadOptions = AUTO,
    excluded: Collection[str] = (),
    **options: object,
) -> BuildResult:
    """Build a cache, by default in this process."""
    config = config or make_config()
    with locked_folder(cache) as work_folder:
        index = index_corpora([read_corpus(data, reading)], config, excluded)
        return build_cache(cache, work_folder, index, config, BuildOptions(pool, 1, **options), lambda _rows: None)  # type: ignore[arg-type]


def cache_bytes(cache: Path) -> dict[str, bytes]:
    """Return every file of a cache except receipts and lock."""
    return {path.name: path.read_bytes() for path in cache.iterdir() if path.is_file() and path.name != ".lock"}


def modification_times(cache: Path) -> dict[str, int]:
    """Return the modification times of those files."""
    return {path.name: path.stat().st_mtime_ns for path in cache.iterdir() if path.is_file() and path.name != ".lock"}


def records_of(cache: Path) -> Iterator[tuple[ShardEntry, dict[str, Any]]]:
    """Yield the values of each record with its shard, in the order of the manifest."""
    manifest = load_manifest(cache)
    for shard in manifest.shards:
        for payload in read_records(cache / shard.name):
            yield shard, decode_example(payload, manifest.spec_of_shard[shard.name])


@contextmanager
def disk_full_after(records: int) -> Iterator[None]:
    """Let this many records be written, then fail for lack of space."""
    write, written = RecordWriter.write, []

    def write_until_full(self: RecordWriter, payload: bytes) -> None:
        written.append(payload)
        if len(written) > records:
            raise OSError(28, "No space left on device")
        write(self, payload)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "write", write_until_full)
        yield


def write_records(path: Path, payloads: Iterable[bytes]) -> RecordWriter:
    """Write records to a file in the place of those it has, and return the writer with their counts and checksum."""
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for payload in payloads:
            writer.write(payload)
    return writer

"""The worker process: one task writes one shard and its receipt.

Imports no TensorFlow and no librosa, so a worker starts fast and stays small. A heartbeat file names the clip in work,
so that the parent can blame it if the worker dies.
"""

import errno
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

import xxhash

from xtts_pipeline.audio.load import decode_wave
from xtts_pipeline.audio.mel import pcm_under_frames, wave_to_trimmed_mel
from xtts_pipeline.cache.build.planned_rows import PlannedRow, content_of
from xtts_pipeline.cache.build.receipts import (
    ClipReceipt,
    FileReceipt,
    SourceStat,
    make_receipt,
    receipt_bytes,
    receipt_path,
    source_stat,
)
from xtts_pipeline.cache.format.example import encode_example, encode_values
from xtts_pipeline.cache.format.manifest import bucket_specs, buckets_of, fingerprint
from xtts_pipeline.cache.format.schema import Example, bucket_of, padded_wave, wave_fields
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.cache.format.tfrecord import RecordWriter
from xtts_pipeline.config.schema import Config, LimitsConfig
from xtts_pipeline.errors import MACHINE_ERRORS, TOO_LONG_REMEDY, AudioError, CacheError, Reason, RowError
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.memory import keep_freed_memory
from xtts_pipeline.system.processes import end_with_parent
from xtts_pipeline.text.tokens import Tokenizer, check_text_length

CLIP_SECONDS = 60.0  # limit for a clip; a minute of speech takes 0.2 s
BEAT_PREFIX = "beat-"
STAGES = ("read", "decode", "mel", "encode", "write")
# 192 kHz, two channels, 64-bit: no clip within limits.max_seconds is larger. Larger files are rejected unread.
_MAX_BYTES_PER_SECOND = 192_000 * 2 * 8
_HEADER_ALLOWANCE_BYTES = 1 << 20

# The timer belongs to the process, so the threads of a Dask worker take turns.
_one_shard_at_a_time = threading.Lock()


@dataclass(frozen=True)
class ShardTask:
    """Everything a worker needs to write one shard. `condemned` clips are skipped and rejected with their reasons."""

    folder: Path
    work_folder: Path
    name: ShardName
    rows: tuple[PlannedRow, ...]
    roots: tuple[Path, ...]
    config: Config
    symbols: tuple[str, ...]
    clip_seconds: float = CLIP_SECONDS
    condemned: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardResult:
    """Result of a shard for the parent; its receipt holds the rest."""

    name: ShardName
    rows: int
    stage_seconds: Mapping[str, float]


class ClipOutOfMemoryError(CacheError):
    """A clip, named by its id, needs more memory than there is; it must be retried alone."""

    def __str__(self) -> str:
        return f"{self.args[0]}: the clip takes more memory than there is; free some, or leave it out by --exclude"


@contextmanager
def explained_write(folder: Path, name: str | None = None) -> Iterator[None]:
    """Turn a system error into a CacheError about the file that it names, else `name` in the folder, else `folder`."""
    try:
        yield
    except OSError as error:
        remedy = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "mend that"
        path = error.filename or (folder / name if name else folder)
        message = f"cannot be written ({error.strerror}); {remedy} and run again, finished shards are kept"
        raise CacheError(f"{path}: {message}") from None


def write_shard(task: ShardTask) -> ShardResult:
    """Write a shard's files, one for each bucket, then its receipt; each is atomic.

    Raises CacheError if the disk is full or the folder cannot be written, ClipOutOfMemoryError for a clip to be retried
    alone. A clip that hangs for `clip_seconds` ends the process.
    """
    # A full disk does not say which file it refuses.
    name = str(task.name) if buckets_of(task.config) else task.name.file()
    with _one_shard_at_a_time, explained_write(task.folder, name):
        maker = ExampleMaker(task.roots, task.config, task.symbols, task.condemned, task.clip_seconds)
        clock, buckets = maker.clock, len(maker.specs)
        names = task.name.files(buckets)
        if task.config.cache.store_waves:
            names += task.name.wave_files(buckets)
        paths = [task.folder / name for name in names]
        with Heartbeat(task.work_folder) as heartbeat, ExitStack() as stack:
            files = [stack.enter_context(atomic_write(path, task.work_folder)) for path in paths]
            writers = [RecordWriter(file) for file in files]
            clips = []
            for position, row in enumerate(task.rows):
                heartbeat.start_clip(task.name, position, task.clip_seconds)
                clip, payloads = maker.make(row)
                heartbeat.disarm()
                clips.append(clip)
                with clock.stage("write"):
                    for kind, payload in enumerate(payloads):
                        writers[kind * buckets + maker.bucket_of(clip)].write(payload)
            with clock.stage("write"):
                for file in files:
                    file.flush()
                    os.fsync(file.fileno())
        written = [
            FileReceipt(path.name, writer.records, writer.bytes, path.stat().st_mtime_ns, writer.checksum)
            for path, writer in zip(paths, writers, strict=True)
        ]
        receipt = make_receipt(
            fingerprint(task.config, task.symbols),
            written[:buckets],
            tuple(clips),
            buckets_of(task.config),
            written[buckets:],
        )
        with atomic_write(receipt_path(task.folder, task.name), task.work_folder) as file:
            file.write(receipt_bytes(receipt))
    return ShardResult(task.name, len(clips), clock.seconds)


def try_clip(task: ShardTask, position: int) -> None:
    """Make one clip's record and discard it; the exit code of the process is the answer."""
    start_worker(os.getppid())
    with Heartbeat(task.work_folder) as heartbeat:
        heartbeat.start_clip(task.name, position, task.clip_seconds)
        ExampleMaker(task.roots, task.config, task.symbols).make(task.rows[position])


def start_worker(parent: int) -> None:
    """Ignore Ctrl-C, which the parent handles, and end if the parent is killed."""
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Decoders print: libmpg123 a line for each damaged frame. Errors are reported in another way.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    end_with_parent(parent)


class StageClock:
    """Adds up the seconds of each stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block's time towards a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start


class Heartbeat:
    """A file that names the clip in work, and a timer that ends the process if the clip hangs.

    The timer uses a signal's default action, which neither Python code nor a decoder can delay.
    """

    def __init__(self, work_folder: Path) -> None:
        self._path = work_folder / f"{BEAT_PREFIX}{socket.gethostname()}-{os.getpid()}"

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        return self

    def start_clip(self, shard: ShardName, position: int, limit_seconds: float) -> None:
        """Record the clip at this position as the next one and give it `limit_seconds`."""
        os.pwrite(self._descriptor, f"{shard} {position:012d}\n".encode(), 0)
        signal.setitimer(signal.ITIMER_REAL, limit_seconds)

    def disarm(self) -> None:
        """Stop the timer."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def __exit__(self, *exception: object) -> None:
        self.disarm()
        os.close(self._descriptor)
        self._path.unlink(missing_ok=True)


class ExampleMaker:
    """Makes serialized records of rows, or rejections."""

    def __init__(
        self,
        roots: Sequence[Path],
        config: Config,
        symbols: tuple[str, ...],
        condemned: Mapping[str, Reason] = MappingProxyType({}),
        clip_seconds: float = CLIP_SECONDS,
    ) -> None:
        self._roots, self._config, self._condemned, self._clip_seconds = roots, config, condemned, clip_seconds
        self.clock = StageClock()
        self.specs = bucket_specs(config)
        self._tokenizer = Tokenizer(symbols, config.text.blank)

    def bucket_of(self, clip: ClipReceipt) -> int:
        """Return the bucket of a kept clip's record."""
        bucket = bucket_of(self.specs, clip.tokens, clip.frames)
        if bucket is None:
            raise ValueError(
                f"{clip.id}: {clip.tokens} tokens and {clip.frames} frames are over the limits, so it was not kept"
            )
        return bucket

    def make(self, row: PlannedRow) -> tuple[ClipReceipt, list[bytes]]:
        """Return the row's receipt and its records: that of the mel, that of the wave if stored; none if rejected."""
        config, clock = self._config, self.clock
        path = self._roots[row.corpus] / row.audio
        source: SourceStat | None = None
        checksum: str | None = None
        try:
            tokens = self._tokenizer.encode(row.text)
            check_text_length(len(tokens), config.limits, config.text)
            with clock.stage("read"):
                # Identity first: a file that changes while it is read then differs in the next run.
                source = source_stat(path)
                self._refuse_condemned(row)
                data = read_source(path, source, config.limits, row.audio)
                checksum = xxhash.xxh3_128_hexdigest(data)
            with clock.stage("decode"):
                wave = decode_wave(data, config.audio, config.limits, row.audio)
            with clock.stage("mel"):
                mel, start = wave_to_trimmed_mel(wave, config.audio)
            check_mel_length(len(mel), config.limits, row.audio)
            with clock.stage("encode"):
                seconds = round(len(wave) / config.audio.sample_rate, 6)
                clip = _receipt(row, source, checksum, seconds, len(mel), len(tokens))
                example = Example(row.id, tokens, mel, row.speaker_id, row.language_id)
                spec = self.specs[self.bucket_of(clip)]
                payloads = [encode_example(example, spec)]
                if config.cache.store_waves:
                    fields = wave_fields(spec, config.audio.hop_samples)
                    pcm = pcm_under_frames(wave, start, len(mel), config.audio)
                    payloads.append(encode_values(padded_wave(row.id, pcm, fields), fields))
                return clip, payloads
        except RowError as error:
            return _receipt(row, source, checksum, error=error), []
        except MemoryError:
            raise ClipOutOfMemoryError(row.id) from None

    def _refuse_condemned(self, row: PlannedRow) -> None:
        if reason := self._condemned.get(row.id):
            other_program = "look at the file with another program"
            found, remedy = {
                Reason.TIMEOUT: (f"took over {self._clip_seconds:g} s", other_program),
                Reason.CHANGED_WHILE_READ: ("changed while it was read", "run again when nothing writes it"),
            }.get(reason, ("the worker process died on it", other_program))
            raise AudioError(reason, f"{row.audio}: {found}, twice; {remedy}")


def check_mel_length(frames: int, limits: LimitsConfig, name: str) -> None:
    """Raise AudioError if a clip of this many frames exceeds the limit."""
    if frames > limits.max_mel_frames:
        limit = f"limits.max_mel_frames={limits.max_mel_frames}"
        raise AudioError(
            Reason.MEL_TOO_LONG,
            f"{name}: {frames} frames are over {limit}; {TOO_LONG_REMEDY}",
        )


def read_source(path: Path, source: SourceStat | None, limits: LimitsConfig, name: str) -> bytes:
    """Return a sound file's bytes.

    Raises AudioError if the file is too large for a clip, and as `check_source` does.
    """
    most = int(limits.max_seconds * _MAX_BYTES_PER_SECOND) + _HEADER_ALLOWANCE_BYTES
    if source is not None and source.bytes > most:
        limit = f"limits.max_seconds={limits.max_seconds:g}"
        raise AudioError(
            Reason.AUDIO_TOO_LONG, f"{name}: {source.bytes} bytes, more than any clip within {limit} takes ({most})"
        )
    check_source(path, source, name)
    with _explained_read(path, name):
        return path.read_bytes()


def check_source(path: Path, source: SourceStat | None, name: str) -> None:
    """Raise AudioError if a sound file is missing, unreadable or no regular file, CacheError if the machine fails."""
    if source is None:
        with _explained_read(path, name):
            path.stat()
        raise AudioError(Reason.AUDIO_UNREADABLE, f"{name}: not a regular file; expected a sound file")


@contextmanager
def _explained_read(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise AudioError(Reason.AUDIO_MISSING, f"{name}: no such file") from None
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            # A failing machine ends the run; it must not record a rejection.
            remedy = "mend that and run again, finished shards are kept"
            raise CacheError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
        raise AudioError(Reason.AUDIO_UNREADABLE, f"{name}: cannot be read ({error.strerror})") from None


def _receipt(
    row: PlannedRow,
    source: SourceStat | None,
    checksum: str | None,
    seconds: float = 0.0,
    frames: int = 0,
    tokens: int = 0,
    error: RowError | None = None,
) -> ClipReceipt:
    return ClipReceipt(
        **content_of(row),
        source=source,
        checksum=checksum,
        seconds=seconds,
        frames=frames,
        tokens=tokens,
        reason=None if error is None else error.reason,
        detail="" if error is None else error.detail,
    )

"""A run's numbers on disk: metrics.jsonl for programs, TensorBoard event files for people."""

import errno
import json
import math
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf


def _metadata(plugin: str, data_class: str, content: bytes = b"") -> tf.compat.v1.SummaryMetadata:
    """Return what the functions of tf.summary would attach; they need the tensorboard package, which only the viewer should."""
    plugin_data = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return tf.compat.v1.SummaryMetadata(plugin_data=plugin_data, data_class=data_class)


_SCALAR = _metadata("scalars", "DATA_CLASS_SCALAR")
# tensorboard.ImagePluginData of version 0 is an empty message.
_IMAGE = _metadata("images", "DATA_CLASS_BLOB_SEQUENCE")
# tensorboard.AudioPluginData of version 0: field 2, the encoding, is 11 (WAV).
_AUDIO = _metadata("audio", "DATA_CLASS_BLOB_SEQUENCE", b"\x10\x0b")
_PNG_SIZE = slice(16, 24)
METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME = "metrics.jsonl", "skipped.jsonl", "left_out.jsonl"


class LineFile:
    """A file of JSON lines that grows; `size` is its length in bytes, which is where a resumed run goes on."""

    def __init__(self, path: Path, keep_bytes: int | None = None) -> None:
        """Open the file to append; what lies beyond `keep_bytes` is cut off. None keeps all."""
        self._file = path.open("ab", buffering=0)
        self.size = self._file.tell()
        self.missing_bytes = max(0, (keep_bytes or 0) - self.size)
        if keep_bytes is not None:
            self.cut(keep_bytes)

    def cut(self, keep_bytes: int) -> None:
        """Cut off what lies beyond."""
        if keep_bytes < self.size:
            self._file.truncate(keep_bytes)
            self.size = keep_bytes

    def write(self, content: Mapping[str, Any]) -> None:
        """Append a line. Raises OSError if the disk refuses."""
        line = json.dumps(content, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        written = self._file.write(line)
        self.size += written
        if written != len(line):
            # Only the rest: a disk that is full says so now.
            self.size += self._file.write(line[written:])

    def sync(self) -> None:
        """Bring what was written to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


class MetricsWriter:
    """Appends one line a report to metrics.jsonl and the same numbers to TensorBoard; a context manager that flushes both."""

    def __init__(self, run: Path, keep_bytes: Mapping[str, int] | None = None) -> None:
        """Go on with the run's files; of each its first `keep_bytes` are kept, or all.

        lines are the reports, skipped the steps whose update was left out, left_out the clips that an epoch of several workers left out.
        """
        names = (METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME)
        keep = {} if keep_bytes is None else {**dict.fromkeys(names, 0), **keep_bytes}
        self.lines, self.skipped, self.left_out = (LineFile(run / name, keep.get(name)) for name in names)
        self._run = run
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self.lines, self.skipped, self.left_out):
            file.close()
        self._close_writers()

    @property
    def file_bytes(self) -> dict[str, int]:
        """How long the files of lines are now."""
        return {METRICS_NAME: self.lines.size, SKIPPED_NAME: self.skipped.size, LEFT_OUT_NAME: self.left_out.size}

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Forget the reports of later steps, here and in TensorBoard: they come again. What was skipped stays written."""
        self._close_writers()
        self.lines.cut(metrics_bytes)
        forget_after(self._run, step)

    def _close_writers(self) -> None:
        with _disk_errors(self._run / "tensorboard"):
            for writer in self._writers.values():
                writer.close()
        self._writers.clear()

    def sync(self) -> None:
        """Bring what was written to the disk; any thread may call it. Raises OSError if the disk refuses."""
        for file in (self.lines, self.skipped, self.left_out):
            file.sync()
        with _disk_errors(self._run / "tensorboard"):
            for writer in list(self._writers.values()):
                writer.flush()

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Record the numbers of `split` at `step`; what is not finite is `null` in the JSON line."""
        line = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self.lines.write({"step": step, "split": split, **line})
        folder = self._run / "tensorboard" / split
        with _disk_errors(folder):
            if split not in self._writers:
                self._writers[split] = tf.summary.create_file_writer(str(folder))
            with self._writers[split].as_default(step=step):
                for name, number in numbers.items():
                    tf.summary.write(name, tf.constant(number, tf.float32), metadata=_SCALAR)


class NullMetricsWriter(MetricsWriter):
    """The MetricsWriter of a worker that is not the chief: it keeps nothing."""

    def __init__(self) -> None:
        self.lines = self.skipped = self.left_out = LineFile(Path(os.devnull))
        self._writers = {}
        self._run = Path(os.devnull)

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Do nothing."""

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Do nothing: the chief writes the same numbers."""


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn what TensorFlow says of a disk that refuses into the OSError that Python's own files raise."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message.splitlines()[0], str(folder)) from None


def forget_after(run: Path, step: int) -> None:
    """Have TensorBoard drop what it has read of later steps: a resumed run writes them again.

    It takes files in the order of their names, so the mark has a name between those of the last process and those of this one.
    """
    version = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    mark = tf.compat.v1.Event(wall_time=time.time(), step=step + 1, session_log=start)
    for folder in (child for child in (run / "tensorboard").glob("*") if child.is_dir()):
        name = f"events.out.tfevents.{int(time.time()) - 1:010d}.resumed"
        with _disk_errors(folder), tf.io.TFRecordWriter(str(folder / name)) as writer:
            # The first mark that TensorBoard meets is taken for the run's beginning, which no summary writer marks: it forgets nothing.
            for event in (version, mark, mark):
                writer.write(event.SerializeToString())


def write_picture(name: str, png: bytes) -> None:
    """Add a PNG to TensorBoard's images, with the default summary writer at its step."""
    width, height = struct.unpack(">II", png[_PNG_SIZE])
    tf.summary.write(name, tf.constant([str(width).encode(), str(height).encode(), png]), metadata=_IMAGE)


def write_sound(name: str, wave: np.ndarray, sample_rate: int) -> None:
    """Add a float wave [samples] to TensorBoard's audio, with the default summary writer at its step; over a peak of 1 it is scaled."""
    peak = float(np.abs(wave).max(initial=1.0))
    wav = tf.audio.encode_wav(tf.constant(wave[:, None] / peak, tf.float32), sample_rate)
    tf.summary.write(name, wav[None], metadata=_AUDIO)

"""A run's metrics: kept on the device until they are reported, then written as JSON lines and TensorBoard events."""

import errno
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import tensorflow as tf

from xtts_pipeline.errors import first_line_of
from xtts_pipeline.system.regular_files import open_to_append
from xtts_pipeline.training.checkpoints.run_folder import (
    CONFIG_NAME,
    LEFT_OUT_NAME,
    METRICS_NAME,
    SKIPPED_NAME,
    TENSORBOARD_FOLDER,
)


def plugin_metadata(plugin: str, data_class: str, content: bytes = b"") -> tf.compat.v1.SummaryMetadata:
    """Return the metadata of a TensorBoard plugin's values.

    The functions of tf.summary would attach it, but they need the tensorboard package.
    """
    plugin_data = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    return tf.compat.v1.SummaryMetadata(plugin_data=plugin_data, data_class=data_class)


_SCALAR = plugin_metadata("scalars", "DATA_CLASS_SCALAR")
_TEXT = plugin_metadata("text", "DATA_CLASS_TENSOR")
# TensorBoard's groups of what no pattern of `tag_of` finds.
_GROUPS = {
    "loss": {"loss", "objective", "mel_l1", "token_error", "mel_distance"},
    "alignment": {"alignment_fit"},
    "speed": {"step_ms", "data_wait_share", "device_share", "examples_per_second"},
    "speech": {"stop_rate", "duration_ratio", "distortion_db"},
}
Window = tuple[tuple[float | None, ...], ...]


def tag_of(name: str) -> str:
    """Return the tag of a metric in TensorBoard: its group, such as `loss`, and its name."""
    listed = [group for group, names in _GROUPS.items() if name in names]
    if listed:
        return f"{listed[0]}/{name}"
    return f"loss/{name}" if name.endswith("_loss") else f"update/{name}"


def write_text(name: str, text: str) -> None:
    """Add a text to TensorBoard as it stands, with the default summary writer at its step."""
    # TensorBoard reads Markdown, in which four spaces begin a block of code.
    block = "\n".join(f"    {line}" for line in text.splitlines())
    tf.summary.write(name, tf.constant([block]), metadata=_TEXT)


class MetricsBuffer:
    """The metrics of the steps since the last report, one vector per step; they outlive the process in checkpoints."""

    def __init__(self, names: Sequence[str], state: Window = ()) -> None:
        """Begin with the steps of an earlier process, as `to_state` returned them."""
        self._names = tuple(names)
        rows = [[math.nan if number is None else number for number in vector] for vector in state]
        self._read = np.array(rows, np.float32).reshape(-1, len(self._names))
        self._restored = len(self._read)
        self._unread: list[tf.Tensor] = []

    def add(self, vector: tf.Tensor) -> None:
        """Add a step's float32 [len(names)] without reading it back."""
        self._unread.append(vector)

    def read(self) -> np.ndarray:
        """Return float32 [steps, len(names)]; what is still on the device is read back in one copy."""
        if self._unread:
            self._read = np.concatenate([self._read, tf.stack(self._unread).numpy()])
            self._unread.clear()
        return self._read

    def to_state(self) -> Window:
        """Return the vectors as JSON can hold them: exact, with None for NaN and infinities."""
        return tuple(
            tuple(number if math.isfinite(number) else None for number in vector)
            for vector in self.read().astype(np.float64).tolist()
        )

    def column(self, name: str) -> np.ndarray:
        """Return one metric, float64 [steps]."""
        return self.read()[:, self._names.index(name)].astype(np.float64)

    def means(self, is_counted: np.ndarray) -> dict[str, float]:
        """Return the mean of each metric over the steps where bool [steps] is True; NaN if there are none."""
        vectors = self.read().astype(np.float64)[is_counted]
        means = vectors.mean(axis=0) if len(vectors) else np.full(len(self._names), np.nan)
        return dict(zip(self._names, means.tolist(), strict=True))

    def sum_of_process(self, name: str) -> float:
        """Return the sum of a metric over the steps of this process, without restored ones."""
        return float(self.column(name)[self._restored :].sum())

    def clear(self) -> None:
        """Remove all steps."""
        self._read = self._read[:0]
        self._restored = 0
        self._unread.clear()


class JsonLinesFile:
    """An append-only file of JSON lines. `size`: its bytes, from which a resumed run continues."""

    def __init__(self, file: BinaryIO, keep_bytes: int) -> None:
        """Append to an unbuffered file after its first `keep_bytes`."""
        self._file = file
        self.size = self._file.tell()
        self.missing_bytes = max(0, keep_bytes - self.size)
        self.truncate(keep_bytes)

    def truncate(self, keep_bytes: int) -> None:
        """Keep the first `keep_bytes`."""
        if keep_bytes < self.size:
            self._file.truncate(keep_bytes)
            self.size = keep_bytes

    def write(self, content: Mapping[str, Any]) -> None:
        """Append a line. Raises OSError if the disk refuses."""
        line = json.dumps(content, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        written = self._file.write(line)
        self.size += written
        if written != len(line):
            # A full disk writes a part of the line; the second write raises the error.
            self.size += self._file.write(line[written:])

    def sync(self) -> None:
        """Flush the file to the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


class MetricsWriter:
    """Appends each report to metrics.jsonl and TensorBoard's files; a context manager that flushes and closes both.

    lines: the reports. skipped: the steps whose update was skipped.
    left_out: the clips of each epoch that did not fill a batch of all workers.
    """

    def __init__(self, run: Path, keep_bytes: Mapping[str, int]) -> None:
        """Continue the run's files after the first `keep_bytes` of each, by name, by default 0."""
        names = (METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME)
        self._files = {name: JsonLinesFile(open_to_append(run / name), keep_bytes.get(name, 0)) for name in names}
        self.lines, self.skipped, self.left_out = self._files.values()
        self._run = run
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()
        self._close_writers()

    @property
    def file_bytes(self) -> dict[str, int]:
        """The sizes of the files of lines, by name."""
        return {name: file.size for name, file in self._files.items()}

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Remove the reports after `step`, here and in TensorBoard; skipped.jsonl stays."""
        self._close_writers()
        self.lines.truncate(metrics_bytes)
        hide_steps_after(self._run, step)

    def _close_writers(self) -> None:
        with _disk_errors(self._run / TENSORBOARD_FOLDER):
            for writer in self._writers.values():
                writer.close()
        self._writers.clear()

    def sync(self) -> None:
        """Flush everything to the disk; any thread may call it. Raises OSError if the disk refuses."""
        for file in self._files.values():
            file.sync()
        with _disk_errors(self._run / TENSORBOARD_FOLDER):
            for writer in list(self._writers.values()):
                writer.flush()

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Record the numbers of `split` at `step`; in JSON, NaN and infinities are `null`."""
        line = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self.lines.write({"step": step, "split": split, **line})
        folder = self._run / TENSORBOARD_FOLDER / split
        with _disk_errors(folder):
            if split not in self._writers:
                self._writers[split] = tf.summary.create_file_writer(str(folder))
                self._write_config(split, step)
            with self._writers[split].as_default(step=step):
                for name, number in numbers.items():
                    tf.summary.write(tag_of(name), tf.constant(number, tf.float32), metadata=_SCALAR)

    def _write_config(self, split: str, step: int) -> None:
        config = self._run / CONFIG_NAME
        if split == "train" and config.is_file():
            with self._writers[split].as_default(step=step):
                write_text("config", config.read_text(encoding="utf-8"))


class NullMetricsWriter(MetricsWriter):
    """The MetricsWriter of a worker that is not the chief: it keeps nothing."""

    def __init__(self) -> None:
        nothing = Path(os.devnull).open("ab", buffering=0)  # noqa: SIM115 (closed as the lines of a run are)
        self.lines = self.skipped = self.left_out = JsonLinesFile(nothing, 0)
        self._files, self._writers = {METRICS_NAME: self.lines}, {}
        self._run = Path(os.devnull)

    def rewind(self, step: int, metrics_bytes: int) -> None:
        """Do nothing."""

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Do nothing: the chief writes the same numbers."""


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn TensorFlow's errors of a failing disk into OSError, as Python's own files raise it."""
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, first_line_of(error.message), str(folder)) from None


def hide_steps_after(run: Path, step: int) -> None:
    """Make TensorBoard drop the steps after `step` that it has read: a resumed run writes them again.

    TensorBoard reads files in the order of their names, so the mark's name lies between those of the two processes.
    """
    version = tf.compat.v1.Event(wall_time=time.time(), file_version="brain.Event:2")
    start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
    mark = tf.compat.v1.Event(wall_time=time.time(), step=step + 1, session_log=start)
    for folder in (child for child in (run / TENSORBOARD_FOLDER).glob("*") if child.is_dir()):
        name = f"events.out.tfevents.{int(time.time()) - 1:010d}.resumed"
        with _disk_errors(folder), tf.io.TFRecordWriter(str(folder / name)) as writer:
            # TensorBoard takes the first mark for the run's beginning and drops nothing; summary writers set none.
            for event in (version, mark, mark):
                writer.write(event.SerializeToString())

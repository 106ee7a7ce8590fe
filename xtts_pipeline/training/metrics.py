"""A run's numbers on disk: metrics.jsonl for programs, TensorBoard event files for people."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Self

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


class MetricsWriter:
    """Appends one line a report to metrics.jsonl and the same numbers to TensorBoard; a context manager that flushes both."""

    def __init__(self, run: Path) -> None:
        self._file = (run / "metrics.jsonl").open("a", encoding="utf-8", buffering=1)
        self._run = run
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        for writer in self._writers.values():
            writer.close()

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Record the numbers of `split` at `step`; what is not finite is `null` in the JSON line."""
        line = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._file.write(json.dumps({"step": step, "split": split, **line}, allow_nan=False) + "\n")
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self._run / "tensorboard" / split))
        with self._writers[split].as_default(step=step):
            for name, number in numbers.items():
                tf.summary.write(name, tf.constant(number, tf.float32), metadata=_SCALAR)


def write_picture(name: str, png: bytes) -> None:
    """Add a PNG to TensorBoard's images, with the default summary writer at its step."""
    width, height = struct.unpack(">II", png[_PNG_SIZE])
    tf.summary.write(name, tf.constant([str(width).encode(), str(height).encode(), png]), metadata=_IMAGE)


def write_sound(name: str, wave: np.ndarray, sample_rate: int) -> None:
    """Add a float wave [samples] to TensorBoard's audio, with the default summary writer at its step; over a peak of 1 it is scaled."""
    peak = float(np.abs(wave).max(initial=1.0))
    wav = tf.audio.encode_wav(tf.constant(wave[:, None] / peak, tf.float32), sample_rate)
    tf.summary.write(name, wav[None], metadata=_AUDIO)

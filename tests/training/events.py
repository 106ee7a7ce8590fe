"""Read TensorBoard's event files back, as TensorBoard would, but without its package."""

import io
from pathlib import Path

import soundfile
import tensorflow as tf


def read_values(folder: Path) -> list[tuple[int, tf.compat.v1.Summary.Value]]:
    """Return every summary value under a folder with its step, in the order in which they were written."""
    values = []
    for path in sorted(folder.glob("events.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            values += [(event.step, value) for value in event.summary.value]
    return values


def read_wav(value: tf.compat.v1.Summary.Value) -> tuple[int, int]:
    """Return the samples and the rate of an audio value."""
    (wav,) = tf.make_ndarray(value.tensor).tolist()
    wave, rate = soundfile.read(io.BytesIO(wav))
    return len(wave), rate

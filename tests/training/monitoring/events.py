"""Read TensorBoard's event files as TensorBoard does, without its package."""

import io
from pathlib import Path

import soundfile
import tensorflow as tf


def read_values(folder: Path) -> list[tuple[int, tf.compat.v1.Summary.Value]]:
    """Return every summary value under a folder with its step, in the order of writing."""
    values = []
    for path in sorted(folder.glob("events.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            values += [(event.step, value) for value in event.summary.value]
    return values


def shown_steps(folder: Path, tag: str) -> list[int]:
    """Return the steps of a scalar as TensorBoard shows them, in its order of files.

    At the mark of a session's start TensorBoard drops that step and later ones. The first mark is the run's beginning.
    """
    steps: list[int] = []
    is_marked = False
    for path in sorted(folder.glob("events.*")):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            if event.session_log.status == tf.compat.v1.SessionLog.START:
                steps = [step for step in steps if step < event.step] if is_marked else steps
                is_marked = True
            steps += [event.step for value in event.summary.value if value.tag == tag]
    return steps


def read_wav(value: tf.compat.v1.Summary.Value) -> tuple[int, int]:
    """Return the samples and the rate of an audio value."""
    (wav,) = tf.make_ndarray(value.tensor).tolist()
    wave, rate = soundfile.read(io.BytesIO(wav))
    return len(wave), rate

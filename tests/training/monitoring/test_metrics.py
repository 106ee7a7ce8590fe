import io
import json
import math
import time
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.training.monitoring.events import read_values, shown_steps
from xtts_pipeline.training.monitoring.metrics import MetricsWriter, write_picture, write_sound

IMAGE = np.zeros((3, 7, 4), np.uint8)


def test_numbers_are_written_for_programs_and_for_tensorboard(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        metrics.write(1, "train", {"loss": 2.5, "gradient_norm": math.inf})
        metrics.write(2, "val", {"loss": 1.5})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [
        {"step": 1, "split": "train", "loss": 2.5, "gradient_norm": None},
        {"step": 2, "split": "val", "loss": 1.5},
    ]
    ((step, value),) = read_values(tmp_path / "tensorboard" / "val")
    assert (step, value.tag, float(tf.make_ndarray(value.tensor))) == (2, "loss", 1.5)
    assert value.metadata.plugin_data.plugin_name == "scalars"


def test_steps_that_are_taken_twice_are_shown_once(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path) as metrics:
        for step in (5, 10, 15):
            metrics.write(step, "train", {"loss": 1.0})
        for last in (5, 10):
            # The mark's file is named for the second before, and belongs behind what was written until then.
            time.sleep(2.1)
            metrics.rewind(last, metrics.lines.size)
            for step in (last + 5, 20):
                metrics.write(step, "train", {"loss": 1.0})
    assert shown_steps(tmp_path / "tensorboard" / "train", "loss") == [5, 10, 15, 20]


def test_a_disk_that_refuses_tensorboard_s_files_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "Failed to flush 11 events; No space left on device")

    with MetricsWriter(tmp_path) as metrics:
        monkeypatch.setattr(tf.summary, "write", refuse)
        with pytest.raises(OSError, match="Failed to flush 11 events") as caught:
            metrics.write(1, "train", {"loss": 1.0})
        assert caught.value.filename == str(tmp_path / "tensorboard" / "train")


def test_a_picture_is_written_as_tensorboard_reads_images(tmp_path: Path) -> None:
    png = tf.io.encode_png(IMAGE).numpy()
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=5):
        write_picture("mel", png)
    writer.close()
    ((step, value),) = read_values(tmp_path)
    assert (step, value.tag, value.metadata.plugin_data.plugin_name) == (5, "mel", "images")
    width, height, found = tf.make_ndarray(value.tensor).tolist()
    assert (width, height) == (b"7", b"3")
    assert matplotlib.image.imread(io.BytesIO(found)).shape == (3, 7, 4)


def test_a_sound_is_written_as_tensorboard_reads_audio_and_never_clipped(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=5):
        write_sound("speech", np.array([0.0, 2.0, -1.0], np.float32), 8_000)
    writer.close()
    ((_, value),) = read_values(tmp_path)
    plugin = value.metadata.plugin_data
    # What tensorboard.plugins.audio serialises for version 0 and its encoding WAV, 11.
    assert (plugin.plugin_name, plugin.content) == ("audio", b"\x10\x0b")
    (wav,) = tf.make_ndarray(value.tensor).tolist()
    wave, rate = soundfile.read(io.BytesIO(wav))
    assert rate == 8_000
    np.testing.assert_allclose(wave, [0.0, 1.0, -0.5], atol=1e-4)

import io
import threading
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.training.monitoring.events import read_values, read_wav
from xtts_pipeline import plots
from xtts_pipeline.config.schema import Config, SynthesisConfig, TrainingConfig
from xtts_pipeline.training.acoustic.validation import SpokenSentence
from xtts_pipeline.training.monitoring.media import MediaWriter, write_picture, write_sound
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

CONFIG = Config(synthesis=SynthesisConfig(griffin_lim_iterations=1), training=TrainingConfig(sample_sentences=2))
RGBA = np.zeros((3, 7, 4), np.uint8)
PNG = tf.io.encode_png(np.zeros((2, 3, 1), np.uint8)).numpy()


def sentence(number: int, frames: int = 9) -> SpokenSentence:
    mel = np.full((frames, CONFIG.audio.mel_bins), -4.0, np.float32)
    return SpokenSentence(
        number=number,
        vocoder=GriffinLim.from_settings(CONFIG.audio, CONFIG.synthesis),
        symbols=("<begin>", "a", "<end>"),
        true_mel=mel,
        mel=mel[: frames - 2],
        durations=np.array([1.0, 1.0, 2.0], np.float32),
        has_stopped=True,
    )


class Gate(threading.Event):
    """Holds every plot until it is set; `drawn` counts the finished ones."""

    drawn = 0


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Gate:
    event = Gate()

    def draw(*_: object) -> bytes:
        event.wait(300)
        event.drawn += 1
        return PNG

    monkeypatch.setattr(plots, "encode_comparison", draw)
    return event


def test_every_sentence_has_a_plot_and_audio_and_its_ground_truth_once(tmp_path: Path) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        for step in (10, 20):
            media.add(step, [sentence(1)])
        # The first plot loads matplotlib, which can be slow on a busy machine.
        media.close(seconds=300.0)
    assert media.warnings() == []
    values = read_values(tmp_path / "tensorboard" / "media")
    assert [(step, value.tag) for step, value in values] == [
        (10, "sentence_1/mels_and_tokens"),
        (10, "sentence_1/text"),
        (10, "sentence_1/true"),
        (10, "sentence_1/spoken"),
        (20, "sentence_1/mels_and_tokens"),
        (20, "sentence_1/spoken"),
    ]
    assert tf.make_ndarray(values[1][1].tensor).tolist() == [b"    a"]
    assert read_wav(values[2][1]) == (8 * 256, 22_050)
    assert read_wav(values[3][1]) == (6 * 256, 22_050)


def test_adding_never_waits_and_counts_dropped_sentences(tmp_path: Path, go_on: Gate) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        for step in range(5):
            media.add(step, [sentence(1), sentence(2)])
        assert go_on.drawn == 0
        go_on.set()
    # There is room for two evaluations of two sentences.
    assert media.dropped == 6
    (warning,) = media.warnings()
    assert "6 samples were dropped" in warning
    assert "raise training.sample_every_evaluations" in warning
    assert {step for step, _ in read_values(tmp_path / "tensorboard" / "media")} == {0, 1}


def test_an_error_in_the_thread_is_reported_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "encode_comparison", lambda *_: PNG)
    broken = sentence(1)
    broken.mel[:] = np.nan
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(1, [broken])
        media.add(2, [sentence(2)])
    (warning,) = media.warnings()
    assert "1 samples failed, the first with AudioError" in warning
    assert "sentence_2/spoken" in [value.tag for _, value in read_values(tmp_path / "tensorboard" / "media")]


def test_a_disk_that_is_full_at_the_end_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def close(_media: MediaWriter) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(1, [sentence(1)])
        monkeypatch.setattr(MediaWriter, "_close_writer", close)
        media.close()
        monkeypatch.undo()
    assert "ResourceExhaustedError: No space left on device" in media.warnings()[0]


def test_closing_gives_up_after_its_time_limit(tmp_path: Path, go_on: Gate) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(1, [sentence(1), sentence(2)])
        media.close(seconds=0.05)
    go_on.set()
    assert "2 samples were given up" in media.warnings()[0]


def test_a_hanging_thread_does_not_block_exit(tmp_path: Path, go_on: Gate) -> None:
    media = MediaWriter(tmp_path, CONFIG)
    media.add(1, [sentence(1)])
    # Threads of other tests may still run.
    assert {thread.daemon for thread in threading.enumerate() if thread.name == "media"} == {True}
    go_on.set()
    media.close()


def test_after_a_roll_back_a_new_file_has_the_ground_truth_again(tmp_path: Path, go_on: Gate) -> None:
    go_on.set()
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(10, [sentence(1)])
        media.rewind()
        media.add(10, [sentence(1)])
    assert media.warnings() == []
    assert len(list((tmp_path / "tensorboard" / "media").glob("events.*"))) == 2
    tags = [value.tag.removeprefix("sentence_1/") for _, value in read_values(tmp_path / "tensorboard" / "media")]
    assert tags == ["mels_and_tokens", "text", "true", "spoken"] * 2


def test_an_error_of_the_run_does_not_wait_for_the_queue(tmp_path: Path, go_on: Gate) -> None:
    media = MediaWriter(tmp_path, CONFIG)
    media.add(1, [sentence(1), sentence(2)])
    media.__exit__(RuntimeError)
    assert go_on.drawn == 0
    go_on.set()


def test_a_picture_has_the_format_of_tensorboards_images(tmp_path: Path) -> None:
    png = tf.io.encode_png(RGBA).numpy()
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=5):
        write_picture("mel", png)
    writer.close()
    ((step, value),) = read_values(tmp_path)
    assert (step, value.tag, value.metadata.plugin_data.plugin_name) == (5, "mel", "images")
    width, height, found = tf.make_ndarray(value.tensor).tolist()
    assert (width, height) == (b"7", b"3")
    assert matplotlib.image.imread(io.BytesIO(found)).shape == (3, 7, 4)


def test_a_sound_has_the_format_of_tensorboards_audio_and_is_not_clipped(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default(step=5):
        write_sound("speech", np.array([0.0, 2.0, -1.0], np.float32), 8_000)
    writer.close()
    ((_, value),) = read_values(tmp_path)
    plugin = value.metadata.plugin_data
    # tensorboard.plugins.audio serialises version 0 with encoding WAV, 11, to these bytes.
    assert (plugin.plugin_name, plugin.content) == ("audio", b"\x10\x0b")
    (wav,) = tf.make_ndarray(value.tensor).tolist()
    wave, rate = soundfile.read(io.BytesIO(wav))
    assert rate == 8_000
    np.testing.assert_allclose(wave, [0.0, 1.0, -0.5], atol=1e-4)

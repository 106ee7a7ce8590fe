import threading
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.training.monitoring.events import read_values, read_wav
from xtts_pipeline import plots as pictures
from xtts_pipeline.config.schema import Config, SynthesisConfig, TrainingConfig
from xtts_pipeline.training.monitoring.media import MediaWriter
from xtts_pipeline.training.validation import SpokenSentence

CONFIG = Config(synthesis=SynthesisConfig(griffin_lim_iterations=1), training=TrainingConfig(sample_sentences=2))
PNG = tf.io.encode_png(np.zeros((2, 3, 1), np.uint8)).numpy()


def sentence(number: int, frames: int = 9) -> SpokenSentence:
    mel = np.full((frames, CONFIG.audio.mel_bins), -4.0, np.float32)
    return SpokenSentence(
        number, ("<begin>", "a", "<end>"), mel, mel[: frames - 2], np.full((2, 3), 0.3, np.float32), has_stopped=True
    )


class Gate(threading.Event):
    """Holds every drawing until it is set; `drawn` counts those that are done."""

    drawn = 0


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Gate:
    event = Gate()

    def draw(*_: object) -> bytes:
        event.wait(300)
        event.drawn += 1
        return PNG

    monkeypatch.setattr(pictures, "encode_comparison", draw)
    return event


def test_every_sentence_is_drawn_and_voiced_and_its_truth_once(tmp_path: Path) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        for step in (10, 20):
            media.add(step, [sentence(1)])
        # The first picture loads matplotlib, which may take its time on a busy machine.
        media.close(seconds=300.0)
    assert media.warnings() == []
    values = read_values(tmp_path / "tensorboard" / "media")
    assert [(step, value.tag) for step, value in values] == [
        (10, "sentence_1/mel_and_attention"),
        (10, "sentence_1/true"),
        (10, "sentence_1/spoken"),
        (20, "sentence_1/mel_and_attention"),
        (20, "sentence_1/spoken"),
    ]
    assert read_wav(values[1][1]) == (8 * 256, 22_050)
    assert read_wav(values[2][1]) == (6 * 256, 22_050)


def test_adding_never_waits_and_what_has_no_room_is_counted(tmp_path: Path, go_on: Gate) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        for step in range(5):
            media.add(step, [sentence(1), sentence(2)])
        assert go_on.drawn == 0
        go_on.set()
    # Two evaluations of two sentences have room.
    assert media.dropped == 6
    (warning,) = media.warnings()
    assert "6 sentences were dropped" in warning
    assert "raise training.sample_every_evaluations" in warning
    assert {step for step, _ in read_values(tmp_path / "tensorboard" / "media")} == {0, 1}


def test_what_fails_in_the_thread_is_told_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "encode_comparison", lambda *_: PNG)
    broken = sentence(1)
    broken.mel[:] = np.nan
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(1, [broken])
        media.add(2, [sentence(2)])
    (warning,) = media.warnings()
    assert "1 sentences failed, the first with AudioError" in warning
    assert "sentence_2/spoken" in [value.tag for _, value in read_values(tmp_path / "tensorboard" / "media")]


def test_closing_gives_up_after_its_time(tmp_path: Path, go_on: Gate) -> None:
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(1, [sentence(1), sentence(2)])
        media.close(seconds=0.05)
    go_on.set()
    assert "2 sentences were given up" in media.warnings()[0]


def test_what_hangs_does_not_keep_the_process(tmp_path: Path, go_on: Gate) -> None:
    media = MediaWriter(tmp_path, CONFIG)
    media.add(1, [sentence(1)])
    # Those of other tests may still be there.
    assert {thread.daemon for thread in threading.enumerate() if thread.name == "media"} == {True}
    go_on.set()
    media.close()


def test_after_going_back_a_new_file_has_the_truth_again(tmp_path: Path, go_on: Gate) -> None:
    go_on.set()
    with MediaWriter(tmp_path, CONFIG) as media:
        media.add(10, [sentence(1)])
        media.rewind()
        media.add(10, [sentence(1)])
    assert media.warnings() == []
    assert len(list((tmp_path / "tensorboard" / "media").glob("events.*"))) == 2
    tags = [value.tag.removeprefix("sentence_1/") for _, value in read_values(tmp_path / "tensorboard" / "media")]
    assert tags == ["mel_and_attention", "true", "spoken"] * 2


def test_an_error_of_the_run_is_not_held_up(tmp_path: Path, go_on: Gate) -> None:
    media = MediaWriter(tmp_path, CONFIG)
    media.add(1, [sentence(1), sentence(2)])
    media.__exit__(RuntimeError)
    assert go_on.drawn == 0
    go_on.set()

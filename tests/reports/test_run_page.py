"""The page of a run shows what its folder holds."""

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.speaking import make_run
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.reports.event_files import read_events
from xtts_pipeline.reports.run_page import read_run, write_run_page
from xtts_pipeline.training.monitoring.media import write_picture, write_sound
from xtts_pipeline.training.monitoring.metrics import hide_steps_after

REPORTS = [
    {"step": 1, "split": "train", "loss": 9.5, "step_ms": 80.0, "data_wait_share": 0.2, "alignment_fit": 0.1},
    {"step": 5, "split": "train", "loss": None, "step_ms": 70.0, "data_wait_share": 0.1, "alignment_fit": 0.5},
    {"step": 5, "split": "val", "loss": 4.25},
    {"step": 5, "split": "speech", "stop_rate": 0.5},
]
TEXT = "Sentence <b>one</b>."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("report") / "run")


def write_run(folder: Path) -> Path:
    """Write the run of a training that was killed while it wrote a report."""
    run = make_run(folder)
    lines = "".join(f"{json.dumps(report)}\n" for report in REPORTS)
    (run / "metrics.jsonl").write_text(f'{lines}{{"step": 6, "spl', encoding="utf-8")
    wave = np.sin(np.arange(8_000) / 9).astype(np.float32) / 2
    with tf.summary.create_file_writer(str(run / "tensorboard" / "media")).as_default(step=5):
        write_picture("sentence_1/mels_and_tokens", tf.io.encode_png(np.zeros((2, 3, 1), np.uint8)).numpy())
        write_sound("sentence_1/true", wave, 22_050)
        write_sound("sentence_1/spoken", wave[:6_000], 22_050)
        tf.summary.write("sentence_1/text", tf.constant([TEXT]))
    return run


def test_event_files_are_read_as_tensorflow_wrote_them_up_to_where_they_are_cut(run: Path, tmp_path: Path):
    folder = run / "tensorboard" / "media"
    events = read_events(folder)

    assert [(event.tag, event.step) for event in events] == [
        ("sentence_1/mels_and_tokens", 5),
        ("sentence_1/true", 5),
        ("sentence_1/spoken", 5),
        ("sentence_1/text", 5),
    ]
    assert len(soundfile.read(io.BytesIO(events[1].content))[0]) == 8_000
    cut = tmp_path / "events.out.tfevents.1"
    cut.write_bytes(next(folder.iterdir()).read_bytes()[:-9])
    assert read_events(tmp_path) == events[:3]


def test_steps_that_a_resumed_run_takes_again_are_read_once(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard" / "media"
    for step in (2, 4):
        with tf.summary.create_file_writer(str(folder), filename_suffix=f".{step}").as_default(step=step):
            tf.summary.write("text", tf.constant(["spoken"]))
    for path in folder.iterdir():  # as if it was written a while ago
        path.rename(folder / re.sub(r"tfevents\.\d+", "tfevents.1000000000", path.name))
    hide_steps_after(tmp_path, 3)
    assert [event.step for event in read_events(folder)] == [2]


def test_the_page_has_the_figures_of_each_split_and_the_spoken_sentences(run: Path, tmp_path: Path):
    page = write_run_page(read_run(run), tmp_path).read_text(encoding="utf-8")

    assert "<strong>4.2500</strong>" in page
    assert "✗ bad</b> at most 5%" in page
    assert "✗ bad</b> expected all" in page
    for part in ("Losses", "Alignment and durations", "Speed"):
        assert f'<h2 class="part">{part}</h2>' in page
    assert "Sentence &lt;b&gt;one&lt;/b&gt;." in page
    assert sorted(file.name for file in (tmp_path / "sounds").iterdir()) == [
        "sentence-1-spoken-5.wav",
        "sentence-1-true.wav",
    ]
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_page_of_the_current_folder_has_the_name_of_the_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(run)
    page = write_run_page(read_run(Path()), tmp_path).read_text(encoding="utf-8")
    assert "<title>Run run</title>" in page


def test_the_page_says_what_made_the_sounds(run: Path, tmp_path: Path):
    content, pages = read_run(run), {}
    for network in ("acoustic", "vocoder"):
        (tmp_path / network).mkdir()
        path = write_run_page(replace(content, network=network), tmp_path / network)
        pages[network] = path.read_text(encoding="utf-8")
    assert "Sounds are made from mels by Griffin-Lim." in pages["acoustic"]
    assert "Griffin-Lim" not in pages["vocoder"]


def test_a_run_without_metrics_is_an_error_of_one_line(tmp_path: Path):
    run = make_run(tmp_path / "run")

    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: cannot be read"):
        read_run(run)


@pytest.mark.parametrize(
    "line",
    [
        b"[[[",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"step": 5, "split": "\xff"}',
        b'{"step": 5}',
        b"[]",
        b"",
        b'{"step": "5", "split": "train"}',
        b'{"step": 5, "split": "train", "loss": "low"}',
        b'{"step": 5, "split": "train", "loss": 1e999}',
    ],
)
def test_a_damaged_line_of_the_metrics_is_an_error_with_its_number_and_the_remedy(tmp_path: Path, line: bytes):
    run = make_run(tmp_path / "run")
    metrics = run / "metrics.jsonl"
    metrics.write_bytes(b'{"step": 1, "split": "train", "loss": 2.5}\n' + line + b"\n")

    with pytest.raises(CheckpointError) as caught:
        read_run(run)

    error = str(caught.value)
    assert caught.value.exit_code == 2
    assert error.startswith(f"{metrics}:2: ")
    assert error.endswith("; remove the line")
    assert ": :" not in error
    assert "\n" not in error
    assert len(error) < len(str(metrics)) + 300


def test_validation_reports_without_a_loss_have_no_best_loss(tmp_path: Path):
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"step": 5, "split": "val", "mel_loss": 2.5}\n')
    (tmp_path / "page").mkdir()

    page = write_run_page(read_run(run), tmp_path / "page").read_text(encoding="utf-8")

    assert "Lowest validation loss" not in page
    assert "mel loss" in page


def test_a_pipe_in_place_of_the_metrics_is_refused_without_a_wait(tmp_path: Path):
    run = make_run(tmp_path / "run")
    os.mkfifo(run / "metrics.jsonl")

    with pytest.raises(CheckpointError, match=r"metrics\.jsonl: cannot be read \(no regular file\)"):
        read_run(run)

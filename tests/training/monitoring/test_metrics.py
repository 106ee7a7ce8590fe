import math
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tests.json_lines import read_json_lines
from tests.training.monitoring.events import read_values, shown_steps
from xtts_pipeline.training.monitoring.metrics import MetricsWriter, tag_of


def test_numbers_are_written_as_json_lines_and_to_tensorboard(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, {}) as metrics:
        metrics.write(1, "train", {"loss": 2.5, "gradient_norm": math.inf})
        metrics.write(2, "val", {"loss": 1.5})
    assert read_json_lines(tmp_path / "metrics.jsonl") == [
        {"step": 1, "split": "train", "loss": 2.5, "gradient_norm": None},
        {"step": 2, "split": "val", "loss": 1.5},
    ]
    ((step, value),) = read_values(tmp_path / "tensorboard" / "val")
    assert (step, value.tag, float(tf.make_ndarray(value.tensor))) == (2, "loss/loss", 1.5)
    assert value.metadata.plugin_data.plugin_name == "scalars"


def test_tensorboard_shows_repeated_steps_once(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path, {}) as metrics:
        for step in (5, 10, 15):
            metrics.write(step, "train", {"loss": 1.0})
        for last in (5, 10):
            # The mark's file is named after the second before, and must sort after the files written until then.
            time.sleep(2.1)
            metrics.rewind(last, metrics.lines.size)
            for step in (last + 5, 20):
                metrics.write(step, "train", {"loss": 1.0})
    assert shown_steps(tmp_path / "tensorboard" / "train", "loss/loss") == [5, 10, 15, 20]


def test_a_failing_disk_of_tensorboards_files_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "Failed to flush 11 events; No space left on device")

    with MetricsWriter(tmp_path, {}) as metrics:
        monkeypatch.setattr(tf.summary, "write", refuse)
        with pytest.raises(OSError, match="Failed to flush 11 events") as caught:
            metrics.write(1, "train", {"loss": 1.0})
        assert caught.value.filename == str(tmp_path / "tensorboard" / "train")


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("flow_loss", "loss/flow_loss"),
        ("alignment_fit", "alignment/alignment_fit"),
        ("step_ms", "speed/step_ms"),
        ("stop_rate", "speech/stop_rate"),
        ("gradient_norm", "update/gradient_norm"),
    ],
)
def test_tensorboard_shows_metrics_in_groups(name: str, tag: str) -> None:
    assert tag_of(name) == tag


def test_tensorboard_shows_the_config_of_the_run_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model:\n  width: 8\n")
    with MetricsWriter(tmp_path, {}) as metrics:
        for step in (1, 2):
            metrics.write(step, "train", {"loss": 1.0})

    values = read_values(tmp_path / "tensorboard" / "train")
    assert [value.tag for _, value in values] == ["config", "loss/loss", "loss/loss"]
    assert tf.make_ndarray(values[0][1].tensor).tolist() == [b"    model:\n      width: 8"]

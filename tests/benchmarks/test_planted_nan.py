"""The judgement of benchmarks/planted_nan.py; its runs take long and are started by hand."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from seeded_runs import Ended, compare, figures

from benchmarks.planted_nan import judge, plant
from tests.cache.corpora import records_of
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.verify.verify import require_whole


def ended(loss: float, *, named: tuple[str, ...] = (), steps: int = 100) -> Ended:
    reports = [{"split": "train", "step": step, "loss": loss if step > 80 else 9.0} for step in range(10, 101, 10)]
    reports += [{"split": "val", "step": step, "loss": loss + 1.0 + (100 - step) / 100} for step in (50, 100)]
    skipped = [{"not_finite": [name]} for name in named]
    return Ended(
        reports, skipped, {"steps": steps, "skipped_updates": len(named), "warnings": [], "rolled_back_at_step": None}
    )


def test_only_the_last_fifth_counts_and_reports_without_a_loss_do_not() -> None:
    reports = [*ended(2.0).reports, {"split": "train", "step": 95, "loss": None}]
    assert figures(reports, 80) == {"train_loss": 2.0, "last_val_loss": 3.0, "best_val_loss": 3.0}
    assert set(figures([line for line in reports if line["split"] == "train"], 80)) == {"train_loss"}
    assert math.isnan(figures([], 80)["train_loss"])


def test_the_distance_of_a_run_is_counted_in_deviations_of_the_sound_runs() -> None:
    compared = compare([{"loss": value} for value in (1.0, 2.0, 3.0)], {"loss": 3.5})["loss"]
    assert (compared["mean"], compared["deviation"], compared["deviations_off"]) == (2.0, 1.0, 1.5)
    assert compare([{"loss": 2.0}, {"loss": 2.0}], {"loss": 2.5})["loss"]["deviations_off"] == math.inf


@pytest.mark.parametrize(
    ("planted", "is_ok"),
    [
        (ended(2.5, named=("bad", "bad")), True),
        (ended(4.5, named=("bad",)), False),
        (ended(math.nan, named=("bad",)), False),
        (ended(2.0), False),
        (ended(2.0, named=("bad", "other")), False),
        (ended(2.0, named=("bad",), steps=90), False),
    ],
    ids=["sound", "worse", "lost", "never read", "another named", "ended early"],
)
def test_a_planted_run_passes_if_it_ends_near_the_others_and_names_the_clip(planted: Ended, *, is_ok: bool) -> None:
    judged = judge("bad", planted, [ended(loss) for loss in (1.0, 2.0, 3.0)], 100)
    assert judged["ok"] is is_ok


def mels(folder: Path) -> dict[str, bytes]:
    return {record["id"]: record["mel"].tobytes() for _, record in records_of(folder)}


def test_one_training_clip_alone_is_changed_and_the_cache_is_sealed_again(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    write_cache(tmp_path / "sound", buckets=((9, 12), (16, 24)))
    copy = Path(shutil.copytree(tmp_path / "sound", tmp_path / "planted"))
    assert plant(copy, "clip-007") == "clip-007"
    require_whole(copy)
    sound, planted = mels(tmp_path / "sound"), mels(copy)
    assert sound.keys() == planted.keys()
    assert [name for name in sound if sound[name] != planted[name]] == ["clip-007"]
    assert np.isnan(np.frombuffer(planted["clip-007"], np.float16)).any()
    with pytest.raises(SystemExit, match="the training split has no clip clip-033"):
        plant(copy, "clip-033")  # of validation

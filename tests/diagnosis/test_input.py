"""`xtts diagnose input`, each fault planted in the real command; and how the verdict is read from figures."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.diagnosis.commands import Ended, run_command
from xtts_pipeline.cache.manifest import Manifest
from xtts_pipeline.config import Config, load_config
from xtts_pipeline.diagnosis.input import Figures, judge
from xtts_pipeline.diagnosis.machine import Cores, DiskSpeed, measure_disk, usable_cores
from xtts_pipeline.diagnosis.oscillation import find_oscillation
from xtts_pipeline.diagnosis.pipeline import Stage

WITHOUT_XLA = ("training.jit_compile=false",)


def diagnose(fault: str, cache: Path, *options: str) -> Ended:
    return run_command(fault, "diagnose", "input", "--cache", cache, "--batches", 25, *options, settings=WITHOUT_XLA)


@pytest.mark.skipif((os.cpu_count() or 1) < 2 or len(os.sched_getaffinity(0)) < (os.cpu_count() or 1), reason="needs all of two cores")
def test_the_healthy_pipeline_is_fine_and_all_of_it_is_measured(cache: Path) -> None:
    done = diagnose("none", cache)
    assert (done.exit_code, done.result["verdict"], done.result["remedy"], done.stderr) == (0, "fine", "", "")
    assert done.result["headroom"] > 1
    assert set(done.result["stages"]) == {"read", "shuffle", "copy", "parse"}
    assert set(done.result["batch_ms"]) == {"mean", "std", "p95", "max", "first"}
    assert done.result["python_operations"] == []


def test_python_in_the_map_is_found_in_the_graph(cache: Path) -> None:
    done = diagnose("numpy_function", cache)
    assert (done.exit_code, done.result["verdict"]) == (1, "Python in the path")
    assert "PyFunc" in done.result["finding"]
    assert "TensorFlow operations" in done.result["remedy"]


def test_a_shuffle_buffer_over_the_memory_names_one_that_fits_and_tries_it(cache: Path) -> None:
    done = diagnose("little_memory", cache, "--try")
    assert (done.exit_code, done.result["verdict"]) == (1, "shuffle too large")
    fitting = int(0.25 * 20_000 / done.result["record_bytes"])
    assert done.result["setting"] == f"data.shuffle_records={fitting}"
    assert fitting * done.result["record_bytes"] <= 5_000 < done.result["buffered_bytes"]
    assert done.result["tried"]["after"] > 0


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="has no core to take away")
def test_a_core_taken_away_is_named(cache: Path) -> None:
    done = diagnose("one_core", cache)
    assert (done.exit_code, done.result["verdict"]) == (1, "too few cores")
    assert f"affinity leaves 1 of {os.cpu_count()} cores" in done.result["finding"]
    assert "taskset" in done.result["remedy"]
    assert done.result["expected_gain"] == os.cpu_count()


def test_a_disk_of_20_mb_a_second_is_too_slow_for_a_fast_device(
    tmp_path: Path, write_cache: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ["limits.max_text_length=16", "limits.max_mel_frames=2000", "audio.mel_bins=128", "text.language=en"]
    manifest = write_cache(tmp_path / "cache", train=24, val=0, shards=1, base=load_config(overrides=limits))
    record_bytes = manifest.shards[0].bytes // manifest.shards[0].records
    assert record_bytes > 500_000
    monkeypatch.setenv("FAULT_RECORD_BYTES", str(record_bytes))
    done = run_command("slow_disk", "diagnose", "input", "--cache", tmp_path / "cache", "--batches", 8, settings=WITHOUT_XLA)
    assert (done.exit_code, done.result["verdict"]) == (1, "slow disk")
    assert done.result["stages"]["read"]["records_per_second"] * record_bytes / 1e6 == pytest.approx(20, rel=0.3)
    assert "local disk" in done.result["remedy"]
    assert done.result["expected_gain"] > 1


def figures(**changed: Any) -> Figures:
    stage = Stage(records_per_second=5_000.0, ms_per_batch=1.0, busy_cores=1.0)
    usual = Figures(
        batch_ms={},
        records_per_second=4_000.0,
        step_records_per_second=40.0,
        stages={"read": stage, "shuffle": stage, "copy": stage, "parse": stage},
        python_operations=[],
        oscillation=None,
        disk=DiskSpeed(None, None, 900.0),
        cores=Cores(machine=8, allowed=8, quota=None),
        record_bytes=100_000,
        buffered_bytes=200_000_000,
        memory_bytes=8_000_000_000,
    )
    return usual._replace(**changed)


BEHIND = Stage(records_per_second=40.0, ms_per_batch=100.0, busy_cores=0.05)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "fine"),
        ({"python_operations": ["PyFunc f"]}, "Python in the path"),
        ({"memory_bytes": 300_000_000}, "shuffle too large"),
        ({"cores": Cores(8, 1, None)}, "too few cores"),
        ({"cores": Cores(8, 8, 1.5)}, "too few cores"),
        ({"cores": Cores(8, 6, None)}, "fine"),  # what the others of a shared machine have is no fault while the input keeps up
        ({"cores": Cores(8, 6, None), "records_per_second": 30.0}, "too few cores"),
        ({"records_per_second": 30.0, "stages": {**figures().stages, "read": BEHIND}}, "slow disk"),
        ({"records_per_second": 30.0}, "too few cores"),
    ],
)
def test_the_verdict_follows_from_the_figures(changed: dict[str, Any], verdict: str) -> None:
    found, _, _ = judge(figures(**changed), Config())
    assert found.name == verdict
    assert found.is_healthy == (verdict == "fine")


def test_an_oscillation_is_a_rhythm_not_a_spread() -> None:
    random = np.random.default_rng(1)
    even, uneven = random.normal(10.0, 1.0, 60), random.exponential(10.0, 60)
    bursts = np.where(np.arange(60) % 8 == 0, 80.0, 5.0) + random.normal(0.0, 1.0, 60)
    one_stall = even + np.where(np.arange(60) == 30, 300.0, 0.0)
    found = find_oscillation(bursts.tolist())
    assert found is not None
    assert found.period == 8
    assert found.strength > 0.9
    for series in (even, uneven, one_stall, bursts[:15]):
        assert find_oscillation(series.tolist()) is None


def test_disk_and_page_cache_are_told_apart_or_said_not_to_be(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    file.write_bytes(bytes(4 << 20))
    speed = measure_disk([file], 64 << 20)
    assert speed.cached_mb_per_second > 0
    assert speed.cached_share is None or 0.0 <= speed.cached_share <= 1.0
    assert speed.disk_mb_per_second is None or speed.disk_mb_per_second > 0


def test_an_affinity_is_seen_as_the_cores_it_leaves() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores().allowed == 1
    finally:
        os.sched_setaffinity(0, before)
    assert Cores(4, 1, None).limit == "affinity leaves 1 of 4 cores"
    assert Cores(4, 4, 2.5).limit == "a control group leaves 2.5 of 4 cores"
    assert Cores(4, 4, None).limit is None

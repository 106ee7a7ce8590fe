"""`xtts diagnose input`, each fault planted in the real command; and how the verdict is read from figures."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.perf.commands import Ended, run_command
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.perf import pipeline
from xtts_pipeline.perf.diagnose.input import InputMeasurements, InputReport, judge, paced_rate
from xtts_pipeline.perf.diagnose.oscillation import Oscillation, find_oscillation
from xtts_pipeline.perf.pipeline import Pipeline, Stage, stage_costs
from xtts_pipeline.system import machine
from xtts_pipeline.system.machine import Cores, DiskSpeed, measure_disk, usable_cores

WITHOUT_XLA = ("training.jit_compile=false",)
# A cache as small as these is kept in memory unless that is switched off: nothing is read or buffered then.
FROM_DISK = (*WITHOUT_XLA, "data.cache_records=false")


def diagnose(fault: str, cache: Path, *options: object, settings: Sequence[str] = FROM_DISK) -> Ended:
    return run_command(fault, "diagnose", "input", "--cache", cache, "--batches", 25, *options, settings=settings)


@pytest.mark.skipif(
    (os.cpu_count() or 1) < 2 or len(os.sched_getaffinity(0)) < (os.cpu_count() or 1), reason="needs all of two cores"
)
def test_the_healthy_pipeline_is_fine_and_all_of_it_is_measured(cache: Path, tmp_path: Path) -> None:
    # A device that no load on this machine lets the pipeline fall behind.
    done = diagnose(
        "slow_device", cache, "--plot", tmp_path / "input.png", settings=(*WITHOUT_XLA, "augmentation.gain_db=3.0")
    )
    assert (done.exit_code, done.result["verdict"], done.result["remedy"], done.stderr) == (0, "fine", "", "")
    assert done.result["headroom"] > 1
    assert (done.result["needed_gain"], done.result["expected_gain"], done.result["setting"]) == (None, None, None)
    # As training would: a small cache is read once, and clips are changed anew.
    assert (done.result["cache_records"], list(done.result["stages"])) == (True, ["shuffle", "parse", "augment"])
    assert done.result["held_bytes"] == done.result["train_bytes"]
    assert len(done.result["batch_times_ms"]) == 25
    assert (tmp_path / "input.png").read_bytes().startswith(b"\x89PNG")
    assert set(done.result["batch_ms"]) == {"mean", "std", "p95", "max", "first"}
    assert done.result["python_operations"] == []


def test_python_in_the_map_is_found_in_the_graph(cache: Path) -> None:
    done = diagnose("numpy_function", cache)
    assert (done.exit_code, done.result["verdict"]) == (1, "Python in the path")
    assert "PyFunc" in done.result["finding"]
    assert "TensorFlow operations" in done.result["remedy"]


def test_a_shuffle_buffer_over_the_memory_names_one_that_fits_and_tries_it(cache: Path) -> None:
    done = diagnose("little_memory", cache, "--measure-fix")
    assert (done.exit_code, done.result["verdict"]) == (1, "shuffle too large")
    fitting = int(0.25 * 20_000 / done.result["record_bytes"])
    assert done.result["setting"] == f"data.shuffle_records={fitting}"
    assert fitting * done.result["record_bytes"] <= 5_000 < done.result["held_bytes"]
    assert (done.result["cache_records"], list(done.result["stages"])) == (False, ["read", "shuffle", "copy", "parse"])
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
    done = run_command(
        "slow_disk",
        "diagnose",
        "input",
        "--cache",
        tmp_path / "cache",
        "--batches",
        8,
        "--measure-fix",
        settings=FROM_DISK,
    )
    assert (done.exit_code, done.result["verdict"]) == (1, "slow disk")
    # On a machine that others use too it may be slower yet, never faster.
    assert done.result["stages"]["read"]["records_per_second"] * record_bytes / 1e6 < 26
    assert "local disk (xtts train --stage DIR)" in done.result["remedy"]
    assert done.result["needed_gain"] > 1
    assert done.result["setting"] == "data.cache_records=true"
    assert min(done.result["expected_gain"], done.result["tried"]["gain"]) > 2


def figures(**changed: Any) -> InputMeasurements:
    stage = Stage(records_per_second=5_000.0, ms_per_batch=1.0, busy_cores=1.0)
    usual = InputMeasurements(
        batch_ms={"mean": 4.0, "std": 1.0, "p95": 5.0, "max": 6.0, "first": 90.0},
        batch_times_ms=[],
        records_per_second=4_000.0,
        step_records_per_second=40.0,
        paced_records_per_second=None,
        stages={"read": stage, "shuffle": stage, "copy": stage, "parse": stage},
        python_operations=[],
        oscillation=None,
        disk=DiskSpeed(None, None, 900.0),
        cores=Cores(machine=8, allowed=8, quota=None),
        record_bytes=100_000,
        buffered_bytes_per_record=100_000,
        train_bytes=900_000_000,
        held_bytes=200_000_000,
        memory_bytes=8_000_000_000,
        cache_records=False,
    )
    return usual._replace(**changed)


def test_the_costs_of_the_stages_add_up_to_the_whole_pipeline() -> None:
    assert stage_costs([1.0, 2.5, 2.75, 4.0]) == [1.0, 1.5, 0.25, 1.25]
    assert stage_costs([0.25, 1.75, 1.5, 0.5]) == [0.25, 0.25, 0.0, 0.0]
    stages = {"read": Stage(1.0, 0.25, 1.0), "shuffle": Stage(1.0, 0.5, 1.0)}
    assert "ms per batch  read 0.25 + shuffle 0.50 = 0.75" in figures(stages=stages).to_text().splitlines()


SLOW_READ = Stage(records_per_second=40.0, ms_per_batch=100.0, busy_cores=0.05)
BEHIND = {
    "records_per_second": 30.0,
    "stages": {**figures().stages, "read": SLOW_READ, "parse": replace(SLOW_READ, records_per_second=30.0)},
}
IN_MEMORY = {name: figures().stages[name] for name in ("shuffle", "parse")}
RHYTHM = Oscillation(period=8, strength=0.9, spread=1.0)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "fine"),
        ({"python_operations": ["PyFunc f"]}, "Python in the path"),
        ({"memory_bytes": 300_000_000}, "shuffle too large"),
        ({"memory_bytes": 300_000_000, "cache_records": True}, "too much in memory"),
        ({"cores": Cores(8, 1, None)}, "too few cores"),
        ({"cores": Cores(8, 8, 1.5)}, "too few cores"),
        (
            {"cores": Cores(8, 6, None)},
            "fine",
        ),  # what the others of a shared machine have is no fault while the input keeps up
        ({"cores": Cores(8, 6, None), "records_per_second": 30.0}, "too few cores"),
        (BEHIND, "slow disk"),
        ({"records_per_second": 30.0}, "too few cores"),
        ({"records_per_second": 30.0, "stages": IN_MEMORY, "cache_records": True}, "too few cores"),
        (
            {"oscillation": RHYTHM, "paced_records_per_second": 39.5},
            "fine",
        ),  # a rhythm that is evened out is none to the step
        ({"oscillation": RHYTHM, "paced_records_per_second": 30.0}, "oscillating"),
    ],
)
def test_the_verdict_follows_from_the_figures(changed: dict[str, Any], verdict: str) -> None:
    found = judge(figures(**changed), DataConfig()).verdict
    assert found.name == verdict
    assert found.is_healthy == (verdict == "fine")


@pytest.mark.parametrize(
    ("changed", "data", "setting", "expected"),
    [
        ({}, {}, None, None),
        # 30 clips a second with 25 ms for each to be read, and 0.1 ms from memory: 1/30 s becomes what is left of it.
        (BEHIND, {}, "data.cache_records=true", pytest.approx((1 / 30) / (1 / 30 - 1 / 40 + 0.1 / 900))),
        ({**BEHIND, "train_bytes": 5_000_000_000}, {}, None, pytest.approx((1 / 30) / (1 / 30 - 1 / 40 + 0.1 / 900))),
        ({"records_per_second": 30.0}, {"num_workers": 2}, "data.num_workers=8", 4.0),
        ({"records_per_second": 30.0}, {"num_workers": 9}, None, None),
        ({"cores": Cores(8, 1, None)}, {}, None, 8.0),
        ({"memory_bytes": 300_000_000}, {}, "data.shuffle_records=750", None),
        ({"memory_bytes": 300_000_000, "cache_records": True}, {}, "data.cache_records=false", None),
        (
            {"oscillation": RHYTHM, "paced_records_per_second": 30.0},
            {},
            "data.prefetch_buffer_size=16",
            pytest.approx(4 / 3),
        ),
        (
            {"oscillation": RHYTHM, "paced_records_per_second": 30.0},
            {"prefetch_buffer_size": 16},
            None,
            pytest.approx(4 / 3),
        ),
    ],
)
def test_a_setting_that_would_help_is_named_with_the_gain_that_it_can_have(
    changed: dict[str, Any], data: dict[str, Any], setting: str | None, expected: Any
) -> None:
    found = judge(figures(**changed), DataConfig(**data))
    assert (found.setting and str(found.setting)) == setting
    assert found.expected_gain == expected
    if setting is not None:
        assert found.verdict.remedy.startswith(f"set {setting}")


def test_what_is_needed_and_what_is_expected_are_printed() -> None:
    measured = figures(**BEHIND)
    lines = (
        InputReport(judge(measured, DataConfig()), measured, {"before": 30.0, "after": 90.0, "gain": 3.0})
        .to_text()
        .splitlines()
    )
    assert "gain          1.47 times needed, 3.95 times expected at most" in lines
    assert "tried         data.cache_records=true: 30 -> 90 records/s (3.00 times)" in lines
    cache_records = figures(cache_records=True, stages=IN_MEMORY, oscillation=RHYTHM, paced_records_per_second=39.2)
    text = InputReport(judge(cache_records, DataConfig()), cache_records).to_text()
    assert "reading       once, before the first batch" in text
    assert "oscillation   every 8 batches, strength 0.90; the step waits 2% of its time for it" in text
    assert "gain" not in text


def test_a_step_that_waits_for_late_batches_gets_fewer_records_than_it_takes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def batches(late: Callable[[int], bool]) -> Iterator[None]:
        for number in count():
            sleep(0.041 if late(number) else 0.001)
            yield None

    monkeypatch.setattr(pipeline, "time", SimpleNamespace(sleep=sleep, perf_counter=lambda: clock[0]))
    four_rows = Pipeline(CachedSource(cache, load_manifest(cache)), Config(), 0, 4)
    # None; each fourth; one stall, which is no rhythm.
    for late, records_per_second in (
        (lambda _: False, 400),
        (lambda number: number % 4 == 0, 200),
        (lambda number: number == 9, 400),
    ):
        monkeypatch.setattr(Pipeline, "whole", lambda _, late=late: batches(late))
        assert paced_rate(four_rows, 20, 0.01) == pytest.approx(records_per_second)


def test_the_buffers_of_all_buckets_are_held(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    manifest = write_cache(tmp_path, train=60, buckets=((16, 12), (16, 24)))
    data = DataConfig(shuffle_records=7, cache_records=False)
    found = Pipeline(CachedSource(tmp_path, manifest), Config(data=data), 0, 4)
    assert found.held_bytes == 7 * sum(found.record_bytes)
    assert found.record_bytes[0] < found.record_bytes[1]


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


@pytest.mark.parametrize(
    ("before", "after", "is_disk_measured"),
    [(1.0, 0.0, True), (0.3, 0.09, True), (1.0, 1.0, False), (None, None, False)],
)
def test_disk_and_page_cache_are_told_apart_or_said_not_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: float | None, after: float | None, is_disk_measured: bool
) -> None:
    file = tmp_path / "shard"
    file.write_bytes(bytes(4 << 20))
    shares = iter((before, after))
    monkeypatch.setattr(machine, "_cached_share", lambda _files: next(shares))
    speed = measure_disk([file], 64 << 20)
    assert speed.cached_mb_per_second > 0
    assert speed.cached_share == before
    assert (speed.disk_mb_per_second is not None) is is_disk_measured


def test_the_part_of_a_file_in_the_page_cache_is_a_share_or_not_known(tmp_path: Path) -> None:
    file = tmp_path / "shard"
    file.write_bytes(bytes(4 << 20))
    share = machine._cached_share([file])
    assert share is None or 0.0 <= share <= 1.0


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

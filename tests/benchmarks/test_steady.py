"""The judgement of benchmarks/steady.py; its run takes long and is started by hand."""

import sys
from pathlib import Path

import pytest

from benchmarks.steady import Sample, compare, watch_run


def samples(grown: float, threads_at_the_end: int) -> list[Sample]:
    """Return a hundred samples that jump during the warm-up and grow evenly afterwards."""
    warm = [Sample(step, 10 * step, 3, 1) for step in range(0, 200, 10)]
    return warm + [
        Sample(step, round(100_000 * (1 + grown * (step - 200) / 800)), 20, 9 if step < 900 else threads_at_the_end)
        for step in range(210, 1_001, 10)
    ]


def test_growth_during_the_warm_up_does_not_count() -> None:
    figures = compare(samples(0.0, 9), 1_000)
    assert {name: figure["growth"] for name, figure in figures.items()} == {
        "resident_kib": 0.0,
        "descriptors": 0.0,
        "threads": 0.0,
    }


def test_growth_counts_from_the_warm_up_to_the_end() -> None:
    figures = compare(samples(0.08, 12), 1_000)
    # Between the middles of the second and the last fifth, which are 600 of 800 steps apart.
    assert figures["resident_kib"]["growth"] == pytest.approx(0.06, abs=0.005)
    assert figures["threads"]["growth"] > 0.0
    assert figures["descriptors"]["growth"] == 0.0


def test_a_run_that_is_too_short_to_judge_says_so() -> None:
    with pytest.raises(SystemExit, match="0 samples after the warm-up"):
        compare([Sample(10, 1, 1, 1)], 1_000)


def test_a_run_that_fails_is_not_steady(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no room')"]
    with pytest.raises(SystemExit, match="the run ended with 1: no room"):
        list(watch_run(failing, tmp_path / "metrics.jsonl", tmp_path / "stderr"))

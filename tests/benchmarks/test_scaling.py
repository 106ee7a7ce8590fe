"""The computed figures are consistent, and docs/scaling.md holds the printed tables."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scaling import Constants, Scale

ROOT = Path(__file__).parents[2]


def test_the_document_holds_what_the_command_prints() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "scaling.py"], capture_output=True, text=True, check=True
    )
    document = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    for part in done.stdout.strip().split("\n\n"):
        assert part in document


def test_sizes_grow_with_the_hours_and_not_with_the_gpus() -> None:
    small, large = Scale(Constants(), 1_000, 1), Scale(Constants(), 100_000, 64)
    assert large.cache_tb == pytest.approx(100 * small.cache_tb)
    assert large.preprocess_hours == pytest.approx(100 * small.preprocess_hours)
    assert small.cache_tb == pytest.approx(1_000 * 3_600 / 5.95 * 141_764 / 1e12)


def test_one_gpu_adds_nothing_up_and_a_second_machine_pays_for_its_network() -> None:
    constants = Constants(network_latency_us=0.0)
    gradient_bytes = constants.parameters_m * 1e6 * 4
    assert Scale(constants, 1, 1).reduce_ms == 0.0
    assert Scale(constants, 1, 8).reduce_ms == pytest.approx(1e3 * 2 * 7 / 8 * gradient_bytes / 200e9)
    between = Scale(constants, 1, 16).reduce_ms - Scale(constants, 1, 8).reduce_ms
    assert between == pytest.approx(1e3 * gradient_bytes / 12.5e9)
    assert Scale(constants, 1, 9).machines == 2


def test_machines_share_what_the_store_gives() -> None:
    constants = Constants(store_gb_per_s=2.0, store_total_gb_per_s=8.0)
    four, eight = Scale(constants, 1, 32), Scale(constants, 1, 64)
    assert eight.store_ms == pytest.approx(2 * four.store_ms)
    assert four.store_ms == pytest.approx(1e3 * 8 * constants.clips_per_gpu * constants.record_bytes / 2e9)


def test_the_slowest_part_sets_the_step() -> None:
    quick = Constants(device_share=1.0, device_tflops=1e6)
    assert Scale(quick, 1, 8).step_ms == Scale(quick, 1, 8).disk_ms
    scale = Scale(Constants(), 1, 8)
    assert scale.step_ms == scale.compute_ms + scale.reduce_ms
    assert replace(scale, gpus=1).efficiency == 1.0
    assert scale.epoch_hours == pytest.approx(scale.clips / 256 * scale.step_ms / 3.6e6)

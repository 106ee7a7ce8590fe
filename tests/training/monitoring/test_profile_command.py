"""`xtts train --profile` as a real command."""

from collections.abc import Callable
from pathlib import Path

from tests.perf.commands import run_command
from xtts_pipeline.cache.format.manifest import Manifest


def test_a_profiled_run_lists_its_most_expensive_operations_without_warnings(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    write_cache(tmp_path / "cache", val=0)
    options = ["--cache", tmp_path / "cache", "--output", tmp_path / "run", "--steps", 12, "--profile", 3]
    done = run_command("none", "train", *options, settings=("training.jit_compile=false",))
    assert done.exit_code == 0
    profile = done.result["profile"]
    assert profile["steps"] == 3
    assert len(profile["operations"]) == 10
    costs = [operation["ms_per_step"] for operation in profile["operations"]]
    assert costs == sorted(costs, reverse=True)
    assert all(operation["calls"] >= 3 for operation in profile["operations"])
    assert f"3 steps traced; tensorboard --logdir {tmp_path / 'run' / 'profile'}" in done.stderr
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))
    assert done.result["device_share"] is None or 0.0 < done.result["device_share"] <= 1.0
    # A healthy run has no warning and no shape that the step was not compiled for.
    assert (done.result["warnings"], done.result["unexpected_shapes"], done.result["traces"]) == ([], 0, 1)
    assert all(event["is_expected"] for event in done.result["compilation_events"])
    assert "warning" not in done.stderr

"""Measure what the retrace monitor of `xtts train` costs per step, on a cache and a config.

    python benchmarks/monitor.py --cache cache --config two-cores

The monitor looks up a batch's shapes among those the step was compiled for, and reads trace counts and XLA's log. Both
are timed on real batches over --calls calls, in rounds of 100, between two halves of --steps real compiled steps; the
share is of their median. The step must compile: with `training.jit_compile=false` XLA logs nothing.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.system.runtime import NativeLog, prepare_environment
from xtts_pipeline.training.settings import training_config

CALLS_A_ROUND = 100


def seconds_a_call(
    function: Callable[[], object], calls: int, clock: Callable[[], float] = time.perf_counter
) -> np.ndarray:
    """Return the mean seconds of a call in each round of 100, float64 [rounds], at least one round."""
    means = np.empty(max(calls // CALLS_A_ROUND, 1))
    for number in range(len(means)):
        started = clock()
        for _ in range(CALLS_A_ROUND):
            function()
        means[number] = (clock() - started) / CALLS_A_ROUND
    return means


def cost(look_seconds: np.ndarray, step_seconds: np.ndarray) -> dict[str, float]:
    """Return the median and p95 monitor time in us, the median step in ms, and the monitor's share of the step."""
    look, step = float(np.median(look_seconds)), float(np.median(step_seconds))
    return {
        "monitor_us": 1e6 * look,
        "monitor_p95_us": 1e6 * float(np.percentile(look_seconds, 95)),
        "step_ms": 1e3 * step,
        "share": look / step,
        # For shorter steps the monitor takes over a thousandth.
        "least_step_ms_for_a_thousandth": 1e6 * look,
    }


def measure(cache: Path, config: Config, steps: int, calls: int) -> dict[str, float]:
    """Return the cost on a cache, with the figures of `cost`."""
    with NativeLog() as log:
        from xtts_pipeline.data.cached import CachedSource
        from xtts_pipeline.perf.trial import Trial
        from xtts_pipeline.training.monitoring.compilations import CompilationMonitor

        monitor = CompilationMonitor(log, is_strict=True, is_compiled=config.training.jit_compile)
        trial = Trial(CachedSource(cache, load_manifest(cache)), config, monitor)
        batch = next(trial.batches)
        trial.run(batch)

        def check() -> None:
            trial.step.compiled.function_of(batch)
            monitor.check(1)

        def half() -> list[float]:
            taken = [trial.take_step() for _ in range(max(steps // 2, 1))]
            return [step.busy for step in taken if not step.is_compiling]

        before = half()
        checks = seconds_a_call(check, calls)
        return cost(checks, np.array([*before, *half()]))


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--config", dest="configs", action="append", default=[])
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--calls", type=int, default=5_000)
    arguments = parser.parse_args()
    prepare_environment()
    config = training_config(load_manifest(arguments.cache), arguments.configs, arguments.overrides, steps=None)
    print(json.dumps(measure(arguments.cache, config, arguments.steps, arguments.calls), indent=1))


if __name__ == "__main__":
    main()

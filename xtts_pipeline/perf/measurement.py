"""Measure the real step or the real pipeline in a process of its own: `python -m xtts_pipeline.perf.measurement`.

A request comes as JSON on stdin, the figures go as JSON to stdout. What runs out of memory here takes no run with it, and what is compiled
here is forgotten with the process.
"""

import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.system.runtime import NativeLog

if TYPE_CHECKING:
    from xtts_pipeline.data.cached import CachedSource
    from xtts_pipeline.perf.trial import StepTime

# Fewer steps would say little about one that another program disturbs.
_LEAST_STEPS = 3


@dataclass(frozen=True)
class Request:
    """What to measure: the step of `config`, or, where `inputs` has any, the pipeline with each of its `data` settings."""

    cache: Path
    config: Config
    seconds: float
    inputs: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> str:
        """Return it as `from_json` reads it."""
        config = self.config.model_dump(mode="json")
        return json.dumps({"cache": str(self.cache), "config": config, "seconds": self.seconds, "inputs": self.inputs})

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """Return the request that `to_json` wrote."""
        found = json.loads(text)
        return cls(
            Path(found["cache"]), Config.model_validate(found["config"]), found["seconds"], tuple(found["inputs"])
        )


def measure_step(source: "CachedSource", config: Config, log: NativeLog, seconds: float) -> dict[str, Any]:
    """Run the compiled step for so many seconds; return clips a second, ms, the first step's seconds and the most memory taken."""
    import tensorflow as tf

    from xtts_pipeline.perf.trial import Trial
    from xtts_pipeline.training.monitoring.compilations import CompilationMonitor

    try:
        trial = Trial(source, config, CompilationMonitor(log, is_strict=False, is_compiled=config.training.jit_compile))
        first = trial.take_step()
        warm: list[StepTime] = []
        end = time.perf_counter() + seconds
        while len(warm) < _LEAST_STEPS or time.perf_counter() < end:
            step = trial.take_step()
            if not step.is_compiling:
                warm.append(step)
    except tf.errors.ResourceExhaustedError:
        return {"fits": False}
    busy = [step.host + step.compute for step in warm]
    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "fits": True,
        "examples_per_second": sum(step.rows for step in warm) / sum(busy),
        "step_ms": 1e3 * sorted(busy)[len(busy) // 2],
        "first_step_seconds": first.seconds,
        "steps": len(warm),
        "peak_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"] if on_gpu else 1024 * kilobytes,
        "on_gpu": on_gpu,
    }


def measure_inputs(
    source: "CachedSource", config: Config, inputs: Sequence[dict[str, Any]], seconds: float
) -> list[float]:
    """Run the pipeline with each of these settings for so many seconds, alone; return the records a second of each.

    Of a cache with buckets the one with the most clips is read.
    """
    from xtts_pipeline.data.batching import bucket_signatures
    from xtts_pipeline.perf.diagnose.pipeline import Pipeline

    signatures = bucket_signatures(source.identity(), source.specs, config.training)
    bucket = max(range(len(signatures)), key=lambda number: source.manifest.split_records("train", number))
    rows = signatures[bucket].tokens.shape[0]
    rates = []
    for changed in inputs:
        batches = iter(Pipeline(source, config, bucket, rows).with_data(**changed).whole())
        next(batches)
        done, started = 0, time.perf_counter()
        while not done or time.perf_counter() - started < seconds:
            next(batches)
            done += rows
        rates.append(done / (time.perf_counter() - started))
    return rates


def main() -> None:
    """Answer the request on stdin."""
    request = Request.from_json(sys.stdin.read())
    with NativeLog() as log:
        from xtts_pipeline.data.cached import CachedSource

        source = CachedSource(request.cache, load_manifest(request.cache))
        if request.inputs:
            answer: Any = measure_inputs(source, request.config, request.inputs, request.seconds)
        else:
            answer = measure_step(source, request.config, log, request.seconds)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()

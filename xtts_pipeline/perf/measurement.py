"""Measure the training step or the input pipeline in another process: `python -m xtts_pipeline.perf.measurement`.

Reads a request as JSON from stdin and writes the results as JSON to stdout. A process that runs out of memory harms no
training, and its memory and compiled programs end with it.
"""

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.system.runtime import NativeLog


@dataclass(frozen=True)
class Request:
    """Measure the step of `config`, or, if `inputs` are given, the pipeline with each of these `data` settings."""

    cache: Path
    config: Config
    seconds: float
    inputs: tuple[dict[str, Any], ...] = ()


REQUEST = TypeAdapter(Request)


def measure_in_process(request: Request) -> Any:
    """Return the result of `measure_step` or, for `inputs`, of `measure_inputs`, from a new process.

    A measurement of the step that the system kills, as it does without memory, returns `{"fits": False}`.
    Raises TrainingError if the process fails otherwise.
    """
    command = [sys.executable, "-m", "xtts_pipeline.perf.measurement"]
    done = subprocess.run(command, input=REQUEST.dump_json(request), capture_output=True, check=False)
    if done.returncode < 0 and not request.inputs:
        return {"fits": False}
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        remedy = "set training.autotune=false to train without it"
        raise TrainingError(f"training.autotune: measuring failed ({last}); {remedy}")
    return json.loads(done.stdout)


def main() -> None:
    """Answer the request on stdin."""
    request = REQUEST.validate_json(sys.stdin.read())
    with NativeLog() as log:
        # By name, because TensorFlow must not be imported before its log is redirected.
        cached = importlib.import_module("xtts_pipeline.data.cached")
        source = cached.CachedSource(request.cache, load_manifest(request.cache))
        if request.inputs:
            pipeline = importlib.import_module("xtts_pipeline.perf.pipeline")
            answer = pipeline.measure_inputs(source, request.config, request.inputs, request.seconds)
        else:
            trial = importlib.import_module("xtts_pipeline.perf.trial")
            answer = trial.measure_step(log, source, request.config, request.seconds)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()

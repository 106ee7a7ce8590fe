"""Compare the estimate of training memory with XLA's and the machine's figures, by batch size.

    python benchmarks/memory.py --cache cache --config small --batches 4 8 16 32

Each batch size is a real `xtts train` of a few steps in a process of its own, with validation, synthesis and a final
checkpoint. `program` is the memory that XLA allots to the compiled step, from its log: network, moments, batch and
temporaries. `peak` is the highest use: resident memory of the process on a CPU, TensorFlow's allocator on a GPU. A
ratio is estimate over measurement. A program from the compile cache has no figure of XLA; to compile anew, set
TF_XLA_FLAGS=--tf_xla_persistent_cache_directory=
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.training.checks import training_memory
from xtts_pipeline.training.settings import training_config


def measure(cache: Path, configs: list[str], settings: list[str], steps: int) -> dict[str, Any]:
    """Train in a new process and return the run's summary. Raises CalledProcessError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "xtts_pipeline",
            "train",
            "--cache",
            str(cache),
            "--output",
            f"{folder}/run",
            "--json",
        ]
        command += [
            "--steps",
            str(steps),
            *(f"--config={name}" for name in configs),
            *(f"--set={setting}" for setting in settings),
        ]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def row(cache: Path, configs: list[str], settings: list[str], batch_size: int, steps: int) -> str:
    """Return the table's line of one batch size."""
    settings = [*settings, f"training.batch_size={batch_size}"]
    manifest = load_manifest(cache)
    config = training_config(manifest, configs, settings, steps)
    estimate = training_memory(manifest, config)
    program = estimate.network_bytes + batch_size // config.training.accumulation_steps * estimate.row_bytes
    measured = measure(cache, configs, settings, steps)["memory"]
    pairs = ((program, measured["program_bytes"]), (measured["estimated_bytes"], measured["peak_bytes"]))
    cells = [
        cell
        for estimated, found in pairs
        for cell in (_megabytes(estimated), _megabytes(found), _ratio(estimated, found))
    ]
    return f"| {batch_size} | {' | '.join(cells)} |"


def _megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.0f}"


def _ratio(estimated: int, found: int | None) -> str:
    return "" if not found else f"{estimated / found:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 8, 16, 32])
    parser.add_argument("--steps", type=int, default=2)
    arguments = parser.parse_args()
    print(
        "| clips | program, estimated MB | by XLA | ratio | all, estimated MB | peak | ratio |\n"
        "|---|---|---|---|---|---|---|"
    )
    for batch_size in arguments.batches:
        print(row(arguments.cache, arguments.config, arguments.set, batch_size, arguments.steps), flush=True)


if __name__ == "__main__":
    main()

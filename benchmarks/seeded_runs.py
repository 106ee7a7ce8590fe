"""Train with several seeds as a measure of chance, and compare another run with them."""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_DEVIATIONS = 2.0


@dataclass(frozen=True)
class Ended:
    """The reports, skipped updates and summary of a finished run."""

    reports: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    summary: dict[str, Any]


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the options of the runs to a parser and parse the command line. Exits with 2 if there are too few seeds."""
    parser.add_argument("--steps", type=int, default=400, help="of each run; a few epochs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--config", action="append", default=[], help="a preset or YAML file, as xtts train takes it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="more settings of the runs"
    )
    arguments = parser.parse_args()
    if len(arguments.seeds) < 2:
        parser.error("--seeds: a deviation needs two or more")
    return arguments


def run_beside_seeds(other: Path, cache: Path, arguments: argparse.Namespace) -> tuple[Ended, list[Ended]]:
    """Train on the other cache with the first seed and on the cache with each; return the one run and the others."""
    given = (arguments.steps, arguments.config, arguments.set)
    with tempfile.TemporaryDirectory() as folder:
        beside = run(other, Path(folder) / "other", *given, arguments.seeds[0])
        return beside, [run(cache, Path(folder) / f"seed-{seed}", *given, seed) for seed in arguments.seeds]


def run(cache: Path, folder: Path, steps: int, configs: Sequence[str], settings: Sequence[str], seed: int) -> Ended:
    """Train. Raises SystemExit if the run fails; its error is on stderr."""
    often = max(1, steps // 50)
    training = {
        "seed": seed,
        "log_every": often,
        "evaluate_every": 10 * often,
        "save_every": steps,
        "sample_every_evaluations": "null",
    }
    # The user's settings come last, except for the seed, in which the runs differ.
    overrides = [*(f"training.{name}={value}" for name, value in training.items()), *settings, f"training.seed={seed}"]
    options = ["--cache", str(cache), "--output", str(folder), "--steps", str(steps), "--json"]
    options += [*(f"--config={config}" for config in configs), *(f"--set={override}" for override in overrides)]
    done = subprocess.run(
        [sys.executable, "-m", "xtts_pipeline", "train", *options], stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"the run of seed {seed} on {cache} ended with {done.returncode}; its own message stands above"
        )
    return Ended(lines(folder / "metrics.jsonl"), lines(folder / "skipped.jsonl"), json.loads(done.stdout))


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the content of a JSON Lines file; an empty list if it does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def figures(reports: Sequence[Mapping[str, Any]], after: float) -> dict[str, float]:
    """Return the training loss of the steps after `after`, and the last and best validation loss if there is one."""

    def losses(split: str, first: float) -> list[float]:
        return [
            report["loss"]
            for report in reports
            if report["split"] == split and report["step"] > first and report["loss"] is not None
        ]

    last, validated = losses("train", after), losses("val", 0)
    found = {"train_loss": statistics.mean(last) if last else math.nan}
    return {**found, "last_val_loss": validated[-1], "best_val_loss": min(validated)} if validated else found


def compare(seeds: Sequence[Mapping[str, float]], other: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return for each figure the seeds' values, mean and deviation, and the other run's distance in deviations."""
    compared = {}
    for name, value in other.items():
        values = [ended[name] for ended in seeds]
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        off = 0.0 if value == mean else (value - mean) / deviation if deviation else math.inf
        compared[name] = {"seeds": values, "mean": mean, "deviation": deviation, "other": value, "deviations_off": off}
    return compared


def is_within(compared: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether each figure lies within two deviations of the seeds' mean."""
    return all(abs(figure["deviations_off"]) <= MOST_DEVIATIONS for figure in compared.values())

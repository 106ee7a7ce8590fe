"""Trainings that differ in their seed, as a measure of chance for another one: what each ends with, and how far off the other is."""

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_DEVIATIONS = 2.0
# Where a run's last fifth begins.
LAST_SHARE = 0.8


@dataclass(frozen=True)
class Ended:
    """What a run left behind: its reports, its updates that were left out, and its summary."""

    reports: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    summary: dict[str, Any]


def run(cache: Path, folder: Path, steps: int, configs: Sequence[str], settings: Sequence[str], seed: int) -> Ended:
    """Train. Raises SystemExit if the run fails; its own words are on stderr."""
    often = max(1, steps // 50)
    training = {
        "seed": seed,
        "log_every": often,
        "evaluate_every": 10 * often,
        "save_every": steps,
        "speak_every_evaluations": "null",
    }
    # What is given comes last, but for the seed, which is what the runs differ in.
    overrides = [*(f"training.{name}={value}" for name, value in training.items()), *settings, f"training.seed={seed}"]
    options = ["--cache", str(cache), "--output", str(folder), "--steps", str(steps), "--json"]
    options += [*(f"--config={config}" for config in configs), *(f"--set={override}" for override in overrides)]
    done = subprocess.run([sys.executable, "-m", "xtts_pipeline", "train", *options], stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"the run of seed {seed} on {cache} ended with {done.returncode}; its own message stands above")
    return Ended(lines(folder / "metrics.jsonl"), lines(folder / "skipped.jsonl"), json.loads(done.stdout))


def lines(path: Path) -> list[dict[str, Any]]:
    """Return what a file of JSON lines holds; nothing where there is none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def figures(reports: Sequence[Mapping[str, Any]], after: float) -> dict[str, float]:
    """Return the losses that a run ends with: of training in the steps after this one, of validation where there were evaluations."""

    def losses(split: str, first: float) -> list[float]:
        return [report["loss"] for report in reports if report["split"] == split and report["step"] > first and report["loss"] is not None]

    last, validated = losses("train", after), losses("val", 0)
    found = {"train_loss": statistics.mean(last) if last else math.nan}
    return {**found, "last_val_loss": validated[-1], "best_val_loss": min(validated)} if validated else found


def compare(seeds: Sequence[Mapping[str, float]], other: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Return, for each figure, those of the seeds, their mean and sample deviation, and how many deviations off the other run is."""
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

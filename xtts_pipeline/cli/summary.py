"""The report of a finished training run, as text."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xtts_pipeline.cli.echo import echo
from xtts_pipeline.system.terminal import columns_of, duration_text, fold, join_lines, shell_word
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders
from xtts_pipeline.training.checkpoints.state import read_run_state

# A run whose best evaluation is in this share of its steps has learned its clips by heart in the others.
LATEST_OVERFITTING = 2 / 3
_MEMORY_PARTS = (("estimated", "estimated_bytes"), ("compiled step", "program_bytes"))


def print_summary(run: Path, summary: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the summary on stdout."""
    if as_json:
        echo(json.dumps(summary, ensure_ascii=False))
    else:
        echo(*fold(summary_text(run, summary), columns_of(sys.stdout)).split("\n"))


def summary_text(run: Path, summary: Mapping[str, Any]) -> str:
    """Return the report of a finished run; for a worker that is not the chief, where the summary is."""
    if "loss" not in summary:
        return f"run            {run}\nsteps          {summary['steps']}; the first worker has the summary"
    stopped = " (stopped early)" if summary["stopped_early"] else ""
    resumed = summary["resumed_at_steps"]
    times = "once, after" if len(resumed) == 1 else f"{len(resumed)} times, last after"
    resumed_text = f", resumed {times} step {resumed[-1]}" if resumed else ""
    first, last = (
        "none finite" if summary["loss"][key] is None else f"{summary['loss'][key]:.3f}" for key in ("first", "last")
    )
    best, origin = summary["best"], summary["origin"]
    best_text = "none: no evaluation's weights are in best/"
    if best:
        best_text = f"step {best['step']}, validation {best['metric']} {best['value']:.3f}"
    lines = [
        f"run            {run}",
        f"steps          {summary['steps']}{stopped}{resumed_text}",
        f"parameters     {summary['parameters'] / 1e6:.1f} M",
        f"loss           {first} -> {last}",
        f"weights        sha256 {summary['weights_sha256'][:16]}...",
        f"best           {best_text}",
    ]
    if best and not stopped and best["step"] <= LATEST_OVERFITTING * summary["steps"]:
        since = summary["steps"] - best["step"]
        lines.append(
            f"overfitting    none was better in the {since} steps since; try fewer training.steps, or more clips"
        )
    if origin:
        lines.append(f"begun with     {origin['checkpoint']}, {origin['kept_share']:.1%} of the network")
    for key in ("traces", "compilations"):
        counts = ", ".join(f"{name} {count[key]}" for name, count in summary["by_function"].items())
        lines.append(f"{key:<14} {summary[key]}  ({counts or 'nothing is compiled: training.debug_eager'})")
    lines += [*_speed_lines(summary), *_cost_lines(summary), *_operation_lines(summary)]
    lines.append(f"next           {_next_command(run, summary)}")
    return join_lines(lines)


def _speed_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return step time, data wait and throughput, unless the process took no step."""
    step, device = summary["step_ms"], summary["device_share"]
    if not step:
        return []
    # A run too short for a report without a compilation has no device share.
    device_text = "" if device is None else f", device {device:.0%}"
    examples, frames = summary["examples_per_second"], summary["mel_frames_per_second"]
    return [
        f"step time      {step['mean']:.0f} ms +/- {step['std']:.0f} (p50 {step['p50']:.0f}, p95 {step['p95']:.0f})",
        f"data wait      {summary['data_wait_share']:.2%}{device_text}",
        f"throughput     {examples:.1f} examples/s, {frames:.0f} mel frames/s",
    ]


def _cost_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the start-up time by part and the memory."""
    parts = ", ".join(
        f"{part} {seconds:.1f}" for part, seconds in summary["startup_seconds"].items() if seconds >= 0.05
    )
    memory = [f"{summary['memory']['peak_bytes'] / 1e9:.2f} GB at most"]
    memory += [f"{name} {summary['memory'][key] / 1e9:.2f}" for name, key in _MEMORY_PARTS if summary["memory"][key]]
    # A run that went on after its last step takes no step, so its start has none.
    label = "first step     done after" if summary["startup_seconds"].get("run") else "start         "
    return [
        f"{label} {duration_text(sum(summary['startup_seconds'].values()))} ({parts})",
        f"memory         {', '.join(memory)}",
    ]


def _operation_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the table of the most expensive operations, if steps were traced."""
    profile = summary["profile"]
    if not profile:
        return []
    lines = [
        f"profile        {profile['steps']} steps in {profile['folder']}",
        f"{'ms/step':>9}  {'share':>6}  {'calls':>6}  operation",
    ]
    return lines + [
        f"{operation['ms_per_step']:>9.2f}  {operation['share']:>6.1%}  {operation['calls']:>6}  {operation['name']}"
        for operation in profile["operations"]
    ]


def _next_command(run: Path, summary: Mapping[str, Any]) -> str:
    name = shell_word(run)
    if summary["network"] == "vocoder":
        return f"xtts use-vocoder --run RUN --vocoder {name}"
    # Single quotes: within double ones an interactive shell may take "!" for a word of its history.
    return f"xtts synthesize --run {name} --text '{_example_text(run)}' --output speech.wav"


def _example_text(run: Path) -> str:
    """Return a text to speak, without the marks that the run lacks; TEXT for a run of other letters."""
    text = "Hello, world!"
    if not checkpoint_folders(run):
        return text
    symbols = read_run_state(run).cache.symbols
    if not any(letter.isalpha() and letter in symbols for letter in text):
        return "TEXT"
    return "".join(letter for letter in text if letter.isalpha() or letter in symbols)

"""A run's summary as text: what `xtts train` prints at its end."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MEMORY_PARTS = (("estimated", "estimated_bytes"), ("compiled step", "program_bytes"))


def summary_text(run: Path, summary: Mapping[str, Any]) -> str:
    """Return a run's summary for people; of a worker that is not the chief, where it is."""
    if "loss" not in summary:
        return f"run            {run}\nsteps          {summary['steps']}; the first worker has the summary"
    step, loss = summary["step_ms"] or {}, summary["loss"]
    stopped = " (stopped early)" if summary["stopped_early"] else ""
    lines = [
        f"run            {run}",
        f"steps          {summary['steps']}{stopped}{_resumed_text(summary)}, first after {summary['first_step_seconds']:.1f} s",
        f"parameters     {summary['parameters'] / 1e6:.1f} M",
        f"loss           {_number(loss['first'])} -> {_number(loss['last'])}",
        f"weights        sha256 {summary['weights_sha256']}",
        f"best           {_best_text(summary)}",
        *_origin_lines(summary),
        f"traces         {summary['traces']}  ({_by_function(summary, 'traces')})",
        f"compilations   {summary['compilations']}  ({_by_function(summary, 'compilations')})",
    ]
    if step:
        lines += [
            f"step time      {step['mean']:.0f} ms +/- {step['std']:.0f} (p50 {step['p50']:.0f}, p95 {step['p95']:.0f})",
            f"data wait      {summary['data_wait_share']:.2%}{_device_text(summary)}",
            f"throughput     {summary['examples_per_second']:.1f} examples/s, {summary['mel_frames_per_second']:.0f} mel frames/s",
        ]
    return "\n".join([*lines, *_cost_lines(summary), *_operation_lines(summary)])


def _number(loss: float | None) -> str:
    """Return a loss, or that no update had one that was finite."""
    return "none finite" if loss is None else f"{loss:.3f}"


def _cost_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return where the time to the first step went and what memory was in use, where the summary has them: older ones do not."""
    if "startup_seconds" not in summary:
        return []
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in summary["startup_seconds"].items())
    memory = [f"{summary['memory']['peak_bytes'] / 1e9:.2f} GB at most"]
    memory += [f"{name} {summary['memory'][key] / 1e9:.2f}" for name, key in _MEMORY_PARTS if summary["memory"][key]]
    return [
        f"start          {sum(summary['startup_seconds'].values()):.1f} s ({parts})",
        f"memory         {', '.join(memory)}",
    ]


def _operation_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the table of the costliest operations, where steps were traced."""
    profile = summary.get("profile")
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


def _best_text(summary: Mapping[str, Any]) -> str:
    best = summary["best"]
    return (
        f"step {best['step']}, validation loss {best['val_loss']:.3f}"
        if best
        else "none: no evaluation's weights are in best/"
    )


def _origin_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return where a run that did not begin with nothing began."""
    origin = summary.get("origin")
    return [f"begun with     {origin['checkpoint']}, {origin['kept_share']:.1%} of the network"] if origin else []


def _resumed_text(summary: Mapping[str, Any]) -> str:
    resumed = summary["resumed_at_steps"]
    return f", resumed {len(resumed)} times, last after step {resumed[-1]}" if resumed else ""


def _device_text(summary: Mapping[str, Any]) -> str:
    """Return how busy the device was; nothing of a run too short for a report without a compilation."""
    share = summary["device_share"]
    return "" if share is None else f", device {share:.0%}"


def _by_function(summary: Mapping[str, Any], key: str) -> str:
    found = ", ".join(f"{name} {count[key]}" for name, count in summary["by_function"].items())
    return found or "nothing is compiled: training.debug_eager"

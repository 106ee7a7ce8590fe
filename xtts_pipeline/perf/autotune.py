"""Choose batch size, accumulation, workers and prefetch by short runs of the real step and pipeline in other processes.

No TensorFlow here: only the measuring processes import it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.cache.build.shapes import Shape, auto_shapes, plan_shapes
from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.schedule import is_filled
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.perf.measurement import Request, measure_in_process
from xtts_pipeline.system.machine import memory_limit_bytes, usable_cores

# Another batch size changes the training, so it must gain more. Another way to read does not.
LEAST_BATCH_GAIN, LEAST_INPUT_GAIN = 1.10, 1.05
# A pipeline that is this many times faster than the step keeps its settings.
ENOUGH_HEADROOM = 4.0
# Share of the memory at the start of tuning; the rest is for the page cache and the run's buffers.
MOST_MEMORY_SHARE = 0.8
# Shares of the time: the step gets most, because it compiles for each candidate.
_STEP_SHARE, _ONE_STEP_SHARE, _ONE_INPUT_SHARE = 0.75, 0.1, 0.03
_LEAST_SECONDS = 0.2
_MOST_HALVINGS = 3


@dataclass
class Tuning:
    """The chosen settings in `config`, every measurement in `report`, and lines for the user."""

    config: Config
    report: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def choose(self, section: str, key: str, value: Any, why: str) -> None:
        """Set `section.key` to the value if it differs, and record the reason."""
        before = getattr(getattr(self.config, section), key)
        if before == value:
            return
        self.config = self.config.with_settings(section, **{key: value})
        self.report.setdefault("chosen", {})[f"{section}.{key}"] = {"before": before, "after": value, "why": why}
        self.lines.append(f"{section}.{key} {before} -> {value}: {why}")


def tune(
    cache: Path,
    manifest: Manifest,
    config: Config,
    lengths: tuple[np.ndarray, np.ndarray],
    say: Callable[[str], object],
) -> Tuning:
    """Measure for about `training.autotune_seconds`, or longer if the first compilation takes longer, and choose.

    `lengths` are the tokens and frames of every clip, int [clips]. Raises TrainingError if no step fits into memory.
    """
    tuning, seconds, started = Tuning(config), config.training.autotune_seconds, time.monotonic()
    tuning.report = {
        "seconds_asked": seconds,
        "memory_bytes": memory_limit_bytes(),
        "cores": usable_cores().to_json(),
        "chosen": {},
    }
    step_rate = _tune_batch(cache, manifest, tuning, seconds, say)
    _tune_input(cache, tuning, seconds, step_rate, say)
    _estimate_buckets(manifest, tuning, lengths)
    tuning.report["seconds"] = round(time.monotonic() - started, 1)
    return tuning


def _tune_batch(cache: Path, manifest: Manifest, tuning: Tuning, seconds: float, say: Callable[[str], object]) -> float:
    """Choose batch size and accumulation; return the clips per second of the chosen step."""
    deadline = time.monotonic() + _STEP_SHARE * seconds
    one = max(_ONE_STEP_SHARE * seconds, _LEAST_SECONDS)
    tuning.report["steps"] = measured = []

    def measure(batch_size: int, parts: int) -> dict[str, Any]:
        config = tuning.config.with_settings("training", batch_size=batch_size, accumulation_steps=parts)
        began = time.monotonic()
        answer = measure_in_process(Request(cache, config, one))
        found = {
            "batch_size": batch_size,
            "accumulation_steps": parts,
            **answer,
            "took_seconds": round(time.monotonic() - began, 1),
        }
        measured.append(found)
        say(f"autotune: {_step_text(found)}")
        return found

    size, parts = tuning.config.training.clips_per_batch, tuning.config.training.accumulation_steps
    best = measure(size, parts)
    for _ in range(_MOST_HALVINGS):
        if best["fits"] or size % (2 * parts):
            break
        parts *= 2
        best = measure(size, parts)
    if not best["fits"]:
        problem = f"a step of training.batch_size={size} in {parts} parts does not fit into memory"
        raise TrainingError(f"training.autotune: {problem}; set a smaller one")
    tuning.choose(
        "training",
        "accumulation_steps",
        parts,
        "the whole batch at once does not fit into memory; the update is the same",
    )
    smaller = [size // 2] if size % (2 * parts) == 0 else []
    for candidates in ([size * 2, size * 4, size * 8], smaller):
        for candidate in candidates:
            late = time.monotonic() + best["took_seconds"] > deadline
            if (
                late
                or not is_filled(manifest, candidate, parts)
                or not _may_fit(best, candidate, tuning.report["memory_bytes"])
            ):
                break
            found = measure(candidate, parts)
            if not found["fits"] or found["examples_per_second"] < LEAST_BATCH_GAIN * best["examples_per_second"]:
                break
            best = found
        if best["batch_size"] != size:
            break
    gain = best["examples_per_second"] / next(found["examples_per_second"] for found in measured if found["fits"])
    chosen = best["batch_size"]
    why = (
        f"{gain:.2f} times the clips a second. Each update is now the mean over {chosen} clips, not {size}, at the "
        f"same learning rate, so results differ from a run of {size}; training.autotune=false keeps {size}"
    )
    tuning.choose("training", "batch_size", chosen, why)
    return float(best["examples_per_second"])


def _tune_input(cache: Path, tuning: Tuning, seconds: float, step_rate: float, say: Callable[[str], object]) -> None:
    data = tuning.config.data
    given: dict[str, Any] = {"num_workers": data.num_workers, "prefetch_buffer_size": data.prefetch_buffer_size}
    cores = max(int(usable_cores().usable), 1)
    others: dict[str, tuple[Any, ...]] = {"num_workers": ("auto", cores), "prefetch_buffer_size": ("auto", 2, 8)}
    inputs = [
        given,
        *({**given, key: value} for key, values in others.items() for value in values if value != given[key]),
    ]
    one = max(_ONE_INPUT_SHARE * seconds, _LEAST_SECONDS)
    rates = measure_in_process(Request(cache, tuning.config, one, tuple(inputs)))
    tuning.report["inputs"] = [{**tried, "records_per_second": rate} for tried, rate in zip(inputs, rates, strict=True)]
    headroom = rates[0] / step_rate
    tuning.report["headroom"] = headroom
    say(f"autotune: {rates[0]:.0f} records/s come as the pipeline is set, {headroom:.1f} times what the step takes")
    if headroom >= ENOUGH_HEADROOM:
        return
    for key in others:
        changed = [(rate, tried[key]) for tried, rate in zip(inputs, rates, strict=True) if tried[key] != given[key]]
        rate, value = max(changed, key=lambda pair: pair[0])
        if rate >= LEAST_INPUT_GAIN * rates[0]:
            tuning.choose("data", key, value, f"{rate / rates[0]:.2f} times the records a second")


def _estimate_buckets(manifest: Manifest, tuning: Tuning, lengths: tuple[np.ndarray, np.ndarray]) -> None:
    """Estimate the gain of other buckets. They are part of the cache, so they are suggested and not changed."""
    now = plan_shapes([Shape(spec.max_text_length, spec.max_mel_frames) for spec in bucket_specs(manifest)], *lengths)
    auto = plan_shapes(auto_shapes(now.shapes[-1], *lengths), *lengths)
    gain = (1.0 - auto.waste) / (1.0 - now.waste)
    tuning.report["buckets"] = {"now": now.to_json(), "auto": auto.to_json(), "reckoned_gain": round(gain, 3)}
    if gain >= LEAST_BATCH_GAIN:
        listed = [[shape.max_text_length, shape.max_mel_frames] for shape in auto.shapes]
        tuning.lines.append(
            f"data.buckets stay as the cache has them, with {now.waste:.0%} padding; xtts preprocess --set "
            f"data.buckets={listed} would leave {auto.waste:.0%}, estimated at {gain:.2f} times the clips a second"
        )


def _may_fit(found: dict[str, Any], batch_size: int, memory_bytes: int) -> bool:
    """Return whether another batch size may fit, by the memory of this one; on a GPU it is simply tried."""
    predicted = found["peak_bytes"] * batch_size / found["batch_size"]
    return bool(found["on_gpu"]) or predicted <= MOST_MEMORY_SHARE * memory_bytes


def _step_text(found: dict[str, Any]) -> str:
    parts = f" in {found['accumulation_steps']} parts" if found["accumulation_steps"] > 1 else ""
    name = f"training.batch_size={found['batch_size']}{parts}"
    if not found["fits"]:
        return f"{name} does not fit into memory"
    rate, memory = f"{found['examples_per_second']:.1f} clips/s", f"{found['peak_bytes'] / 1e9:.1f} GB"
    return f"{name}: {rate}, {found['step_ms']:.0f} ms a step, {memory}"

"""Draw a diagnosis: the steps and the device over time; the batches over time and the cost of the pipeline's stages."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from xtts_pipeline.perf.pipeline import Stage
from xtts_pipeline.perf.trial import StepTime
from xtts_pipeline.plots import new_figure, save_figure
from xtts_pipeline.system.nvml import Sample

_COLOURS = {"data": "tab:red", "step": "tab:green"}
_TITLE_WIDTH = 140


def save_timeline(path: Path, steps: Sequence[StepTime], samples: Sequence[Sample], title: str) -> None:
    """Write a PNG of each step's parts in ms and, below it, of the GPU's utilisation and power if there are samples.

    Raises OutputError if it cannot be written.
    """
    figure = new_figure(12.0, 6.0 if samples else 3.5)
    panels = figure.subplots(2 if samples else 1, 1, squeeze=False, sharex=True)[:, 0]
    begun = steps[0].started
    seconds = [step.started - begun for step in steps]
    parts = [[1e3 * step.parts[name] for step in steps] for name in _COLOURS]
    panels[0].stackplot(seconds, parts, labels=list(_COLOURS), colors=list(_COLOURS.values()), step="post")
    panels[0].set_title(_wrap(title), parse_math=False)
    panels[0].set_ylabel("ms a step")
    panels[0].legend(loc="upper right")
    if samples:
        times = [sample.seconds for sample in samples]
        # A gap where the device reports nothing.
        utilisation = [math.nan if sample.utilisation is None else 100 * sample.utilisation for sample in samples]
        watts = [math.nan if sample.watts is None else sample.watts for sample in samples]
        panels[1].plot(times, utilisation, color="tab:blue", label="GPU utilisation, %")
        panels[1].plot(times, watts, color="tab:gray", label="power, W")
        panels[1].set_ylim(bottom=0.0)
        panels[1].legend(loc="upper right")
    panels[-1].set_xlabel("seconds")
    save_figure(figure, path)


def save_batch_times(
    path: Path, batch_times_ms: Sequence[float], step_ms: float, stages: Mapping[str, Stage], title: str
) -> None:
    """Write a PNG of each batch's time beside the step's time and, below it, of the cost of each pipeline stage.

    Raises OutputError if it cannot be written.
    """
    figure = new_figure(12.0, 4.0 + 0.4 * len(stages))
    times, bars = figure.subplots(2, 1, height_ratios=(3.0, 0.4 * len(stages)))
    times.plot(range(1, len(batch_times_ms) + 1), batch_times_ms, color="tab:blue", marker=".", label="batch")
    times.axhline(step_ms, color="tab:green", linestyle="--", label="the step takes")
    # Logarithmic: the first batch fills the buffer and takes far longer than the others.
    times.set_yscale("log")
    times.set(xlabel="batch", ylabel="ms until it came")
    times.set_title(_wrap(title), parse_math=False)
    # Above the frame, so that it covers no line.
    times.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    cost = bars.barh(list(stages), [stage.ms_per_batch for stage in stages.values()], color="tab:blue")
    bars.bar_label(cost, fmt="%.2f", padding=4)
    bars.invert_yaxis()
    bars.margins(x=0.1)
    bars.set_xlabel("ms a batch, by stage")
    save_figure(figure, path)


def _wrap(title: str) -> str:
    return "\n".join(textwrap.wrap(title, _TITLE_WIDTH))

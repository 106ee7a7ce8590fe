"""A diagnosis as a picture: the steps and what the device did, on one axis of seconds."""

import math
from collections.abc import Sequence
from pathlib import Path

from xtts_pipeline.diagnosis.trial import StepTime
from xtts_pipeline.errors import OutputError
from xtts_pipeline.nvml import Sample

_COLOURS = {"data": "tab:red", "host": "tab:orange", "compute": "tab:green"}


def save_timeline(path: Path, steps: Sequence[StepTime], samples: Sequence[Sample], title: str) -> None:
    """Write a PNG: each step's ms by what it was spent on, and below it the GPU's utilisation and power where there is a GPU.

    Raises OutputError if it cannot be written.
    """
    # Here: matplotlib costs half a second, and most commands draw nothing.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 6.0 if samples else 3.5), layout="constrained")
    panels = figure.subplots(2 if samples else 1, 1, squeeze=False, sharex=True)[:, 0]
    begun = steps[0].started
    seconds = [step.started - begun for step in steps]
    parts = {name: [1e3 * value for value in values] for name, values in _parts(steps).items()}
    panels[0].stackplot(seconds, list(parts.values()), labels=list(parts), colors=[_COLOURS[name] for name in parts], step="post")
    panels[0].set(title=title, ylabel="ms a step")
    panels[0].legend(loc="upper right")
    if samples:
        times = [sample.seconds for sample in samples]
        # What the device does not tell leaves a gap.
        utilisation = [math.nan if sample.utilisation is None else 100 * sample.utilisation for sample in samples]
        watts = [math.nan if sample.watts is None else sample.watts for sample in samples]
        panels[1].plot(times, utilisation, color="tab:blue", label="GPU utilisation, %")
        panels[1].plot(times, watts, color="tab:gray", label="power, W")
        panels[1].set_ylim(bottom=0.0)
        panels[1].legend(loc="upper right")
    panels[-1].set_xlabel("seconds")
    try:
        figure.savefig(path, format="png", dpi=100)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); choose another --plot") from None


def _parts(steps: Sequence[StepTime]) -> dict[str, list[float]]:
    parts = {"data": [step.wait for step in steps], "host": [step.host for step in steps], "compute": [step.compute for step in steps]}
    return {name: values for name, values in parts.items() if name != "host" or any(values)}

"""The progress of a training run on stderr."""

import sys
import time
from collections.abc import Mapping
from typing import Never, Self

import click
import tqdm


class RunProgress:
    """Shows a tqdm bar on a terminal, and one line for each report in a log file.

    A context manager: the bar opens inside, on the stderr of that moment.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._first: tuple[int, float] | None = None
        self._bar: tqdm.tqdm[Never] | None = None
        self._last: dict[str, str] = {}

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(total=self._steps, unit="step", desc="train", file=sys.stderr, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Show the numbers of a split together with the last ones of the other splits, and the time left."""
        match split:
            case "val":
                self._last["val"] = f"{numbers['loss']:.3f}"
            case "speech":
                self._last["stops"] = f"{numbers['stop_rate']:.0%}"
            case _:
                self._last |= {
                    "loss": f"{numbers['loss']:.3f}",
                    "focus": f"{numbers['attention_focus']:.2f}",
                    "step": f"{numbers['step_ms']:.0f} ms",
                    "wait": f"{numbers['data_wait_share']:.1%}",
                    "device": f"{numbers['device_share']:.0%}",
                    "examples/s": f"{numbers['examples_per_second']:.1f}",
                }
        if self._bar is not None:
            self._bar.set_postfix(self._last, refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            shown = ", ".join(f"{name} {value}" for name, value in self._last.items())
            self.log(f"{shown}{self._remaining(step)}", step)

    def log(self, line: str, step: int | None = None) -> None:
        """Print a line, above the bar if there is one. Any thread may call it."""
        line = line if step is None else f"step {step}/{self._steps}: {line}"
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            click.echo(line, err=True)

    def _remaining(self, step: int) -> str:
        """Return the time left, estimated without the first step, which traces and compiles."""
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
            return ""
        first_step, first_time = self._first
        if step == first_step:
            return ""
        return f", {(now - first_time) / (step - first_step) * (self._steps - step):.0f} s left"


class NullProgress(RunProgress):
    """The progress of a worker that is not the chief: it prints lines about its own process only."""

    def __enter__(self) -> Self:
        return self

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Do nothing: the chief shows the same numbers."""

    def log(self, line: str, step: int | None = None) -> None:
        """Print a line that belongs to no step."""
        if step is None:
            super().log(line)

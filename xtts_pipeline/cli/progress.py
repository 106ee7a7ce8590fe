"""What a run says as it goes, on stderr."""

import sys
import time
from collections.abc import Mapping
from typing import Self

import click
import tqdm


class RunProgress:
    """A bar on a terminal, one line a report in a log file."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._first: tuple[int, float] | None = None
        self._bar = (
            tqdm.tqdm(total=steps, unit="step", desc="train", file=sys.stderr, dynamic_ncols=True)
            if sys.stderr.isatty()
            else None
        )
        self._last: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Show the numbers just read: loss, attention focus, step time, data wait, how validation went, time left."""
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
            click.echo(f"step {step}/{self._steps}: {shown}{self._remaining(step)}", err=True)

    def say(self, step: int, line: str) -> None:
        """Show a line that must be seen, above the bar where there is one."""
        self.note(f"step {step}/{self._steps}: {line}")

    def note(self, line: str) -> None:
        """Show a line that belongs to no step; any thread may call it."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            click.echo(line, err=True)

    def _remaining(self, step: int) -> str:
        """Return the time left, reckoned without the first step, which traces and compiles."""
        now = time.monotonic()
        if self._first is None:
            self._first = (step, now)
            return ""
        first_step, first_time = self._first
        if step == first_step:
            return ""
        return f", {(now - first_time) / (step - first_step) * (self._steps - step):.0f} s left"


class Silence(RunProgress):
    """What a worker says that is not the chief: what belongs to itself."""

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Say nothing: the chief shows the same numbers."""

    def say(self, step: int, line: str) -> None:
        """Say nothing: the chief says the same."""

"""The progress of a training run on stderr."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Never, Self

import tqdm

from xtts_pipeline.cli.echo import echo
from xtts_pipeline.system.terminal import DEFAULT_COLUMNS, columns_of, duration_text, escape, fold

# Room for the bar itself, its percentage and its edges.
BAR_COLUMNS = 20
# A log gets a line at each evaluation, and another one after so long without a line.
QUIET_SECONDS = 600.0


def fit(parts: Iterable[str], columns: int | None) -> str:
    """Join parts, the most important first, as far as they fit into the columns; None: all of them."""
    shown = ""
    for part in parts:
        longer = f"{shown}, {part}" if shown else part
        if columns is not None and len(longer) > columns:
            break
        shown = longer
    return shown


def progress_bar(total: int | None, unit: str = "clip", title: str | None = None) -> "tqdm.tqdm[Never]":
    """Return a bar on stderr, shown on a terminal alone and if there is anything to do; bytes (`B`) have prefixes."""
    is_quiet = total == 0 or not sys.stderr.isatty()
    # The mean speed since the start, since clips come from the workers in bursts.
    return tqdm.tqdm(
        total=total, unit=unit, unit_scale=unit == "B", desc=title, disable=is_quiet, file=sys.stderr, smoothing=0
    )


class RunProgress:
    """Shows a bar on a terminal, and a line at each evaluation; a log gets a line every ten minutes too.

    A context manager: the bar opens inside, on the stderr of that moment.
    """

    def __init__(self, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps, self._clock = steps, clock
        self._bar: tqdm.tqdm[Never] | None = None
        self._shown: dict[str, str] = {}
        self._first: tuple[int, float] | None = None
        self._compiling = self._last_compiled = ""
        self._compiling_seconds, self._last_line = 0.0, clock()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            bar_format = "{percentage:3.0f}%|{bar}| {desc}"
            self._bar = tqdm.tqdm(
                total=self._steps, file=sys.stderr, dynamic_ncols=True, bar_format=bar_format, leave=False
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Show the numbers of a split together with the last ones of the other splits, and the time left."""
        match split:
            case "val":
                self._shown["val"] = f"val {numbers['loss']:.3f}"
            case "speech":
                if "stop_rate" in numbers:
                    self._shown["stops"] = f"stops {numbers['stop_rate']:.0%}"
            case _ if self._first is None:
                # The times of this report include tracing and compilation.
                self._shown["loss"] = f"loss {numbers['loss']:.3f}"
            case _:
                self._shown |= {
                    "loss": f"loss {numbers['loss']:.3f}",
                    "step": f"{numbers['step_ms']:.0f} ms a step",
                    "wait": f"wait {numbers['data_wait_share']:.1%}",
                    "device": f"device {numbers['device_share']:.0%}",
                    "examples/s": f"{numbers['examples_per_second']:.1f} examples/s",
                }
                if "alignment_fit" in numbers:
                    self._shown["fit"] = f"fit {numbers['alignment_fit']:.2f}"
        self._estimate(step)
        if self._bar is not None:
            self._bar.n = step
            self._refresh()
        elif split == "train" and self._clock() - self._last_line >= QUIET_SECONDS:
            self.end_evaluation(step)

    def end_evaluation(self, step: int) -> None:
        """Print the line of an evaluation: the last numbers of every split."""
        columns = columns_of(sys.stderr)
        prefix = len(f"step {step}/{self._steps}: ")
        self.log(fit(self._numbers(), None if columns is None else columns - prefix), step)

    @contextmanager
    def compiling(self, what: str) -> Iterator[None]:
        """Show that the block compiles a part of the run; its seconds do not count in the time left."""
        started, self._compiling = self._clock(), f"compiling {what}"
        if self._bar is not None:
            self._refresh()
        elif self._compiling != self._last_compiled:
            self.log(self._compiling)
        try:
            yield
        finally:
            self._last_compiled, self._compiling = self._compiling, ""
            self._compiling_seconds += self._clock() - started

    def log(self, line: str, step: int | None = None) -> None:
        """Print a line, above the bar if there is one. Any thread may call it."""
        line = line if step is None else f"step {step}/{self._steps}: {line}"
        self._last_line = self._clock()
        if self._bar is not None:
            self._bar.write(fold(escape(line), columns_of(sys.stderr)), file=sys.stderr)
        else:
            echo(line, err=True)

    def _numbers(self) -> list[str]:
        """Return what is known, the most important first."""
        order = ("loss", "val", "left", "stops", "step", "wait", "examples/s", "device", "fit")
        return [self._shown[name] for name in order if name in self._shown]

    def _refresh(self) -> None:
        """Draw the bar, with as many numbers behind it as leave room for it."""
        if self._bar is not None:
            status = [self._compiling] if self._compiling else []
            parts = [f"{self._bar.n}/{self._steps}", *status, *self._numbers()]
            self._bar.set_description_str(fit(parts, (columns_of(sys.stderr) or DEFAULT_COLUMNS) - BAR_COLUMNS))

    def _estimate(self, step: int) -> None:
        """Estimate the time left from the steps since the first report, without what has been compiled since."""
        now = self._clock() - self._compiling_seconds
        if self._first is None:
            self._first = (step, now)
            return
        first_step, first_time = self._first
        if step == first_step:
            return
        if step == self._steps:
            self._shown.pop("left", None)
            return
        left = duration_text((now - first_time) / (step - first_step) * (self._steps - step))
        if "left" not in self._shown:
            self.log(f"about {left} to go, without evaluations", step)
        self._shown["left"] = f"{left} left"


class NullProgress(RunProgress):
    """The progress of a worker that is not the chief: it prints lines about its own process only."""

    def __enter__(self) -> Self:
        return self

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Do nothing: the chief shows the same numbers."""

    def end_evaluation(self, step: int) -> None:
        """Do nothing: the chief prints the same line."""

    @contextmanager
    def compiling(self, what: str) -> Iterator[None]:  # noqa: ARG002 (the chief shows it)
        """Do nothing: the chief compiles the same."""
        yield

    def log(self, line: str, step: int | None = None) -> None:
        """Print a line that belongs to no step."""
        if step is None:
            super().log(line)

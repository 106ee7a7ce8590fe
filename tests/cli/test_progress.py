"""What a training shows: a bar and a line at each evaluation on a terminal, lines alone in a log."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.clock import Clock
from xtts_pipeline.cli.progress import QUIET_SECONDS, NullProgress, RunProgress, fit

TRAIN = {
    "loss": 2.0,
    "alignment_fit": 0.5,
    "step_ms": 3_000.0,
    "data_wait_share": 0.01,
    "device_share": 0.97,
    "examples_per_second": 132.25,
}

EVALUATION = (
    "step 20/60000: loss 2.000, val 1.500, 2 d 2 h left, stops 75%, 3000 ms a step, wait 1.0%, 132.2 examples/s, "
    "device 97%, fit 0.50"
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Iterator[list[str]]]:
    """Return a context whose stderr is a terminal of 80 columns; at its end the list holds all lines drawn there."""

    @contextmanager
    def open_screen() -> Iterator[list[str]]:
        reader, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        drawn: list[str] = []
        with os.fdopen(terminal, "w", buffering=1, encoding="utf-8") as stderr, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            yield drawn
        # The end of a closed terminal is an error.
        shown = b""
        with os.fdopen(reader, "rb", buffering=0) as file, suppress(OSError):
            while part := file.read(1 << 16):
                shown += part
        drawn += [line for line in re.split(r"[\r\n]+", shown.decode()) if line.strip()]

    return open_screen


def train(progress: RunProgress, clock: Clock) -> None:
    """Show a run of 60,000 steps up to its first evaluation: a compilation of 35 s, then 3 s a step."""
    with progress.compiling("the training step"):
        clock.now += 35
    progress.show(1, "train", TRAIN)
    clock.now += 9 * 3
    progress.show(10, "train", TRAIN)
    clock.now += 10 * 3
    progress.show(20, "train", TRAIN)
    with progress.compiling("the evaluation"):
        clock.now += 35
    progress.show(20, "val", {"loss": 1.5})
    progress.show(20, "speech", {"stop_rate": 0.75})
    progress.end_evaluation(20)


def test_on_80_columns_the_bar_is_there_and_keeps_the_validation_loss_and_the_time_left(screen, clock: Clock):
    with screen() as drawn, RunProgress(60_000, clock) as progress:
        train(progress, clock)
        clock.now += 10 * 3
        progress.show(30, "train", TRAIN)

    assert [line for line in drawn if len(line) > 80] == []
    assert drawn[-1].endswith("| 30/60000, loss 2.000, val 1.500, 2 d 2 h left, stops 75%")
    assert re.match(r"  0%\|.{12,}\| 30/60000", drawn[-1])
    assert any(line.endswith("| 0/60000, compiling the training step") for line in drawn)
    assert any("| 20/60000, compiling the evaluation, loss 2.000" in line for line in drawn)
    assert [line for line in drawn if "%|" not in line] == [
        "step 10/60000: about 2 d 2 h to go, without evaluations",
        "step 20/60000: loss 2.000, val 1.500, 2 d 2 h left, stops 75%, 3000 ms a step",
    ]


def test_a_log_has_one_line_an_evaluation(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with RunProgress(60_000, clock) as progress:
        train(progress, clock)
        progress.log("warning: something", 20)
    shown = capsys.readouterr()

    assert shown.out == ""
    assert shown.err.splitlines() == [
        "compiling the training step",
        "step 10/60000: about 2 d 2 h to go, without evaluations",
        "compiling the evaluation",
        EVALUATION,
        "step 20/60000: warning: something",
    ]


def test_the_time_left_counts_steps_and_no_compilation(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with RunProgress(40, clock) as progress:
        progress.show(1, "train", TRAIN)
        with progress.compiling("the training step"):
            clock.now += 1_000
        clock.now += 18
        progress.show(10, "train", TRAIN)
        progress.end_evaluation(40)
    assert "step 10/40: about 1 min to go" in capsys.readouterr().err


def test_a_log_without_evaluations_gets_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with RunProgress(400, clock) as progress:
        for step in range(10, 400, 10):
            progress.show(step, "train", TRAIN)
            clock.now += QUIET_SECONDS / 5
    lines = [line for line in capsys.readouterr().err.splitlines() if "loss 2.000" in line]
    assert [line.split("/")[0] for line in lines] == [f"step {step}" for step in range(70, 400, 50)]


def test_other_workers_show_no_line_of_a_step(clock: Clock, capsys: pytest.CaptureFixture[str]):
    with NullProgress(60_000, clock) as progress:
        train(progress, clock)
        progress.log("interrupted")
    assert capsys.readouterr().err == "interrupted\n"


def test_the_most_important_parts_are_shown_as_far_as_they_fit():
    assert fit(["loss 1", "val 2", "left"], 13) == "loss 1, val 2"
    assert fit(["loss 1", "val 2"], None) == "loss 1, val 2"
    assert fit(["loss 1"], 3) == ""

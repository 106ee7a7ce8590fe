"""Ten thousand broken inputs, drawn by number: each command works or is refused in one line, soon and in little memory.

The slow trials write a line per draw to .pytest_cache/d/trials/ and continue there. Commands run in one process,
which stands for `xtts`; every fiftieth draw and huge files have a process of their own.
"""

import contextlib
import faulthandler
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests import drawn_inputs
from tests.cli.commands.test_preprocess import processes_of_group
from tests.drawn_inputs import draw_command, make_originals
from tests.trials import ROOT, continue_trial, run_trial
from xtts_pipeline.cache.build.pool import Pool
from xtts_pipeline.cli.commands import preprocess
from xtts_pipeline.cli.main import cli
from xtts_pipeline.errors import XttsError

DRAWS = {"plain": 8_900, "tensorflow": 1_000, "huge": 100}
# Processor seconds are those of a quiet machine. A wait takes none of them.
MOST_SECONDS, MOST_WAITED_SECONDS, LEAST_SECONDS = 10, 10, 0.01
MOST_BYTES = 2 << 30
OWN_PROCESS_EVERY = 50


class HungError(BaseException):
    """A command waits or computes for too long; no clean-up of the package catches it."""


@contextmanager
def limited_time(processor_seconds: Callable[[], float]) -> Iterator[None]:
    """Raise HungError once the block waits: no processor time is used for long, however busy the machine is."""
    used = [processor_seconds()]

    def stop(_number: int, _frame: object) -> None:
        now = processor_seconds()
        if now - used[0] < LEAST_SECONDS:
            raise HungError
        used[0] = now
        faulthandler.dump_traceback_later(12 * MOST_WAITED_SECONDS, exit=True, file=sys.__stderr__)

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MOST_WAITED_SECONDS, MOST_WAITED_SECONDS)
    faulthandler.dump_traceback_later(12 * MOST_WAITED_SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def run_here(arguments: list[str]) -> tuple[str, str]:
    """Run a command in this process; return how it ended, and what is wrong with that, or an empty text."""
    started = time.process_time()
    try:
        with limited_time(time.process_time), warnings.catch_warnings():
            warnings.simplefilter("error")
            result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    except HungError:
        return "hung", f"waits for over {MOST_WAITED_SECONDS} s"
    error = result.exception
    end = f"{type(error).__name__}: {error}"[:200] if error else "0"
    expected = XttsError, click.ClickException, click.exceptions.Exit, click.Abort, OSError, SystemExit
    if error is not None and not isinstance(error, expected):
        place = error.__traceback__
        while place and place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return end, f"{type(error).__name__} at {where}"
    if has_traceback(result.output, arguments):
        return end, f"a traceback is printed: {result.output[-500:]}"
    return end, slow(time.process_time() - started)


def seconds_of_group(group: int) -> float:
    """Return the processor time of the processes of a group."""
    ticks = 0
    for process in processes_of_group(group):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def has_traceback(text: str, arguments: list[str]) -> bool:
    return "Traceback" in text and "--debug" not in arguments


def slow(seconds: float) -> str:
    """Return the problem of a command that took this much processor time, or an empty text."""
    return f"{seconds:.0f} s of processor time" if seconds > MOST_SECONDS else ""


def run_process(arguments: list[str]) -> tuple[str, str]:
    """Run a command in a process of its own, with the same judgement and a limit on its memory."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "xtts_pipeline", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        usage: resource.struct_rusage | None = None
        try:
            with limited_time(lambda: seconds_of_group(process.pid)):
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
        except HungError:
            return "hung", f"waits for over {MOST_WAITED_SECONDS} s"
        finally:
            if usage is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    end = f"{process.returncode}: {text[-200:]}"
    if process.returncode not in (0, 1, 2) or has_traceback(text, arguments):
        return end, f"exit code {process.returncode}: {text[-500:]}"
    if usage.ru_maxrss * 1024 > MOST_BYTES:
        return end, f"{usage.ru_maxrss / 1e6:.1f} GB of memory"
    return end, slow(usage.ru_utime + usage.ru_stime)


def run_draw(stream: str, number: int, originals: Path) -> dict[str, Any]:
    """Run one draw in a folder of its own, and return its line."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="draw-") as folder:
        kind, arguments = draw_command(stream, number, originals, Path(folder))
        # An option may name the current folder.
        os.chdir(folder)
        started = time.monotonic()
        is_own = stream == "huge" or (stream == "plain" and number % OWN_PROCESS_EVERY == OWN_PROCESS_EVERY - 1)
        try:
            end, problem = (run_process if is_own else run_here)(arguments)
        finally:
            os.chdir(before)
        seconds = round(time.monotonic() - started, 2)
    shown = [argument[:200] for argument in arguments]
    draw = {"number": number, "kind": kind, "arguments": shown}
    return {**draw, "seconds": seconds, "end": end, "problem": problem}


def use_threads(patch: pytest.MonkeyPatch) -> None:
    """Let `preprocess` write shards in a thread of this process: a worker process takes a second to start."""
    patch.setattr(preprocess, "local_pool", lambda _jobs: Pool(lambda _tasks: ThreadPoolExecutor(1), 2))


def limit_memory() -> None:
    """Let this process take no more memory than it has and 2 GiB; more is an error of the draw."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))


@pytest.fixture(scope="session")
def trials(pytestconfig: pytest.Config) -> Path:
    """Return the folder of the trials' files, with the originals."""
    folder = pytestconfig.cache.mkdir("trials")  # type: ignore[union-attr]
    if not (folder / "originals").exists():
        shutil.rmtree(folder / "making", ignore_errors=True)
        make_originals(folder / "making", with_run=True)
        (folder / "making").rename(folder / "originals")
    return folder


def test_a_hundred_drawn_inputs_work_or_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_originals(tmp_path)
    use_threads(monkeypatch)
    lines = [run_draw("plain", number, tmp_path) for number in range(150) if (number + 1) % OWN_PROCESS_EVERY]
    assert [line for line in lines if line["problem"]] == []
    assert {line["kind"] for line in lines} == {kind.__name__ for kind in drawn_inputs.STREAMS["plain"]}


@pytest.mark.slow
@pytest.mark.parametrize("stream", DRAWS)
def test_ten_thousand_drawn_inputs_work_or_are_refused(stream: str, trials: Path) -> None:
    lines = run_trial("tests.test_drawn_inputs", stream, trials / f"{stream}.jsonl", DRAWS[stream])
    assert [line for line in lines if line["problem"]] == []


def main(stream: str, log: str, count: str) -> None:
    """Continue a trial."""
    if stream == "plain":
        limit_memory()
    with pytest.MonkeyPatch.context() as patch:
        use_threads(patch)
        originals = Path(log).parent / "originals"
        continue_trial(Path(log), int(count), lambda number: run_draw(stream, number, originals))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Tasks in worker processes, of which one may be killed."""

import os
import signal
import subprocess
import sys

import joblib
import pytest

from xtts_pipeline.errors import WorkerError
from xtts_pipeline.system.processes import in_processes


def process_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


def be_killed(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_the_order_of_the_tasks_from_other_processes() -> None:
    found = list(in_processes(2, [joblib.delayed(process_of)(number) for number in range(9)]))
    assert [number for number, _ in found] == list(range(9))
    assert os.getpid() not in {process for _, process in found}


def test_one_job_is_this_process() -> None:
    assert list(in_processes(1, [joblib.delayed(process_of)(7)])) == [(7, os.getpid())]


def test_there_are_no_more_processes_than_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counting(joblib.Parallel):  # type: ignore[misc]
        def __init__(self, jobs: int, **options: str) -> None:
            asked.append(jobs)
            super().__init__(1, **options)

    monkeypatch.setattr(joblib, "Parallel", Counting)
    assert len(list(in_processes(40, [joblib.delayed(process_of)(number) for number in range(3)]))) == 3
    assert list(in_processes(40, [])) == []
    assert asked == [3, 1]


def test_a_killed_worker_is_one_line() -> None:
    with pytest.raises(WorkerError, match="a worker process was killed, perhaps since memory ran out; use fewer"):
        list(in_processes(2, [joblib.delayed(be_killed)(number) for number in range(4)]))


WAITING = """
import time
import joblib
from xtts_pipeline.system.processes import in_processes

print(*in_processes(2, [joblib.delayed(abs)(number) for number in range(4)]), flush=True)
time.sleep(600)
"""


def test_workers_end_with_a_process_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0 1 2 3\n"
        process.kill()
        # The end of the pipe is seen only when no worker holds it any more.
        assert process.stdout.read() == ""

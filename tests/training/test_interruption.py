"""Signals are sent to a process of its own, so that they do not reach pytest."""

import signal
import subprocess
import sys
import textwrap
import time

import pytest

from xtts_pipeline.training.interruption import SAME_SIGNAL_SECONDS

WAIT_SECONDS = 300.0  # for what ends in a second on a quiet machine
PROGRAM = """
    import os, signal, sys, time
    # nohup and a shell in the background start programs that ignore these.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    {before}
    from xtts_pipeline.training.interruption import Interruption

    def say(line):
        sys.stdout.write(line + "\\n")
        sys.stdout.flush()

    with Interruption(say) as interruption:
        say("ready")
        while not interruption.is_asked:
            time.sleep(0.01)
        {then}
    say("stopped")
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
"""


def start(then: str = "pass", before: str = "pass") -> subprocess.Popen[str]:
    program = textwrap.dedent(PROGRAM.format(then=then, before=before))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)  # type: ignore[call-overload]
    assert process.stdout.readline() == "ready\n"
    return process  # type: ignore[no-any-return]


def read_until(process: subprocess.Popen[str], *starts: str) -> None:
    """Return once a line of stdout has begun with each of these."""
    assert process.stdout is not None
    missing = set(starts)
    while missing:
        line = process.stdout.readline()
        assert line, f"the process ended without {missing}"
        missing -= {start for start in missing if line.startswith(start)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_requests_a_stop_and_python_s_handlers_return(number: signal.Signals) -> None:
    with start() as process:
        process.send_signal(number)
        said, error = process.communicate(timeout=WAIT_SECONDS)
    assert said.splitlines()[0].startswith("interrupted: stopping after this step, with a checkpoint")
    assert said.splitlines()[-1] == "stopped"
    assert "KeyboardInterrupt" in error  # Python's own handler again


def test_the_second_signal_exits_at_once_even_in_native_code() -> None:
    # A key derivation of an hour, which runs no Python, stands for a compilation.
    with start(then="say('busy'); import hashlib; hashlib.pbkdf2_hmac('sha1', b'', b'', 2**31 - 1)") as process:
        process.send_signal(signal.SIGTERM)
        read_until(process, "busy", "interrupted")
        time.sleep(2 * SAME_SIGNAL_SECONDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=WAIT_SECONDS) == 130


def test_a_signal_sent_twice_at_once_counts_once() -> None:
    """As `timeout` sends it: to the process, and to its group."""
    at_once = "import xtts_pipeline.training.interruption as module; module.SAME_SIGNAL_SECONDS = 3_600"
    with start(before=at_once, then="sys.stdin.readline()") as process:
        process.send_signal(signal.SIGTERM)
        read_until(process, "interrupted")
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate("\n", timeout=WAIT_SECONDS)
    assert said.splitlines()[-1] == "stopped"


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    with start(before="signal.signal(signal.SIGINT, signal.SIG_IGN)") as process:
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=WAIT_SECONDS)[0].splitlines()[0].startswith("interrupted")

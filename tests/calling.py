"""Call `xtts`, in this process or in one of its own."""

import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from xtts_pipeline.cli.main import cli
from xtts_pipeline.errors import XttsError


def xtts(*words: object, **options: Any) -> Result:
    """Run a command in this process; the options are those of click's runner."""
    return CliRunner().invoke(cli, [*map(str, words)], **options)


def error_of(result: Result) -> XttsError:
    """Return the error with which a command ended: one line, and exit code 2."""
    error = result.exception
    assert isinstance(error, XttsError), result.output
    assert error.exit_code == 2
    assert "\n" not in str(error)
    return error


def refusal(*words: object) -> str:
    """Run a command that must be refused; return the line that says why."""
    return str(error_of(xtts(*words)))


def start_xtts(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own to its end."""
    command = [sys.executable, "-m", "xtts_pipeline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)

"""Long trials of numbered draws: a line of JSON per draw in a file, processes that are replaced when they die."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.json_lines import read_json_lines

ROOT = Path(__file__).parents[1]
DRAWS_OF_A_PROCESS = 500


def run_trial(module: str, stream: str, log: Path, count: int) -> list[dict[str, Any]]:
    """Run `module` with a stream, its file and the count until the file holds a line per draw; return the lines.

    A process that dies is the problem of its draw. A trial that was stopped continues after its last line.
    """
    lines = read_lines(log)
    while len(lines) < count:
        command = [sys.executable, "-m", module, stream, str(log), str(count)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        lines = read_lines(log)
        if ended.returncode:
            problem = f"the process ended with {ended.returncode}: {ended.stderr[-1_000:]}"
            lines.append({"number": len(lines), "problem": problem})
            append(log, lines[-1])
    return lines


def continue_trial(log: Path, count: int, run_draw: Callable[[int], dict[str, Any]]) -> None:
    """Run the next draws in this process, and append the line of each."""
    first = len(read_lines(log))
    for number in range(first, min(count, first + DRAWS_OF_A_PROCESS)):
        append(log, run_draw(number))


def read_lines(log: Path) -> list[dict[str, Any]]:
    return read_json_lines(log) if log.exists() else []


def append(log: Path, line: dict[str, Any]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")

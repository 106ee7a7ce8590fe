"""Real commands in processes of their own, with or without a planted fault, and what they print with `--json`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
# So small that tracing is most of what a step costs.
TINY = (
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.flow_layers=1",
    "model.voice_latents=0",
    "model.width=8",
    "model.heads=1",
    "model.feedforward_width=8",
    "training.batch_size=4",
)


class Ended(NamedTuple):
    """A command that has ended."""

    exit_code: int
    result: dict[str, Any]
    stderr: str


def run_command(fault: str, *arguments: object, settings: Sequence[str] = (), network: Sequence[str] = TINY) -> Ended:
    """Run `xtts ARGUMENTS --json` with the fault planted, on the tiny network or the one that these settings make."""
    options = [f"--set={setting}" for setting in (*network, *settings)]
    command = [sys.executable, "-m", "tests.perf.faults", fault, *map(str, arguments), *options, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Ended(done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr)

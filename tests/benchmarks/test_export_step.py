"""`benchmarks/export_step.py`: the step as StableHLO bytecode and arguments that are its parameters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
TINY = [
    *(f"model.{name}=16" for name in ("width", "feedforward_width")),
    *(
        "model.heads=2",
        "model.encoder_layers=1",
        "model.decoder_layers=2",
        "model.voice_latents=2",
    ),
    *("limits.max_text_length=12", "limits.max_mel_frames=24", "model.reference_frames=8"),
]


def test_the_step_is_exported_with_its_arguments_in_order(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "export_step.py", "--batch", "3", "--output", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *(f"--set={setting}" for setting in TINY)], stdout=subprocess.PIPE, check=True, env=environment
    )
    report = json.loads(done.stdout)
    arguments = np.load(tmp_path / "arguments.npz")
    assert report["batch"] == [3, 12, 24]
    assert report["operations"] > 0
    assert list(arguments) == [f"arg{number}" for number in range(report["arguments"])]
    assert [arguments[f"arg{number}"].shape for number in range(4)] == [(3, 12), (3, 24, 80), (3,), (3,)]
    # Weights, their average and two moments; and step, rate factor and the schedule's four numbers beside the batch.
    assert sum(arguments[name].size for name in list(arguments)[4:]) == 4 * report["parameters"] + 2 + 4
    # MLIR's bytecode begins so.
    assert (tmp_path / "step.bc").read_bytes().startswith(b"ML\xefR")
    assert {path.name for path in tmp_path.iterdir()} == {"step.bc", "arguments.npz"}

"""Several devices against one: parts of the CPU, in a process of their own."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from xtts_pipeline.training.step import TrainStep

pytestmark = pytest.mark.slow
# What fifty steps make of sums of float32 in another order.
CLOSE = 1e-4
# What one step makes of them that begins with the same weights.
SAME = 1e-5
# What is counted or set, and what training minimises: a share of attention may stand on the edge of a comparison.
COMPARED = (
    "loss",
    "objective",
    "mel_l1",
    "text_l1",
    "token_error",
    "stop_loss",
    "learning_rate",
    "scheduled_sampling_share",
    "mel_frames",
)


def spread(**arguments: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.distributed.spread", json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def apart(found: dict[str, Any], pair: tuple[str, str]) -> np.ndarray:
    """Return the relative difference of each COMPARED metric in each step of two trainings."""
    columns = [TrainStep.METRICS.index(name) for name in COMPARED]
    one, other = (np.array(found[name])[:, columns] for name in pair)
    return np.abs(other - one) / np.maximum(np.abs(one), 1e-30)


@pytest.mark.parametrize(("devices", "accumulation_steps", "is_compiled"), [(2, 1, True), (4, 1, False), (2, 2, False)])
def test_fifty_steps_are_those_of_one_device(devices: int, accumulation_steps: int, is_compiled: bool) -> None:
    found = spread(
        devices=devices,
        steps=50,
        synchronised=10,
        is_shaken=True,
        is_compiled=is_compiled,
        accumulation_steps=accumulation_steps,
    )
    pairs = ("one", "many"), ("one_apart", "many_apart"), ("one", "shaken")
    free, same, rounding = (apart(found, pair) for pair in pairs)
    losses = ", ".join(f"{difference[:, 0].max():.1e}" for difference in (free, same, rounding))
    sys.stdout.write(
        f"loss apart at most (fifty steps, one step, fifty steps of one device that is shaken): {losses}\n"
    )
    assert same.max() < SAME
    assert free.max() < CLOSE
    # But for what has no gradient but rounding, such as the bias of a key, variables end where one device's do.
    assert found["variables"] < 5e-2
    # One trace a device.
    assert found["traces"] == {"gradient_step": [devices], "update_step": [devices]}

"""Several devices against one: logical devices of the CPU, in their own process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.distributed.compare_devices import ADVERSARIAL_START
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.vocoder.step import VocoderStep

pytestmark = pytest.mark.slow
# Difference after fifty steps with float32 sums in another order.
CLOSE = 1e-4
# Difference after one step from the same weights.
SAME = 1e-5
# Losses, counts and schedules.
COMPARED = (
    "loss",
    "objective",
    "mel_l1",
    "token_error",
    "duration_loss",
    "flow_loss",
    "learning_rate",
    "mel_frames",
)


def compare(**arguments: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.distributed.compare_devices", json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def apart(found: dict[str, Any], pair: tuple[str, str], columns: Sequence[int]) -> np.ndarray:
    """Return the relative difference of some metrics in each step of two trainings."""
    one, other = (np.array(found[name])[:, columns] for name in pair)
    return np.abs(other - one) / np.maximum(np.abs(one), 1e-30)


@pytest.mark.parametrize(
    ("devices", "accumulation_steps", "speakers", "voice_change", "is_compiled"),
    [(2, 1, 3, 0.1, True), (4, 1, 1, 0.0, False), (4, 1, 3, 0.0, False), (2, 2, 3, 0.1, False)],
)
def test_fifty_steps_equal_those_of_one_device(
    devices: int, accumulation_steps: int, speakers: int, voice_change: float, is_compiled: bool
) -> None:
    found = compare(
        network="acoustic",
        devices=devices,
        steps=50,
        synchronised=10,
        is_perturbed=True,
        is_compiled=is_compiled,
        accumulation_steps=accumulation_steps,
        voice_change=voice_change,
        speakers=speakers,
    )
    pairs = ("one", "many"), ("one_apart", "many_apart"), ("one", "perturbed")
    columns = [AcousticStep.METRICS.index(name) for name in COMPARED]
    free, same, rounding = (apart(found, pair, columns) for pair in pairs)
    losses = ", ".join(f"{difference[:, 0].max():.1e}" for difference in (free, same, rounding))
    sys.stdout.write(
        f"loss apart at most (fifty steps, one step, fifty steps of one device with perturbed weights): {losses}\n"
    )
    assert same.max() < SAME
    assert free.max() < CLOSE
    # Loose: variables such as a key's bias have no gradient but rounding errors.
    assert found["variables"] < 5e-2
    # One trace per device.
    assert found["traces"] == {"gradient_step": devices, "update_step": devices}


def test_without_strict_shapes_steps_of_two_shapes_equal_those_of_one_device() -> None:
    options = {"accumulation_steps": 1, "speakers": 1, "voice_change": 0.0, "is_compiled": False}
    found = compare(network="acoustic", devices=2, steps=4, synchronised=2, has_two_shapes=True, **options)
    columns = [AcousticStep.METRICS.index(name) for name in COMPARED]
    assert apart(found, ("one_apart", "many_apart"), columns).max() < SAME
    ends = [[device.rsplit("/", 1)[1] for device in devices] for devices in found["ahead_on"]]
    assert ends == [["device:CPU:0", "device:CPU:1"]] * 4
    # A trace for each device and shape, of one function.
    assert found["traces"] == {"gradient_step": 4, "update_step": 2}


def test_the_compile_cache_has_the_programs_of_devices_that_began_with_another_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", f"--tf_xla_persistent_cache_directory={tmp_path}")
    options = {"accumulation_steps": 1, "speakers": 1, "voice_change": 0.0, "is_compiled": True}

    def programs_after(first_batch: int) -> set[str]:
        compare(network="acoustic", devices=2, steps=2, has_two_shapes=True, first_batch=first_batch, **options)
        return {path.name for path in tmp_path.iterdir()}

    first = programs_after(0)
    assert first
    assert programs_after(1) == first


@pytest.mark.parametrize("is_compiled", [False, True])
def test_steps_of_a_vocoder_equal_those_of_one_device_in_both_phases(is_compiled: bool) -> None:
    steps = {"steps": ADVERSARIAL_START + 3, "synchronised": 2}
    found = compare(network="vocoder", devices=2, **steps, is_perturbed=True, is_compiled=is_compiled)
    columns = range(len(VocoderStep.METRICS))
    pairs = ("one", "many"), ("one_apart", "many_apart"), ("one", "perturbed")
    free, same, rounding = (apart(found, pair, columns).max(axis=0) for pair in pairs)
    sys.stdout.write(
        "metrics apart at most (free steps, one step, free steps of one device with perturbed weights): "
        f"{free.max():.1e}, {same.max():.1e}, {rounding.max():.1e}\n"
    )
    assert same.max() < SAME
    # On some processors the last bit of the weights moves a later step's gradient norm by more than CLOSE.
    assert (free < np.maximum(CLOSE, 2 * rounding)).all()
    # The discriminators judge from their step on.
    judged = [row[VocoderStep.METRICS.index("discriminator_loss")] > 0.0 for row in found["many"]]
    assert judged == [False] * ADVERSARIAL_START + [True] * 3
    # One trace per device and phase.
    assert found["traces"] == {"first_gradient_step": 2, "gradient_step": 2, "update_step": 2}

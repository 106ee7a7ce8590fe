"""A program that trains on one device and on several logical devices of the CPU, from the same weights and batches.

It trains an acoustic model with a voice encoder, of one or several speakers, or a vocoder whose discriminators begin at
step ADVERSARIAL_START.

Prints JSON. `one` and `many`: the METRICS of each step. `variables`: the largest difference of any variable at the end.
`traces`: by function. `one_apart` and `many_apart`: the METRICS of `synchronised` more steps, each of which starts with
the weights of one device, and whose batch is sent ahead. `ahead_on`: the devices of a batch's tensors. `perturbed`, if
asked for: one device trains again from weights that differ in the last bit.
Logical devices must be configured before TensorFlow computes anything, so tests run this in its own process.
"""

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf

from tests.model.conftest import SPEC, make_network, random_batch
from tests.training.vocoder.test_step import config_with, make_batch, make_step, signature_of
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.network import Network
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.distributed.step import DistributedStep
from xtts_pipeline.training.distributed.strategy import choose_distribution
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.step import TrainStep

ROWS = 8
ADVERSARIAL_START = 3
# One layer of each kind is traced faster, and the test is about sharing a batch.
LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "flow_layers": 1}
# The relative rounding error of float32.
LAST_PLACE = 2.0**-24


# How to make a training step, its signatures, and the batch of a number.
Training = tuple[Callable[[], TrainStep], list[Any], Callable[[int], Any]]


def acoustic(
    *, is_compiled: bool, accumulation_steps: int, speakers: int, voice_change: float, has_two_shapes: bool = False
) -> Training:
    """Return the training of an acoustic model; with two shapes, every second batch has half the rows."""
    settings = TrainingConfig(
        batch_size=ROWS,
        accumulation_steps=accumulation_steps,
        voice_change=voice_change,
        steps=60,
        jit_compile=is_compiled,
        strict_shapes=not has_two_shapes,
    )
    sizes = [ROWS, ROWS // 2] if has_two_shapes else [ROWS]
    signatures = [batch_signature(SPEC, rows, with_speaker=speakers > 1) for rows in sizes]

    def networks() -> list[Network]:
        return [make_network(**LAYERS, speakers=speakers) for _ in range(2)]

    make_batch = partial(batch_of, speakers=speakers, sizes=sizes)
    return lambda: AcousticStep(*networks(), settings, signatures), signatures, make_batch


def vocoder(*, is_compiled: bool) -> Training:
    """Return the training of a vocoder."""
    start, compiled = f"vocoder.adversarial_start={ADVERSARIAL_START}", str(is_compiled).lower()
    config = config_with(start, f"training.jit_compile={compiled}")
    return lambda: make_step(config), [signature_of(config)], make_batch


def compare(
    network: str,
    devices: int,
    steps: int,
    synchronised: int = 0,
    *,
    first_batch: int = 0,
    is_perturbed: bool = False,
    **options: Any,
) -> dict[str, object]:
    """Return the program's output; `options` are those of `acoustic` or `vocoder`."""
    distribution = choose_distribution(devices=devices)
    make, signatures, batch_of = (acoustic if network == "acoustic" else vocoder)(**options)
    one = make()
    with distribution.scope():
        shared = make()
    many = DistributedStep(shared, signatures, distribution)
    # Without XLA's log the monitor counts traces alone.
    log: Any = SimpleNamespace(compilations=dict)
    monitor = CompilationMonitor(log, is_strict=True, is_compiled=False)
    many.watch_with(monitor)
    expected, reached = named_variables(one), named_variables(shared)
    begun = {name: variable.numpy() for name, variable in expected.items()}
    batches = [batch_of(first_batch + number) for number in range(steps + synchronised)]
    found = {"one": metrics(one, batches[:steps]), "many": metrics(many, batches[:steps])}
    apart = max(float(np.abs(expected[name].numpy() - reached[name].numpy()).max()) for name in expected)

    def begin_alike() -> None:
        for name, variable in reached.items():
            variable.assign(expected[name].numpy())

    many.send_ahead(batches[0])
    shares = [distribution.strategy.experimental_local_results(value) for value in many._ahead.pop()]
    found |= {"one_apart": [], "many_apart": [], "ahead_on": [[part.device for part in parts] for parts in shares]}
    for number, batch in enumerate(batches[steps:], steps):
        begin_alike()
        many.send_ahead(batch)
        found["many_apart"] += metrics(many, [batch], number)
        found["one_apart"] += metrics(one, [batch], number)
    if is_perturbed:
        random = np.random.default_rng(0)
        for name, variable in expected.items():
            perturbed = begun[name] * (1.0 + LAST_PLACE * random.choice([-1.0, 1.0], begun[name].shape))
            variable.assign(perturbed.astype(begun[name].dtype) if variable.trainable else begun[name])
        found["perturbed"] = metrics(one, batches[:steps])
    traces = {name: count["traces"] for name, count in monitor.counts().items()}
    return {**found, "variables": apart, "traces": traces}


def batch_of(number: int, speakers: int, sizes: Sequence[int]) -> Batch:
    """Return the batch of this number, with clips of random lengths and speakers."""
    random, rows = np.random.default_rng(number), sizes[number % len(sizes)]
    lengths = [random.integers(first, last, rows).tolist() for first, last in ((2, 10), (3, 21))]
    batch = random_batch(SPEC, *lengths, seed=number)
    return batch if speakers == 1 else batch._replace(speaker=tf.constant(random.integers(0, speakers, rows), tf.int32))


def metrics(step: TrainStep | DistributedStep, batches: Sequence[Any], first: int = 0) -> list[list[float]]:
    """Take a step on each batch, `first` steps being done, and return the METRICS of each."""
    found = []
    for number, batch in enumerate(batches, first):
        step.begin(number)
        found.append(step(batch).numpy().tolist())
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compare(**json.loads(sys.argv[1]))))

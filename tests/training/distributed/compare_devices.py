"""A program that trains on one device and on several logical devices of the CPU, from the same weights and batches.

Prints JSON. `one` and `many`: the METRICS of each step. `variables`: the largest difference of any variable at the end.
`traces`: by function. `one_apart` and `many_apart`: the METRICS of `synchronised` more steps, each of which starts with
the weights of one device. `perturbed`, if asked for: one device trains again from weights that differ in the last bit.
Logical devices must be configured before TensorFlow computes anything, so tests run this in its own process.
"""

import json
import sys
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, random_batch
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.distributed.step import DistributedStep
from xtts_pipeline.training.distributed.strategy import choose_distribution

ROWS = 8
# One layer of each kind is traced faster, and the test is about sharing a batch.
LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "postnet_layers": 1}
# The relative rounding error of float32.
LAST_PLACE = 2.0**-24


def compare(
    devices: int,
    steps: int,
    *,
    is_compiled: bool,
    accumulation_steps: int,
    synchronised: int = 0,
    is_perturbed: bool = False,
) -> dict[str, object]:
    """Return the program's output for a network with a voice encoder and scheduled sampling."""
    distribution = choose_distribution(devices=devices)
    settings = TrainingConfig(
        batch_size=ROWS,
        accumulation_steps=accumulation_steps,
        steps=60,
        scheduled_sampling_start=2,
        scheduled_sampling_ramp_steps=4,
        jit_compile=is_compiled,
    )
    signatures = [batch_signature(SPEC, ROWS, with_speaker=False, with_language=False)]

    def networks() -> list[AutoregressiveNetwork]:
        model = MODEL.model_copy(update=LAYERS)
        return [AutoregressiveNetwork(model, SPEC, SYMBOL_COUNT, seed=1) for _ in range(2)]

    one = AcousticStep(*networks(), settings, signatures)
    with distribution.scope():
        shared = AcousticStep(*networks(), settings, signatures)
    many = DistributedStep(shared, signatures, distribution)
    expected, reached = named_variables(one), named_variables(shared)
    begun = {name: variable.numpy() for name, variable in expected.items()}
    batches = [batch_of(number) for number in range(steps + synchronised)]
    found = {"one": metrics(one, batches[:steps]), "many": metrics(many, batches[:steps])}
    apart = max(float(np.abs(expected[name].numpy() - reached[name].numpy()).max()) for name in expected)

    def begin_alike() -> None:
        for name, variable in reached.items():
            variable.assign(expected[name].numpy())

    found |= {"one_apart": [], "many_apart": []}
    for batch in batches[steps:]:
        begin_alike()
        found["many_apart"] += metrics(many, [batch])
        found["one_apart"] += metrics(one, [batch])
    if is_perturbed:
        random = np.random.default_rng(0)
        for name, variable in expected.items():
            perturbed = begun[name] * (1.0 + LAST_PLACE * random.choice([-1.0, 1.0], begun[name].shape))
            variable.assign(perturbed.astype(begun[name].dtype) if variable.trainable else begun[name])
        found["perturbed"] = metrics(one, batches[:steps])
    functions = {"gradient_step": many.compiled.functions, "update_step": [many.update]}
    traces = {
        name: [function.experimental_get_tracing_count() for function in each] for name, each in functions.items()
    }
    return {**found, "variables": apart, "traces": traces}


def batch_of(number: int) -> Batch:
    """Return the batch of this number, with clips of random lengths."""
    random = np.random.default_rng(number)
    return random_batch(SPEC, random.integers(2, 10, ROWS).tolist(), random.integers(3, 21, ROWS).tolist(), seed=number)


def metrics(step: Callable[[Batch], tf.Tensor], batches: Sequence[Batch]) -> list[list[float]]:
    """Take a step on each batch and return the METRICS of each."""
    return [step(batch).numpy().tolist() for batch in batches]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compare(**json.loads(sys.argv[1]))))

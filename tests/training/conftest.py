"""A training step small enough to compile in a few seconds."""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, batch, make_network  # noqa: F401 (a fixture)
from tests.training.tiny_run import TinyStep, TinyValidation
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.model.network import Network
from xtts_pipeline.training import resume as resume_module
from xtts_pipeline.training.acoustic import task
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import keep_order_of_sums

# Grappler takes seconds for graphs that run for milliseconds, and XLA does not use its result. A plain step
# sets another option, after which XLA would compile again what it has compiled before.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
keep_order_of_sums()

SETTINGS = TrainingConfig(batch_size=3, steps=500, learning_rate=3e-3, warmup_steps=10)


def networks(speakers: int = 1, languages: int = 1) -> tuple[Network, Network]:
    """Return a network to train and one for its EMA."""
    return make_network(speakers=speakers, languages=languages), make_network(speakers=speakers, languages=languages)


@pytest.fixture(scope="session")
def compiled_step() -> tuple[AcousticStep, dict[str, np.ndarray]]:
    signature = batch_signature(SPEC, SETTINGS.batch_size)
    step = AcousticStep(*networks(), SETTINGS, [signature])
    return step, {name: variable.numpy() for name, variable in named_variables(step).items()}


@pytest.fixture
def train_step(compiled_step: tuple[AcousticStep, dict[str, np.ndarray]]) -> AcousticStep:
    """Return the step that is compiled once for all tests, with its initial weights."""
    step, first = compiled_step
    for name, variable in named_variables(step).items():
        variable.assign(first[name])
    return step


@pytest.fixture(scope="module")
def tiny_training() -> Iterator[None]:
    """Have runs of this module use the tiny step and validation of tiny_run.py."""
    with pytest.MonkeyPatch.context() as patch:
        # A made-up cache has no manifest to compare.
        patch.setattr(resume_module, "check_same_cache", lambda *_: None)
        patch.setattr(task, "AcousticStep", TinyStep)
        patch.setattr(task, "AcousticValidation", lambda *_: TinyValidation())
        yield

"""The vocoder's step: it learns, its devices' shares add up, and each network is moved by its own losses alone."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests.cache.corpora import make_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.waves import WaveBatch
from xtts_pipeline.training.checkpoints.files import build_generator
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.step import GlobalBatch
from xtts_pipeline.training.vocoder.step import VocoderStep

ROWS, FRAMES = 4, 12
SMALL = (
    "vocoder.width=16",
    "vocoder.blocks=2",
    f"vocoder.crop_frames={FRAMES}",
    "vocoder.spectral_sizes=[128]",
    "vocoder.discriminator_sizes=[128]",
    "vocoder.discriminator_periods=[3]",
    "vocoder.discriminator_width=8",
    f"training.batch_size={ROWS}",
    "training.learning_rate=5e-3",
    "training.warmup_steps=0",
    "training.schedule=constant",
    "training.jit_compile=false",
)


def config_with(*overrides: str) -> Config:
    return make_config(*SMALL, *overrides)


def signature_of(config: Config) -> WaveBatch:
    return WaveBatch(
        tf.TensorSpec([ROWS, FRAMES, config.audio.mel_bins], tf.float16, "mel"),
        tf.TensorSpec([ROWS, (FRAMES - 1) * config.audio.hop_samples], tf.int16, "wave"),
    )


def make_step(config: Config) -> VocoderStep:
    return VocoderStep(build_generator(config), build_generator(config), config, [signature_of(config)])


def make_batch(seed: int = 0) -> WaveBatch:
    random = np.random.default_rng(seed)
    mel = tf.constant(random.normal(-3.0, 1.0, (ROWS, FRAMES, 8)), tf.float16)
    return WaveBatch(mel, tf.constant(random.integers(-8_000, 8_000, (ROWS, (FRAMES - 1) * 128)), tf.int16))


def values_of(step: VocoderStep, prefix: str) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in named_variables(step).items() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def step() -> VocoderStep:
    return make_step(config_with())


def test_a_batch_is_learned_in_one_trace(step: VocoderStep) -> None:
    numbers = [dict(zip(step.METRICS, step(make_batch()).numpy().tolist(), strict=True)) for _ in range(30)]
    assert numbers[-1]["loss"] < 0.9 * numbers[0]["loss"]
    assert all(np.isfinite(list(row.values())).all() for row in numbers)
    assert {row["is_skipped"] for row in numbers} == {0.0}
    assert numbers[0]["mel_frames"] == ROWS * FRAMES
    assert [function.experimental_get_tracing_count() for function in step.compiled.functions] == [1]


def test_every_variable_of_both_networks_is_trained(step: VocoderStep) -> None:
    before = values_of(step, "")
    step(make_batch(1))
    after = values_of(step, "")
    for prefix in ("network.", "average.", "discriminators."):
        names = [name for name in before if name.startswith(prefix)]
        assert names
        assert [name for name in names if np.array_equal(before[name], after[name])] == []


def test_an_update_that_is_not_finite_changes_neither_network(step: VocoderStep) -> None:
    bad = make_batch()._replace(mel=tf.fill([ROWS, FRAMES, 8], tf.constant(np.nan, tf.float16)))
    before = values_of(step, "network.") | values_of(step, "discriminators.")
    result = dict(zip(step.METRICS, step(bad).numpy(), strict=True))
    after = values_of(step, "network.") | values_of(step, "discriminators.")
    assert result["is_skipped"] == 1.0
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_the_shares_of_two_devices_add_up_to_the_whole_batch(step: VocoderStep) -> None:
    batch = make_batch()
    whole, metrics = step.batch_gradients(batch)
    assert step.row_numbers(batch).shape == (0, ROWS)
    half = GlobalBatch(tf.constant(0), tf.zeros([0, ROWS], tf.int32))
    shares = [
        step.batch_gradients(WaveBatch(batch.mel[rows], batch.wave[rows]), half)
        for rows in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS))
    ]
    for index, gradient in enumerate(whole):
        np.testing.assert_allclose(sum(share[index] for share, _ in shares), gradient, atol=2e-4, rtol=2e-3)
    for name, value in metrics.items():
        np.testing.assert_allclose(sum(found[name] for _, found in shares), value, rtol=1e-4, err_msg=name)


def test_without_an_adversarial_weight_there_are_no_discriminators() -> None:
    step = make_step(config_with("vocoder.adversarial_weight=0"))
    result = dict(zip(step.METRICS, step(make_batch()).numpy(), strict=True))
    assert not values_of(step, "discriminators.")
    assert (result["discriminator_loss"], result["discriminator_gradient_norm"]) == (0.0, 0.0)
    assert result["loss"] > 0.0


def test_discriminators_begin_at_their_step_with_a_program_of_their_own() -> None:
    config = config_with("vocoder.adversarial_start=2", "training.weight_decay=0.1")
    step = make_step(config)
    first = values_of(step, "discriminators.")
    numbers = []
    for steps_done in range(3):
        step.begin(steps_done)
        numbers.append(dict(zip(step.METRICS, step(make_batch()).numpy(), strict=True)))
        unchanged = all(
            np.array_equal(first[name], value) for name, value in values_of(step, "discriminators.").items()
        )
        assert unchanged == (steps_done < 2)
    assert [row["adversarial_loss"] > 0.0 for row in numbers] == [False, False, True]
    # Adam's first update has the size of the learning rate, if its moments begin with it. Biases have no decay.
    changes = [value - first[name] for name, value in values_of(step, "discriminators.").items() if value.ndim == 1]
    assert max(np.abs(change).max() for change in changes) == pytest.approx(config.training.learning_rate, rel=1e-3)
    assert [program.functions[0].experimental_get_tracing_count() for program in step.programs] == [1, 1]


def test_matrix_products_may_be_in_bfloat16() -> None:
    made = {name: make_step(config_with(f"training.precision={name}")) for name in ("float32", "bfloat16")}
    losses = {name: float(step(make_batch())[0]) for name, step in made.items()}
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.05)


def test_the_same_weights_and_batch_give_the_same_update() -> None:
    make = partial(make_step, config_with())
    one, other = make(), make()
    for step in (one, other):
        step(make_batch())
    for name, value in values_of(one, "").items():
        np.testing.assert_array_equal(values_of(other, name)[name], value)

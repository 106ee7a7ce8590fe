"""The discriminators and the losses that train a vocoder."""

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.model.layers import Initializer
from xtts_pipeline.vocoder.discriminators import Discriminators, StridedConvolution
from xtts_pipeline.vocoder.losses import (
    MelLoss,
    SpectralLoss,
    adversarial_loss,
    discriminator_loss,
    feature_loss,
)

AUDIO = AudioConfig(sample_rate=8_000, fft_size=256, window_samples=256, hop_samples=64, mel_bins=20, max_hz=4_000.0)


def waves(seed: int, rows: int = 2) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).uniform(-0.5, 0.5, (rows, 2_048)), tf.float32)


@pytest.fixture(scope="module")
def discriminators() -> Discriminators:
    return Discriminators(fft_sizes=(128, 256), periods=(2, 3), width=8)


@pytest.mark.parametrize(("taps", "stride", "length"), [(3, 1, 10), (3, 2, 11), (5, 3, 16), (5, 3, 17)])
def test_a_strided_convolution_is_that_of_tensorflow(taps: int, stride: int, length: int) -> None:
    layer = StridedConvolution(Initializer(0), 4, 6, taps, stride, "layer")
    x = tf.constant(np.random.default_rng(0).normal(size=(2, length, 4)), tf.float32)
    outputs = -(-length // stride)
    before = (taps - 1) // 2
    padded = tf.pad(x, [[0, 0], [before, (outputs - 1) * stride + taps], [0, 0]])
    weight = tf.reshape(layer.map.weight, [taps, 4, 6])

    expected = tf.nn.conv1d(padded, weight, stride, "VALID")[:, :outputs] + layer.map.bias

    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


def test_judgements_of_a_batch_are_those_of_its_rows(discriminators: Discriminators) -> None:
    batch = waves(0)
    whole = discriminators(batch)
    for row in range(2):
        for (judged, features), (of_row, row_features) in zip(whole, discriminators(batch[row : row + 1]), strict=True):
            np.testing.assert_allclose(judged[row], of_row[0], atol=1e-4)
            for feature, of_one in zip(features, row_features, strict=True):
                np.testing.assert_allclose(feature[row], of_one[0], atol=1e-4)


def test_every_discriminator_hears_every_part_of_the_wave(discriminators: Discriminators) -> None:
    wave = tf.Variable(waves(0, rows=1))
    for member in discriminators.members:
        with tf.GradientTape() as tape:
            judged, _ = member(wave)
            total = tf.reduce_sum(tf.square(judged))
        heard = np.abs(tape.gradient(total, wave)[0].numpy())
        # In a quarter of a thousand samples at least one counts; the last frame may be incomplete.
        assert (heard[:1_920].reshape(-1, 64).max(axis=1) > 0).all()


def test_hinge_losses_have_their_documented_values() -> None:
    def judged(value: float) -> list[tuple[tf.Tensor, list[tf.Tensor]]]:
        return [(tf.fill([2, 3], value), [tf.ones([2, 4])])] * 2

    assert float(discriminator_loss(judged(2.0), judged(-2.0))) == 0.0
    assert float(discriminator_loss(judged(0.0), judged(0.0))) == 2.0
    assert float(adversarial_loss(judged(0.25))) == 0.75
    assert float(feature_loss(judged(0.0), judged(5.0))) == 0.0


@pytest.mark.parametrize("loss", [MelLoss(AUDIO), SpectralLoss((128, 256))])
def test_a_wave_loses_nothing_against_itself_and_more_against_noise_than_against_a_softer_copy(
    loss: MelLoss | SpectralLoss,
) -> None:
    wave = waves(0)
    softer, noise = loss(0.9 * wave, wave).numpy(), loss(waves(1), wave).numpy()
    np.testing.assert_allclose(loss(wave, wave), [0.0, 0.0], atol=1e-6)
    assert (softer > 0.0).all()
    assert (softer < noise).all()


def test_a_mel_loss_is_the_difference_of_natural_logs() -> None:
    np.testing.assert_allclose(MelLoss(AUDIO)(0.5 * waves(0), waves(0)), np.log(2.0), atol=1e-3)

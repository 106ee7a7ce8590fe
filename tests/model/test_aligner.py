"""The aligner: its posterior against all paths one by one, and training without supervision."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.model.aligner import Aligner, alignment_posterior, smoothed
from xtts_pipeline.model.architecture import ALIGNER_SMOOTHING
from xtts_pipeline.model.layers import Initializer


def count_paths(likelihood_TS: np.ndarray, symbols: int, frames: int) -> np.ndarray:
    """Return the posterior from all paths one by one."""
    total, shares = 0.0, np.zeros_like(likelihood_TS)
    for steps in itertools.product([0, 1], repeat=frames - 1):
        path = np.cumsum([0, *steps])
        if path[-1] == symbols - 1:
            weight = np.exp(likelihood_TS[np.arange(frames), path].sum())
            total += weight
            shares[np.arange(frames), path] += weight
    return shares / total


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_posterior_is_that_of_all_paths(is_compiled: bool) -> None:
    likelihood = np.random.default_rng(0).normal(size=(3, 7, 4)).astype(np.float32)
    symbols, frames = np.array([3, 4, 4], np.int32), np.array([5, 7, 4], np.int32)
    share = tf.function(alignment_posterior, jit_compile=is_compiled)(likelihood, symbols, frames).numpy()
    for row in range(3):
        np.testing.assert_allclose(share[row], count_paths(likelihood[row], symbols[row], frames[row]), atol=1e-5)


def test_rows_without_a_path_have_no_posterior() -> None:
    likelihood = tf.zeros([3, 4, 5])
    share = alignment_posterior(likelihood, tf.constant([5, 0, 2]), tf.constant([4, 0, 3])).numpy()
    assert np.all(share[:2] == 0)
    np.testing.assert_allclose(share[2].sum(axis=-1), [1, 1, 1, 0], atol=1e-6)


def test_unlikely_frames_do_not_overflow() -> None:
    likelihood = tf.fill([1, 400, 60], -1e4)
    share = alignment_posterior(likelihood, tf.constant([60]), tf.constant([400])).numpy()
    np.testing.assert_allclose(share[0].sum(axis=-1), 1.0, atol=1e-3)


def test_the_frames_of_a_long_clip_sum_to_one() -> None:
    likelihood = -32.0 * np.random.default_rng(0).uniform(0.0, 0.3, (1, 880, 200)).astype(np.float32)
    share = alignment_posterior(tf.constant(likelihood), tf.constant([200]), tf.constant([880])).numpy()[0]
    np.testing.assert_allclose(share.sum(axis=-1), 1.0, atol=1e-5)
    assert share.sum() == pytest.approx(880.0, abs=1e-3)


def test_frames_are_averaged_with_their_neighbours_in_the_clip() -> None:
    mel = np.full((2, 17, 1), 1e6, np.float32)
    mel[0, :, 0], mel[1, :3, 0] = np.eye(17)[8], [4.0, 2.0, 8.0]
    whole, short = smoothed(tf.constant(mel), tf.constant([17, 3])).numpy()[..., 0]
    np.testing.assert_allclose(whole[4:13], ALIGNER_SMOOTHING, atol=1e-6)
    # Weights of the frame itself and of the next two: 70, 56 and 28.
    assert short[0] == pytest.approx((70 * 4 + 56 * 2 + 28 * 8) / 154)
    assert short[1] == pytest.approx((56 * 4 + 70 * 2 + 56 * 8) / 182)


def test_error_is_the_mean_square_of_the_difference() -> None:
    aligner = Aligner(Initializer(1), 11, 5)
    batch = random_batch(SPEC, (9, 4, 6), (20, 7, 12))
    mel = tf.cast(batch.mel, tf.float32)
    # Against frames of 0 the error is the mean square of each token's mean frame.
    zero = aligner.errors(batch.tokens, batch.text_length, tf.zeros_like(mel))
    error = aligner.errors(batch.tokens, batch.text_length, mel)
    assert error.shape == (3, 20, 9)
    assert float(tf.reduce_min(error)) >= 0.0
    alone = aligner.errors(batch.tokens[:1], batch.text_length[:1], mel[:1])
    np.testing.assert_allclose(alone, error[:1], rtol=1e-5)
    assert float(tf.math.reduce_std(zero[:, :, 0], axis=1)[0]) == pytest.approx(0.0, abs=1e-5)


def learn(random: np.random.Generator, sounds: np.ndarray, voice: tf.Tensor | None = None) -> tuple[float, float]:
    """Return the error after 150 updates, and the share of frames that belong to their own token.

    Row r speaks six of eight sounds, of 3 to 9 frames each in random order, from `sounds[r % len(sounds)]`.
    """
    tokens = np.array([random.permutation(np.arange(3, 11))[:6] for _ in range(16)], np.int32)
    durations = random.integers(3, 10, tokens.shape)
    frames = durations.sum(axis=1).astype(np.int32)
    mel, truth = np.zeros((16, 54, 5), np.float32), np.full((16, 54), -1)
    for row in range(16):
        truth[row, : frames[row]] = np.repeat(np.arange(6), durations[row])
        spoken = sounds[row % len(sounds)][np.repeat(tokens[row], durations[row])]
        mel[row, : frames[row]] = spoken + 0.2 * random.normal(size=spoken.shape)
    lengths = tf.fill([16], 6)
    aligner = Aligner(Initializer(1), 11, 5, voice_width=None if voice is None else voice.shape[1])
    optimizer = tf.keras.optimizers.Adam(5e-3)

    @tf.function
    def update() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            found = aligner(tokens, lengths, mel, frames, voice)
            loss = tf.reduce_sum(found.posterior * found.error) / float(frames.sum())
        optimizer.apply_gradients(
            zip(tape.gradient(loss, aligner.trainable_variables), aligner.trainable_variables, strict=True)
        )
        return found.posterior, loss

    for _ in range(150):
        posterior, loss = update()
    found = tf.argmax(posterior, axis=-1).numpy()
    return float(loss), float(np.mean(found[truth >= 0] == truth[truth >= 0]))


def test_the_aligner_learns_without_supervision() -> None:
    random = np.random.default_rng(0)
    _, right = learn(random, random.normal(size=(1, 11, 5)))
    assert right > 0.95


def test_a_pause_that_the_text_does_not_show_moves_no_other_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    means = tf.constant([[[0.0], [0.8], [0.2], [-0.6]]])
    # Of all tokens the last one is nearest to the silence before the second one.
    mel = np.repeat([0.0, -2.0, 0.8, 0.2, -0.6], [4, 8, 4, 4, 4]).astype(np.float32)[None, :, None]
    aligner = Aligner(Initializer(1), 11, 1)
    monkeypatch.setattr(aligner, "mean_frames", lambda *_: means)
    posterior = aligner(tf.constant([[3, 4, 5, 6]]), tf.constant([4]), tf.constant(mel), tf.constant([24])).posterior
    assert np.argmax(posterior[0], axis=-1)[14:].tolist() == [1] * 2 + [2] * 4 + [3] * 4


def test_the_aligner_tells_voices_apart() -> None:
    found = []
    for voice in (None, tf.one_hot(tf.range(16) % 2, 4)):
        random = np.random.default_rng(0)
        sounds = random.normal(size=(11, 5)) + 1.5 * random.normal(size=(2, 1, 5))
        found.append(learn(random, sounds, voice))
    (error_of_one_mean, right_by_one_mean), (error, right) = found
    assert error < 0.7 * error_of_one_mean
    assert right > right_by_one_mean

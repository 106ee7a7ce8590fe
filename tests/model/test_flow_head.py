from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.config.schema import AudioConfig, ModelConfig
from xtts_pipeline.model.flow_head import FlowHead
from xtts_pipeline.model.frame_decoder import DecodedFrames
from xtts_pipeline.model.layers import Dropout, Initializer
from xtts_pipeline.model.losses import mel_losses

ROWS, FRAMES, BINS, WIDTH, STEPS = 2, 30, 4, 16, 3
SPEAKING = Dropout.fixed(3)


@pytest.fixture
def head() -> FlowHead:
    config = ModelConfig(width=WIDTH, heads=2, feedforward_width=32, frames_per_step=1, flow_layers=1)
    return FlowHead(Initializer(0), config, AudioConfig(mel_bins=BINS))


def decoded_frames(seed: int, first: int = 0, last: int = FRAMES) -> DecodedFrames:
    """Return frames `first` to `last` of random decoder output; the last 5 frames of row 1 are padding."""
    random = np.random.default_rng(seed)
    coarse = random.normal(size=(ROWS, FRAMES, BINS)).astype(np.float32)
    hidden = random.normal(size=(ROWS, FRAMES, WIDTH)).astype(np.float32)
    is_real = np.arange(FRAMES) < np.array([[FRAMES], [FRAMES - 5]])
    parts = (x[:, first:last] for x in (coarse, hidden, is_real))
    return DecodedFrames(*map(tf.constant, parts))


def loss_of(head: FlowHead, decoded: DecodedFrames, target: tf.Tensor | np.ndarray, step: tf.Tensor | int) -> tf.Tensor:
    count = tf.reduce_sum(tf.cast(decoded.is_real, tf.float32))
    velocities = head.velocities(decoded, tf.convert_to_tensor(target), Dropout.for_step(0, step))
    return mel_losses(velocities.predicted, velocities.true, decoded.is_real, count)[1]


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_a_window_draws_the_frames_of_the_whole_text(head: FlowHead, guidance: float) -> None:
    whole = head.draw(decoded_frames(1), SPEAKING, 0, STEPS, guidance)
    first, reach = 8, STEPS * head.reach
    window = head.draw(decoded_frames(1, first, first + 2 * reach + 3), SPEAKING, tf.constant(first), STEPS, guidance)
    inside = slice(reach, reach + 3)
    np.testing.assert_allclose(window[:, inside], whole[:, first:][:, inside], atol=1e-5)


def test_padding_has_no_influence_on_what_is_drawn(head: FlowHead) -> None:
    before = decoded_frames(1)
    other = decoded_frames(2)
    is_real = before.is_real[..., None]
    after = before._replace(
        coarse=tf.where(is_real, before.coarse, other.coarse), hidden=tf.where(is_real, before.hidden, other.hidden)
    )
    drawn = [head.draw(decoded, SPEAKING, 0, STEPS, 3.0).numpy()[1, : FRAMES - 5] for decoded in (before, after)]
    np.testing.assert_array_equal(*drawn)


def test_the_noise_depends_on_the_seed_alone(head: FlowHead) -> None:
    first, again, other = (
        head.draw(decoded_frames(1), Dropout.fixed(seed), 0, STEPS, 1.0).numpy() for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1


def test_no_gradient_reaches_the_coarse_frames(head: FlowHead) -> None:
    decoded = decoded_frames(1)
    with tf.GradientTape() as tape:
        tape.watch(decoded)
        loss = loss_of(head, decoded, np.zeros([ROWS, FRAMES, BINS], np.float32), 0)
    gradient = tape.gradient(loss, decoded)
    assert gradient.coarse is None
    assert np.abs(gradient.hidden).max() > 0


def test_guidance_multiplies_the_difference_that_the_text_makes(head: FlowHead) -> None:
    decoded = decoded_frames(1)
    # A single update is linear in the velocity, so in the guidance.
    plain, double, triple = (head.draw(decoded, SPEAKING, 0, 1, guidance) for guidance in (1.0, 2.0, 3.0))
    np.testing.assert_allclose(triple - plain, 2.0 * (double - plain), atol=1e-5)
    # Without a text, there is nothing to multiply.
    head.null_condition.assign(head.from_hidden(decoded.hidden)[0, 0])
    same = decoded._replace(hidden=tf.broadcast_to(decoded.hidden[:1, :1], decoded.hidden.shape))
    drawn = [head.draw(same, SPEAKING, 0, STEPS, guidance) for guidance in (1.0, 3.0)]
    np.testing.assert_allclose(*drawn, atol=1e-5)
    assert np.abs(triple - plain).max() > 0.1


def test_guidance_is_stronger_above_the_first_harmonics(head: FlowHead) -> None:
    """The four bins are centred on 603, 1,237, 2,305 and 4,294 Hz."""
    decoded = decoded_frames(1)
    null = decoded._replace(hidden=tf.zeros_like(decoded.hidden))
    head.null_condition.assign(head.from_hidden(null.hidden)[0, 0])
    unguided, plain, guided = (
        head.draw(frames, SPEAKING, 0, 1, guidance).numpy()[decoded.is_real]
        for frames, guidance in ((null, 1.0), (decoded, 1.0), (decoded, 3.0))
    )
    strength = np.median((guided - unguided) / (plain - unguided), axis=0)
    np.testing.assert_allclose(strength, [3.01, 4.67, 5.0, 5.0], atol=0.01)


def test_a_tenth_of_the_clips_is_learned_without_the_text(head: FlowHead) -> None:
    decoded, target = decoded_frames(1), tf.zeros([ROWS, FRAMES, BINS])

    @tf.function(autograph=False)
    def gradients(step: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(decoded.hidden)
            loss = loss_of(head, decoded, target, step)
        found: list[tf.Tensor] = tape.gradient(loss, [decoded.hidden, head.null_condition])
        return found

    unknown = []
    for step in tf.range(200):
        hidden_BFD, null_D = gradients(step)
        unknown.append(np.abs(hidden_BFD).max(axis=(1, 2)) == 0)
        assert (np.abs(null_D).max() > 0) == unknown[-1].any()
    assert 0.05 < np.mean(unknown) < 0.15


def train(head: FlowHead, decoded: DecodedFrames, target: Callable[[], np.ndarray], steps: int) -> None:
    """Train on targets [B, T, 1], the same in all bins."""
    optimizer = tf.keras.optimizers.Adam(1e-2)

    @tf.function(autograph=False)
    def learn(target: tf.Tensor, step: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(head, decoded, target, step)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, head.trainable_variables), head.trainable_variables, strict=True)
        )

    for step in range(steps):
        learn(tf.constant(np.broadcast_to(target(), [ROWS, FRAMES, BINS]), tf.float32), tf.constant(step))


def test_guidance_draws_what_is_likely_for_the_text(head: FlowHead) -> None:
    """Recordings are about 0.6 above the coarse frames with the one text and below them with the other."""
    sign = np.array([1.0, -1.0])[:, None, None]
    hidden, is_real = np.broadcast_to(sign, [ROWS, FRAMES, WIDTH]), tf.fill([ROWS, FRAMES], True)
    decoded = DecodedFrames(tf.zeros([ROWS, FRAMES, BINS]), tf.constant(hidden, tf.float32), is_real)
    random = np.random.default_rng(0)
    train(head, decoded, lambda: 0.6 * sign + random.normal(0.0, 0.5, size=(ROWS, FRAMES, 1)), 300)
    plain, guided = (head.draw(decoded, SPEAKING, 0, 10, guidance).numpy().mean(axis=-1) for guidance in (1.0, 3.0))
    wrong, wrong_guided = ((np.sign(drawn) != sign[..., 0]).mean() for drawn in (plain, guided))
    assert wrong > 0.05
    assert wrong_guided < 0.5 * wrong


def test_what_it_draws_varies_like_the_recordings(head: FlowHead) -> None:
    """The recordings are 0.6 above or below the coarse frames at random: their mean, 0, would be neither."""
    decoded = decoded_frames(1)._replace(coarse=tf.zeros([ROWS, FRAMES, BINS]))
    random = np.random.default_rng(0)
    train(head, decoded, lambda: random.choice([-0.6, 0.6], size=(ROWS, FRAMES, 1)), 400)
    drawn = head.draw(decoded, SPEAKING, 0, 10, 1.0).numpy()[0]
    assert 0.45 < np.abs(drawn).mean() < 0.75
    assert 0.45 < drawn.std() < 0.75


def test_the_loss_of_an_evaluation_does_not_depend_on_how_clips_fall_into_batches(head: FlowHead) -> None:
    decoded, target = decoded_frames(1), tf.zeros([ROWS, FRAMES, BINS])
    together = head.velocities(decoded, target, SPEAKING).predicted
    for rows in (slice(None, None, -1), slice(1, None)):
        found = head.velocities(DecodedFrames(*(x[rows] for x in decoded)), target[rows], SPEAKING).predicted
        np.testing.assert_allclose(found, together[rows], atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 1e-3

import math

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.config import TrainingConfig
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import (
    attention_focus,
    decoder_steps,
    guided_attention_loss,
    masked_mean,
    mel_losses,
    spoken_target,
    stop_loss,
    total_loss,
)
from xtts_pipeline.model.network import Batch, Network, Prediction
from xtts_pipeline.schema import RecordSpec

from .conftest import MODEL, SPEC, SYMBOL_COUNT, random_batch


def test_masked_mean_counts_real_values_only() -> None:
    value, mask = tf.constant([1.0, 3.0, 100.0]), tf.constant([True, True, False])
    assert float(masked_mean(value, mask)) == 2.0
    assert float(masked_mean(value, tf.constant([False] * 3))) == 0.0


def test_masked_mean_is_not_poisoned_by_what_it_masks() -> None:
    assert float(masked_mean(tf.constant([1.0, math.nan]), tf.constant([True, False]))) == 1.0


def test_mel_losses_by_hand() -> None:
    target = tf.zeros([2, 3, 2])
    predicted = tf.constant([[[1.0, -3.0], [2.0, 2.0], [9.0, 9.0]], [[9.0, 9.0]] * 3])
    # Row 0 has two real frames with |1|,|3|,|2|,|2|; row 1 has none.
    absolute, squared = mel_losses(predicted, target, tf.constant([2, 0]))
    assert float(absolute) == pytest.approx((1 + 3 + 2 + 2) / 4)
    assert float(squared) == pytest.approx((1 + 9 + 4 + 4) / 4)


def test_stop_loss_by_hand() -> None:
    # Three real steps, logits 0, 0, ln 3: -ln(1/2), -ln(1/2), and weight 5 on -ln(3/4); the fourth is padding.
    logits = tf.constant([[0.0, 0.0, math.log(3.0), 50.0]])
    expected = (2 * math.log(2.0) + 5 * -math.log(0.75)) / (1 + 1 + 5)
    assert float(stop_loss(logits, tf.constant([3]), positive_weight=5.0)) == pytest.approx(expected, rel=1e-6)


def test_stop_loss_is_near_zero_at_perfect_output() -> None:
    logits = tf.where(tf.range(8)[None, :] == 5, 20.0, -20.0)
    assert float(stop_loss(logits, tf.constant([6]), positive_weight=5.0)) < 1e-6


@pytest.mark.parametrize(("frames", "steps"), [(0, 0), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_decoder_steps_round_up(frames: int, steps: int) -> None:
    assert int(decoder_steps(tf.constant([frames]), 3)[0]) == steps


def test_guided_attention_loss_by_hand() -> None:
    # One head, two steps, two symbols: step 0 looks at symbol 1, half a text away; step 1 at its own symbol.
    attention = tf.constant([[[[[0.0, 1.0], [0.0, 1.0]]]]])
    expected = (1.0 - math.exp(-(0.5**2) / (2 * 0.2**2))) / 2
    assert float(guided_attention_loss(attention, tf.constant([2]), tf.constant([2]), 0.2)) == pytest.approx(expected, rel=1e-6)


def test_guided_attention_prefers_the_diagonal() -> None:
    diagonal, backwards = tf.eye(6)[None, None, None], tf.reverse(tf.eye(6), [0])[None, None, None]
    lengths = tf.constant([6])
    assert float(guided_attention_loss(diagonal, lengths, lengths, 0.2)) == 0.0
    assert float(guided_attention_loss(backwards, lengths, lengths, 0.2)) > 0.5


def test_attention_focus_takes_the_sharpest_head() -> None:
    blurred, sharp = tf.fill([4, 4], 0.25), tf.eye(4)
    attention = tf.stack([blurred, sharp])[None, None]
    assert float(attention_focus(attention, tf.constant([4]))) == 1.0
    assert float(attention_focus(attention[:, :, :1], tf.constant([4]))) == 0.25


def test_perfect_prediction_has_loss_near_zero(network: Network, batch: Batch) -> None:
    target, _ = spoken_target(network, batch)
    steps = decoder_steps(batch.mel_length, network.frames_per_step)
    stop = tf.where(tf.range(network.max_steps)[None, :] == steps[:, None] - 1, 20.0, -20.0)
    attention = tf.zeros([2, 3, 2, network.max_steps, SPEC.max_text_length])
    losses = total_loss(network, batch, Prediction(target, target, stop, attention), TrainingConfig(), 1.0)
    assert float(losses["loss"]) < 1e-6


def losses_of(network: Network, batch: Batch, dropout: Dropout) -> dict[str, float]:
    return {name: float(value) for name, value in total_loss(network, batch, network(batch, dropout), TrainingConfig(), 1.0).items()}


def test_masked_frames_and_tokens_do_not_change_the_loss(network: Network, batch: Batch, dropout: Dropout) -> None:
    tokens, mel = batch.tokens.numpy(), batch.mel.numpy()
    for row in range(len(tokens)):
        tokens[row, int(batch.text_length[row]) :] = SYMBOL_COUNT - 1
        mel[row, int(batch.mel_length[row]) :] = 40.0
    changed = batch._replace(tokens=tf.constant(tokens), mel=tf.constant(mel))
    assert losses_of(network, changed, dropout) == pytest.approx(losses_of(network, batch, dropout), abs=1e-5)


def test_padding_a_batch_further_does_not_change_the_loss(network: Network, dropout: Dropout) -> None:
    longer = RecordSpec(SPEC.max_text_length + 7, SPEC.max_mel_frames + 16, SPEC.mel_bins, SPEC.pad_value)
    lengths = ((9, 4, 6), (20, 7, 12))
    wide = Network(MODEL, longer, SYMBOL_COUNT, seed=1)
    expected = losses_of(network, random_batch(SPEC, *lengths), dropout)
    assert losses_of(wide, random_batch(longer, *lengths), dropout) == pytest.approx(expected, abs=1e-5)


def test_rows_of_length_zero_weigh_nothing(network: Network, dropout: Dropout) -> None:
    alone = random_batch(SPEC, (9, 4), (20, 7))
    filled = random_batch(SPEC, (9, 4, 0), (20, 7, 0))
    assert losses_of(network, filled, dropout) == pytest.approx(losses_of(network, alone, dropout), abs=1e-5)


def test_a_batch_of_nothing_has_a_finite_gradient(network: Network, dropout: Dropout) -> None:
    nothing = random_batch(SPEC, (0, 0), (0, 0))
    with tf.GradientTape() as tape:
        loss = total_loss(network, nothing, network(nothing, dropout), TrainingConfig(), 1.0)["loss"]
    assert float(loss) == 0.0
    assert all(np.all(np.isfinite(tf.convert_to_tensor(gradient))) for gradient in tape.gradient(loss, network.trainable_variables))

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, no_reference, random_batch
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.model.aligner import Alignment
from xtts_pipeline.model.autoregressive.losses import (
    BatchTotals,
    Prediction,
    attention_coverage,
    attention_focus,
    batch_totals,
    diagonal_share,
    guided_attention_loss,
    stop_error,
    stop_loss,
    target_frames,
    total_loss,
)
from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import decoder_steps, loss_mask, mel_losses
from xtts_pipeline.model.network import Batch, Crop

GUIDANCE = 1.0


def test_mel_losses_by_hand() -> None:
    target = tf.zeros([2, 3, 2])
    predicted = tf.constant([[[1.0, -3.0], [2.0, 2.0], [9.0, 9.0]], [[9.0, 9.0]] * 3])
    # Row 0 has two real frames with |1|,|3|,|2|,|2|; row 1 has none.
    mask = tf.constant([[True, True, False], [False] * 3])
    absolute, squared = mel_losses(predicted, target, mask, tf.constant(2.0))
    assert float(absolute) == pytest.approx((1 + 3 + 2 + 2) / 4)
    assert float(squared) == pytest.approx((1 + 9 + 4 + 4) / 4)


def test_masked_values_do_not_reach_the_mel_losses() -> None:
    predicted = tf.constant([[[1.0], [math.inf]]])
    with tf.GradientTape() as tape:
        tape.watch(predicted)
        absolute, squared = mel_losses(predicted, tf.zeros([1, 2, 1]), tf.constant([[True, False]]), tf.constant(1.0))
        total = absolute + squared
    assert float(total) == 2.0
    np.testing.assert_array_equal(tape.gradient(total, predicted), [[[3.0], [0.0]]])


def test_frames_of_the_reference_have_no_loss() -> None:
    mask = loss_mask(tf.constant([6, 4, 0]), Crop(tf.constant([2, 0, 0]), tf.constant([3, 0, 0])), 7)
    assert mask.numpy().astype(int).tolist() == [[1, 1, 0, 0, 0, 1, 0], [1, 1, 1, 1, 0, 0, 0], [0] * 7]


def test_totals_by_hand(batch: Batch, crop: Crop) -> None:
    # 20, 7 and 12 frames, less 6 and 2 of references; 7, 3 and 4 steps, whose three last ones weigh 5; 9, 4 and 6
    # tokens.
    totals = batch_totals(batch, crop, frames_per_step=3, stop_positive_weight=5.0)
    assert [float(total) for total in totals] == [31.0, 39.0, 14.0, 14.0 + 3 * 4, 19.0, 3.0]


def test_stop_loss_by_hand() -> None:
    # Three real steps, logits 0, 0, ln 3: -ln(1/2), -ln(1/2), and weight 5 on -ln(3/4); the fourth is padding.
    logits = tf.constant([[0.0, 0.0, math.log(3.0), 50.0]])
    expected = (2 * math.log(2.0) + 5 * -math.log(0.75)) / (1 + 1 + 5)
    assert float(stop_loss(logits, tf.constant([3]), 5.0, tf.constant(7.0))) == pytest.approx(expected, rel=1e-6)


def test_stop_loss_is_near_zero_at_perfect_output() -> None:
    logits = tf.where(tf.range(8)[None, :] == 5, 20.0, -20.0)
    assert float(stop_loss(logits, tf.constant([6]), 5.0, tf.constant(10.0))) < 1e-6


@pytest.mark.parametrize(("frames", "steps"), [(0, 0), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_decoder_steps_round_up(frames: int, steps: int) -> None:
    assert int(decoder_steps(tf.constant([frames]), 3)[0]) == steps


def test_guided_attention_loss_by_hand() -> None:
    # One head, two steps, two symbols: step 0 attends to symbol 1, half a text away; step 1 at its own symbol.
    attention = tf.constant([[[[0.0, 1.0], [0.0, 1.0]]]])
    expected = (1.0 - math.exp(-(0.5**2) / (2 * 0.2**2))) / 2
    loss = guided_attention_loss(attention, tf.constant([2]), tf.constant([2]), 0.2, tf.constant(2.0))
    assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_guided_attention_prefers_the_diagonal() -> None:
    diagonal, backwards = tf.eye(6)[None, None], tf.reverse(tf.eye(6), [0])[None, None]
    lengths, total = tf.constant([6]), tf.constant(6.0)
    assert float(guided_attention_loss(diagonal, lengths, lengths, 0.2, total)) == 0.0
    assert float(guided_attention_loss(backwards, lengths, lengths, 0.2, total)) > 0.5


def losses_of(network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout) -> dict[str, float]:
    totals = batch_totals(batch, crop, network.frames_per_step, TrainingConfig().stop_positive_weight)
    losses = total_loss(network, batch, crop, network(batch, crop, dropout), TrainingConfig(), GUIDANCE, totals)
    return {name: float(value) for name, value in losses.items()}


def test_perfect_prediction_has_loss_near_zero(network: AutoregressiveNetwork, batch: Batch, crop: Crop) -> None:
    target = target_frames(network, batch)
    steps = decoder_steps(batch.mel_length, network.frames_per_step)
    stop = tf.where(tf.range(network.max_steps)[None, :] == steps[:, None] - 1, 20.0, -20.0)
    attention = tf.zeros([3, 4, network.max_steps, SPEC.max_text_length])
    totals = batch_totals(batch, crop, network.frames_per_step, 5.0)
    alignment = Alignment(*(tf.zeros([3, SPEC.max_mel_frames, SPEC.max_text_length]),) * 2)
    perfect = Prediction(target, target, target, stop, attention, alignment, tf.zeros_like(attention[:, 0]))
    losses = total_loss(network, batch, crop, perfect, TrainingConfig(), GUIDANCE, totals)
    assert float(losses["loss"]) < 1e-6
    assert float(losses["stop_error"]) == 0.0


def test_masked_frames_and_tokens_do_not_change_the_loss(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    tokens, mel = batch.tokens.numpy(), batch.mel.numpy()
    for row in range(len(tokens)):
        tokens[row, int(batch.text_length[row]) :] = SYMBOL_COUNT - 1
        mel[row, int(batch.mel_length[row]) :] = 40.0
    changed = batch._replace(tokens=tf.constant(tokens), mel=tf.constant(mel))
    assert losses_of(network, changed, crop, dropout) == pytest.approx(
        losses_of(network, batch, crop, dropout), abs=1e-5
    )


def test_padding_a_batch_further_does_not_change_the_loss(
    network: AutoregressiveNetwork, crop: Crop, dropout: Dropout
) -> None:
    longer = RecordSpec(SPEC.max_text_length + 7, SPEC.max_mel_frames + 16, SPEC.mel_bins, SPEC.pad_value)
    lengths = ((9, 4, 6), (20, 7, 12))
    wide = AutoregressiveNetwork(MODEL, longer, SYMBOL_COUNT, seed=1)
    expected = losses_of(network, random_batch(SPEC, *lengths), crop, dropout)
    assert losses_of(wide, random_batch(longer, *lengths), crop, dropout) == pytest.approx(expected, abs=1e-5)


def test_rows_of_length_zero_weigh_nothing(network: AutoregressiveNetwork, dropout: Dropout) -> None:
    alone = random_batch(SPEC, (9, 4), (20, 7))
    filled = random_batch(SPEC, (9, 4, 0), (20, 7, 0))
    crop = Crop(tf.constant([10, 3]), tf.constant([6, 2]))
    longer = Crop(tf.constant([10, 3, 0]), tf.constant([6, 2, 0]))
    assert losses_of(network, filled, longer, dropout) == pytest.approx(
        losses_of(network, alone, crop, dropout), abs=1e-5
    )


def test_the_parts_of_a_batch_add_up_to_the_whole(network: AutoregressiveNetwork, batch: Batch, crop: Crop) -> None:
    key = tf.constant(7, tf.uint32)
    totals = batch_totals(batch, crop, network.frames_per_step, 5.0)
    whole = total_loss(
        network, batch, crop, network(batch, crop, Dropout(key, True)), TrainingConfig(), GUIDANCE, totals
    )
    parts = dict.fromkeys(whole, 0.0)
    for row in range(3):
        one = Batch(*(None if tensor is None else tensor[row : row + 1] for tensor in batch))
        one_crop = Crop(*(tensor[row : row + 1] for tensor in crop))
        prediction = network(one, one_crop, Dropout(key, True, first_example=row))
        for name, value in total_loss(network, one, one_crop, prediction, TrainingConfig(), GUIDANCE, totals).items():
            parts[name] += float(value)
    assert parts == pytest.approx({name: float(value) for name, value in whole.items()}, abs=1e-5)


def test_an_empty_batch_has_a_finite_gradient(network: AutoregressiveNetwork, dropout: Dropout) -> None:
    nothing = random_batch(SPEC, (0, 0), (0, 0))
    crop = no_reference(nothing)
    totals = BatchTotals(*(tf.ones([]),) * 6)
    with tf.GradientTape() as tape:
        loss = total_loss(network, nothing, crop, network(nothing, crop, dropout), TrainingConfig(), GUIDANCE, totals)[
            "loss"
        ]
    assert float(loss) == 0.0
    gradients = tape.gradient(loss, network.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert all(np.all(np.isfinite(tf.convert_to_tensor(gradient))) for gradient in gradients)


FOUR, NONE = tf.constant([4]), tf.constant([0])
DIAGONAL = tf.eye(4)[None, None]
BLURRED = tf.fill([1, 1, 4, 4], 0.25)


def test_focus_takes_the_sharpest_head() -> None:
    both = tf.concat([BLURRED, DIAGONAL], axis=1)
    assert float(attention_focus(both, FOUR)) == 4.0  # the sum over four steps
    assert float(attention_focus(BLURRED, FOUR)) == 1.0


def test_mean_focus_is_the_largest_weight_of_a_step():
    blunt = np.full((1, 1, 2, 4), 0.25 / 3)
    blunt[..., [0, 1], [1, 2]] = 0.75
    assert float(attention_focus(blunt, tf.constant([2]))) / 2 == 0.75
    assert float(attention_focus(np.full((1, 1, 5, 8), 1 / 8), tf.constant([5]))) / 5 == 1 / 8


def test_diagonal_share_by_hand() -> None:
    # Within 0.15 of the line, steps and tokens of a quarter each: the token of the same number alone.
    assert float(diagonal_share(DIAGONAL, FOUR, FOUR)) == 4.0
    assert float(diagonal_share(BLURRED, FOUR, FOUR)) == 1.0
    assert float(diagonal_share(tf.reverse(DIAGONAL, [2]), FOUR, FOUR)) == 0.0
    assert float(diagonal_share(tf.concat([BLURRED, DIAGONAL], axis=1), FOUR, FOUR)) == 2.5  # the mean of the heads


def test_coverage_counts_attended_tokens() -> None:
    stuck = tf.one_hot([0, 0, 1, 1], 4)[None, None]
    assert float(attention_coverage(DIAGONAL, FOUR, FOUR)) == 4.0
    assert float(attention_coverage(stuck, FOUR, FOUR)) == 2.0
    assert float(attention_coverage(DIAGONAL, FOUR, tf.constant([2]))) == 2.0  # steps after the end do not count
    assert float(attention_coverage(DIAGONAL, tf.constant([3]), FOUR)) == 3.0  # nor do tokens


@pytest.mark.parametrize(
    ("logits", "error"),
    [
        ([-1.0, -1.0, 1.0, 1.0], 0.0),  # stops at the last of three steps
        ([1.0, -1.0, 1.0, 1.0], 2.0),  # two too early
        ([-1.0, -1.0, -1.0, 1.0], 3.0),  # in the padding only
        ([-1.0, -1.0, -1.0, -1.0], 3.0),  # never
    ],
)
def test_stop_error_by_hand(logits: list[float], error: float) -> None:
    assert float(stop_error(tf.constant([logits]), tf.constant([3]))) == error


def test_metrics_ignore_rows_of_length_zero() -> None:
    noise = tf.constant(np.random.default_rng(0).random((1, 2, 4, 4)), tf.float32)
    assert float(attention_focus(noise, NONE)) == 0.0
    assert float(diagonal_share(noise, NONE, NONE)) == 0.0
    assert float(attention_coverage(noise, NONE, NONE)) == 0.0
    assert float(stop_error(tf.constant([[5.0, 5.0]]), NONE)) == 0.0

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, SYMBOL_COUNT, losses_of, make_network, no_reference, random_batch
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.model.batch import Batch, Crop
from xtts_pipeline.model.frame_decoder import Prosody
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import (
    LOSS_METRICS,
    _explained_share,
    batch_totals,
    decoder_steps,
    duration_deviance,
    linear_beyond,
    loss_mask,
    mel_losses,
    prosody_losses,
    target_frames,
)
from xtts_pipeline.model.network import Network


def numbers_of(network: Network, batch: Batch, crop: Crop, dropout: Dropout) -> dict[str, float]:
    return {name: float(value) for name, value in losses_of(network, batch, crop, dropout).items()}


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
    # 20, 7 and 12 frames, less 6 and 2 of references; 9, 4 and 6 tokens.
    assert [float(total) for total in batch_totals(batch, crop)] == [31.0, 39.0, 19.0, 3.0]


def test_a_row_of_more_tokens_than_frames_counts_nowhere() -> None:
    batch = random_batch(SPEC, (9, 4), (8, 7))
    assert [float(total) for total in batch_totals(batch, no_reference(batch))] == [7.0, 7.0, 4.0, 1.0]


@pytest.mark.parametrize(("frames", "steps"), [(0, 0), (1, 1), (3, 1), (4, 2), (6, 2), (7, 3)])
def test_decoder_steps_round_up(frames: int, steps: int) -> None:
    assert int(decoder_steps(tf.constant([frames]), 3)[0]) == steps


def test_targets_have_whole_steps_and_are_silent_after_the_length(batch: Batch) -> None:
    target = target_frames(batch, 3, SPEC.pad_value).numpy()
    assert target.shape == (3, 21, SPEC.mel_bins)
    silence = (SPEC.pad_value + 5.0) / 4.0
    np.testing.assert_allclose(target[1, 7:], silence)
    np.testing.assert_allclose(target[1, :7], (batch.mel[1, :7].numpy().astype(np.float32) + 5.0) / 4.0)


def test_padding_does_not_change_the_loss(network: Network, crop: Crop, dropout: Dropout) -> None:
    longer = RecordSpec(SPEC.max_text_length + 7, SPEC.max_mel_frames + 16, SPEC.mel_bins, SPEC.pad_value)
    lengths = ((9, 4, 6), (20, 7, 12))
    expected = numbers_of(network, random_batch(SPEC, *lengths), crop, dropout)
    assert tuple(sorted(expected)) == tuple(sorted(LOSS_METRICS))
    padded = random_batch(longer, *lengths)
    tokens, mel = padded.tokens.numpy(), padded.mel.numpy()
    for row in range(3):
        tokens[row, lengths[0][row] :] = SYMBOL_COUNT - 1
        mel[row, lengths[1][row] :] = 40.0
    changed = padded._replace(tokens=tf.constant(tokens), mel=tf.constant(mel))
    assert numbers_of(make_network(longer), changed, crop, dropout) == pytest.approx(expected, abs=1e-5)


def test_rows_of_length_zero_weigh_nothing(network: Network, dropout: Dropout) -> None:
    alone, filled = random_batch(SPEC, (9, 4), (20, 7)), random_batch(SPEC, (9, 4, 0), (20, 7, 0))
    crop = Crop(tf.constant([10, 3]), tf.constant([6, 2]))
    longer = Crop(tf.constant([10, 3, 0]), tf.constant([6, 2, 0]))
    expected = numbers_of(network, alone, crop, dropout)
    assert numbers_of(network, filled, longer, dropout) == pytest.approx(expected, abs=1e-5)


def test_the_parts_of_a_batch_add_up_to_the_whole(network: Network, batch: Batch, crop: Crop) -> None:
    key = tf.constant(7, tf.uint32)
    totals = batch_totals(batch, crop)
    whole = losses_of(network, batch, crop, Dropout(key, True))
    parts = dict.fromkeys(whole, 0.0)
    for row in range(3):
        one = Batch(*(None if tensor is None else tensor[row : row + 1] for tensor in batch))
        one_crop = Crop(*(tensor[row : row + 1] for tensor in crop))
        dropout = Dropout(key, True, first_example=row)
        losses = network.losses(one, one_crop, network.own_references(one, one_crop), dropout, totals)
        for name, value in losses.items():
            parts[name] += float(value)
    assert parts == pytest.approx({name: float(value) for name, value in whole.items()}, abs=1e-5)


def test_a_loss_is_a_square_up_to_its_limit_and_a_line_with_the_same_slope_beyond() -> None:
    error = tf.constant([0.0, 0.1, -0.1, 0.2, -1.0])
    with tf.GradientTape() as tape:
        tape.watch(error)
        loss = linear_beyond(error, 0.2)
    np.testing.assert_allclose(loss, [0.0, 0.01, 0.01, 0.04, 0.36], atol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, error), [0.0, 0.2, -0.2, 0.4, -0.4], atol=1e-6)


def test_a_small_error_of_a_duration_is_squared_and_a_large_one_is_a_line() -> None:
    error = tf.constant([0.0, 0.01, -0.01, math.log(2.0), -math.log(2.0), 3.0])
    with tf.GradientTape() as tape:
        tape.watch(error)
        loss = duration_deviance(error)
    slope = 2 * (math.exp(2.0) - 1)
    at_limit = 2 * (math.exp(2.0) - 3.0)
    expected = [0.0, 1e-4, 1e-4, 2 * (1 - math.log(2.0)), 2 * (math.log(2.0) - 0.5), at_limit + slope]
    np.testing.assert_allclose(loss, expected, rtol=1e-2, atol=1e-6)
    expected_slopes = [0.0, 0.02, -0.02, 2.0, -1.0, slope]
    np.testing.assert_allclose(tape.gradient(loss, error), expected_slopes, rtol=1e-2, atol=1e-6)


def test_the_loss_of_durations_is_least_at_their_mean() -> None:
    measured = np.array([2.0, 4.0, 12.0])
    predicted = np.linspace(2.0, 12.0, 1_001)
    losses = duration_deviance(tf.constant(np.log(measured[None, :] / predicted[:, None]), tf.float32))
    assert predicted[np.argmin(np.mean(losses, axis=1))] == pytest.approx(np.mean(measured), abs=0.02)


def test_the_pitch_of_a_token_counts_as_far_as_it_is_voiced() -> None:
    measured = Prosody(*(tf.constant([[value, 0.0]]) for value in (1.0, 2.0, 0.5, -0.4)))
    predicted = Prosody(*(tf.constant([[value, 0.1]]) for value in (1.1, 1.8, 0.9, -0.5)))
    losses = prosody_losses(predicted, measured)
    duration = 2 * (math.exp(-0.1) + 0.1 - 1.0)
    for loss, expected in zip(losses, (duration, 0.04, 0.16, 0.005), strict=True):
        np.testing.assert_allclose(loss[0, 0], expected, atol=1e-6)
    assert losses.octaves[0, 1] == 0.0


def test_a_row_without_a_path_has_no_duration_loss(network: Network, dropout: Dropout) -> None:
    short = random_batch(SPEC, (9,), (5,))
    losses = numbers_of(network, short, no_reference(short), dropout)
    assert losses["duration_loss"] == losses["energy_loss"] == losses["pitch_loss"] == 0.0
    assert np.isfinite(list(losses.values())).all()


def test_an_empty_batch_has_a_finite_gradient(network: Network, dropout: Dropout) -> None:
    nothing = random_batch(SPEC, (0, 0), (0, 0))
    with tf.GradientTape() as tape:
        loss = losses_of(network, nothing, no_reference(nothing), dropout)["objective"]
    assert float(loss) == 0.0
    gradients = tape.gradient(loss, network.trainable_variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert all(np.all(np.isfinite(tf.convert_to_tensor(gradient))) for gradient in gradients)


def test_each_variable_gets_a_gradient_and_prosody_trains_what_it_is_predicted_from(
    network: Network, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    with tf.GradientTape(persistent=True) as tape:
        losses = losses_of(network, batch, crop, dropout)
        prosody = losses["duration_loss"] + losses["energy_loss"] + losses["pitch_loss"]
    variables = network.trainable_variables
    assert not [gradient for gradient in tape.gradient(losses["objective"], variables) if gradient is None]
    reached = tape.gradient(prosody, variables)
    moved = {variable.ref() for variable, gradient in zip(variables, reached, strict=True) if gradient is not None}
    trained_by_frames = (network.frame_decoder, network.flow_head, network.prosody_to_tokens, network.aligner)
    kept = {variable.ref() for part in trained_by_frames for variable in part.trainable_variables}
    assert moved == {variable.ref() for variable in variables} - kept


def test_a_clip_of_hum_does_not_hide_how_well_the_others_are_aligned() -> None:
    mel = np.random.default_rng(0).normal(size=(3, 20, 4)).astype(np.float32)
    mel[1] = 1.0 + 1e-3 * mel[1]
    share = _explained_share(tf.constant(mel), tf.constant([20, 20, 0]), tf.constant([5.0, 5.0, 5.0])).numpy()
    assert 0.5 < share[0] < 1.0
    np.testing.assert_array_equal(share[1:], [-1.0, 0.0])

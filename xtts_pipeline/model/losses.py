"""The training losses: of frames, of the prosody of tokens and of the aligner, averaged over what is real.

Tensors in, scalars out; rows of length 0 have no weight. Averages divide by totals of the whole batch, so the losses of
accumulated parts add up to the loss of the whole batch.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.model.aligner import Alignment
from xtts_pipeline.model.batch import MEL_SCALE, Batch, Crop, to_network_scale
from xtts_pipeline.model.flow_head import Velocities
from xtts_pipeline.model.frame_decoder import DecodedFrames, Prosody
from xtts_pipeline.model.layers import length_mask

LOSS_METRICS = (
    "loss",
    "objective",
    "mel_l1",
    "token_error",
    "duration_loss",
    "energy_loss",
    "pitch_loss",
    "flow_loss",
    "alignment_fit",
)
# The losses of prosody are errors of logs and levels, larger than those of frames.
PROSODY_WEIGHT = 0.3
# A pause that the text does not show lasts many times as long as any prediction. Beyond this log of the ratio, the loss
# of a duration rises in a straight line.
LARGEST_DURATION_ERROR = 2.0
# A semitone, which is clearly heard, is 0.08 octaves, and its square 0.007.
OCTAVES_WEIGHT = 10.0
# In octaves. The pitch of hardly voiced tokens is sometimes read an octave too high or more.
LARGEST_SQUARED_PITCH_ERROR = 0.1


class Prediction(NamedTuple):
    """Frames decoded with the aligner's timing.

    prosody [B, S] predicted from the text, and `measured`, that of the recording. alignment of the recorded frames.
    """

    decoded: DecodedFrames
    prosody: Prosody
    measured: Prosody
    alignment: Alignment


class BatchTotals(NamedTuple):
    """Denominators of a whole batch's averages, float32 scalars; `frames` are those that the mel losses cover."""

    frames: tf.Tensor
    all_frames: tf.Tensor
    tokens: tf.Tensor
    rows: tf.Tensor


def rows_with_path(batch: Batch, crop: Crop) -> tuple[Batch, Crop]:
    """Return a batch in which rows of more tokens than frames, which the aligner cannot align, have no weight."""
    has_path_B = batch.mel_length >= batch.text_length
    mel_length_B, crop_length_B = (tf.where(has_path_B, length_B, 0) for length_B in (batch.mel_length, crop.length))
    return batch._replace(mel_length=mel_length_B), crop._replace(length=crop_length_B)


def batch_totals(batch: Batch, crop: Crop) -> BatchTotals:
    """Return the denominators of a whole batch's averages; each is at least 1."""
    batch, crop = rows_with_path(batch, crop)
    tokens = _float_sum(tf.where(batch.mel_length > 0, batch.text_length, 0))
    rows = _float_sum(tf.cast(batch.mel_length > 0, tf.int32))
    counts = (_float_sum(batch.mel_length - crop.length), _float_sum(batch.mel_length), tokens, rows)
    return BatchTotals(*(tf.maximum(count, 1.0) for count in counts))


def training_losses(
    batch: Batch,
    crop: Crop,
    target_BTM: tf.Tensor,
    prediction: Prediction,
    velocities: Velocities | None,
    totals: BatchTotals,
) -> dict[str, tf.Tensor]:
    """Return LOSS_METRICS: `objective`, which training minimises, its parts, and metrics.

    `target` is that of `target_frames`. `loss` has the same parts in training and in validation. `mel_l1` is in natural
    log units. The losses of prosody are those of `prosody_losses`. `token_error` is the aligner's loss. `alignment_fit`
    is the share of the variance of a clip's smoothed frames that its tokens' mean frames explain, mean over clips,
    each at least -1.
    """
    mask_BT = loss_mask(batch.mel_length, crop, target_BTM.shape[1])
    coarse_BTM = tf.reshape(prediction.decoded.coarse, target_BTM.shape)
    l1, l2 = mel_losses(coarse_BTM, target_BTM, mask_BT, totals.frames)
    mask_BS = length_mask(batch.text_length, batch.tokens.shape[1]) & (batch.mel_length > 0)[:, None]
    duration, energy, voicing, octaves = (
        tf.reduce_sum(tf.where(mask_BS, loss_BS, 0.0)) / totals.tokens
        for loss_BS in prosody_losses(prediction.prosody, prediction.measured)
    )
    error_B = tf.reduce_sum(prediction.alignment.posterior * prediction.alignment.error, axis=[1, 2])
    token_error = tf.reduce_sum(error_B) / totals.all_frames
    flow = tf.zeros([])
    if velocities is not None:
        flow = mel_losses(velocities.predicted, velocities.true, mask_BT, totals.frames)[1]
    loss = l1 + l2 + PROSODY_WEIGHT * (duration + energy + voicing + OCTAVES_WEIGHT * octaves) + flow
    return {
        "objective": loss + token_error,
        "loss": loss,
        "mel_l1": l1 * MEL_SCALE,
        "token_error": token_error,
        "duration_loss": duration,
        "energy_loss": energy,
        "pitch_loss": voicing + octaves,
        "flow_loss": flow,
        "alignment_fit": tf.reduce_sum(_explained_share(prediction.alignment.mel, batch.mel_length, error_B))
        / totals.rows,
    }


def decoder_steps(mel_length_B: tf.Tensor, frames_per_step: int) -> tf.Tensor:
    """Return the number of decoder steps that hold a real frame, int32 [B]."""
    return (mel_length_B + frames_per_step - 1) // frames_per_step


def target_frames(batch: Batch, frames_per_step: int, silence: float) -> tf.Tensor:
    """Return the target mel in the network's scale, padded to whole decoder steps; silent after its length."""
    silence = to_network_scale(silence)
    target_BTM = to_network_scale(batch.mel)
    extra = -batch.mel.shape[1] % frames_per_step
    target_BTM = tf.pad(target_BTM, [[0, 0], [0, extra], [0, 0]])
    # Frames after the length that share a decoder step with real ones must not depend on what pads them.
    return tf.where(length_mask(batch.mel_length, target_BTM.shape[1])[..., None], target_BTM, silence)


def loss_mask(mel_length_B: tf.Tensor, crop: Crop, frames: int) -> tf.Tensor:
    """Return bool [B, frames]: True for real frames outside the clip's own reference, which the network has seen."""
    frame_1T = tf.range(frames)[None, :]
    is_seen_BT = (frame_1T >= crop.first_frame[:, None]) & (frame_1T < (crop.first_frame + crop.length)[:, None])
    return length_mask(mel_length_B, frames) & ~is_seen_BT


def mel_losses(
    predicted_BTM: tf.Tensor, target_BTM: tf.Tensor, mask_BT: tf.Tensor, frames: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the absolute and the squared error where the mask is True, mean over `frames` frames and all bins."""
    # Masked before the square: masked values may be anything, even infinity.
    difference_BTM = tf.where(mask_BT[..., None], predicted_BTM - target_BTM, 0.0)
    bins = target_BTM.shape[-1]
    absolute = tf.reduce_sum(tf.abs(difference_BTM)) / (bins * frames)
    return absolute, tf.reduce_sum(tf.square(difference_BTM)) / (bins * frames)


def prosody_losses(predicted: Prosody, measured: Prosody) -> Prosody:
    """Return the loss of each token's prosody, [B, S] each: squared errors, but for the durations and the octaves.

    The measured voicing weighs the octaves, since those of unvoiced tokens have no meaning.
    """
    return Prosody(
        duration_deviance(measured.log_duration - predicted.log_duration),
        tf.square(predicted.energy - measured.energy),
        tf.square(predicted.voicing - measured.voicing),
        measured.voicing * linear_beyond(predicted.octaves - measured.octaves, LARGEST_SQUARED_PITCH_ERROR),
    )


def duration_deviance(error: tf.Tensor) -> tf.Tensor:
    """Return the unit deviance of the Gamma distribution, from the log of measured over predicted durations.

    2 * (ratio - log(ratio) - 1), McCullagh and Nelder 1989; the square of a small error. It is least at the mean of the
    durations that a text may have. Squared errors of logs are least at their geometric mean, which is shorter: real
    speech was 8% too fast.
    """
    bounded = tf.minimum(error, LARGEST_DURATION_ERROR)
    beyond = (error - bounded) * math.expm1(LARGEST_DURATION_ERROR)
    return 2.0 * (tf.math.expm1(bounded) - bounded + beyond)


def linear_beyond(error: tf.Tensor, largest: float) -> tf.Tensor:
    """Return the squares of errors, continued as straight lines beyond the largest error (Huber 1964)."""
    size = tf.abs(error)
    squared = tf.minimum(size, largest)
    return squared * (2.0 * size - squared)


def _float_sum(counts_B: tf.Tensor) -> tf.Tensor:
    """Return the sum of counts as float32."""
    return tf.cast(tf.reduce_sum(counts_B), tf.float32)


def _explained_share(mel_BTM: tf.Tensor, mel_length_B: tf.Tensor, error_B: tf.Tensor) -> tf.Tensor:
    """Return 1 - error / variance of each clip's frames around their mean, [B]; 0 for rows of length 0.

    At least -1: a clip of noise or hum hardly varies, and would hide all others of the batch.
    """
    mask_BT1 = length_mask(mel_length_B, mel_BTM.shape[1])[..., None]
    frames_B1 = tf.cast(tf.maximum(mel_length_B, 1), tf.float32)[:, None]
    mean_B1M = (tf.reduce_sum(tf.where(mask_BT1, mel_BTM, 0.0), axis=1) / frames_B1)[:, None, :]
    squares_B = tf.reduce_sum(tf.where(mask_BT1, tf.square(mel_BTM - mean_B1M), 0.0), axis=[1, 2]) / mel_BTM.shape[-1]
    share_B = tf.maximum(1.0 - tf.math.divide_no_nan(error_B, squares_B), -1.0)
    return tf.where(mel_length_B > 0, share_B, 0.0)

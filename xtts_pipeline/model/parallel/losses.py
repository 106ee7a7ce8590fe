"""The training losses of the parallel decoder: of frames, durations, energies and of the aligner.

Tensors in, scalars out; rows of length 0 have no weight.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.model.aligner import Alignment
from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.losses import float_sum, loss_mask, mel_losses, target_frames
from xtts_pipeline.model.network import MEL_SCALE, Batch, Crop, Network
from xtts_pipeline.model.parallel.flow_head import FlowHead
from xtts_pipeline.model.parallel.frame_decoder import DecodedFrames, Prosody

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
# Their gradients reach their predictor alone, but count in the norm that clips all gradients.
PROSODY_WEIGHT = 0.1


class ParallelPrediction(NamedTuple):
    """Frames decoded with the aligner's timing.

    prosody [B, S] predicted from the text, and `measured`, that of the recording. alignment of the recorded frames.
    """

    decoded: DecodedFrames
    prosody: Prosody
    measured: Prosody
    alignment: Alignment


class ParallelTotals(NamedTuple):
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


def parallel_totals(batch: Batch, crop: Crop) -> ParallelTotals:
    """Return the denominators of a whole batch's averages; each is at least 1."""
    tokens = float_sum(tf.where(batch.mel_length > 0, batch.text_length, 0))
    rows = float_sum(tf.cast(batch.mel_length > 0, tf.int32))
    counts = (float_sum(batch.mel_length - crop.length), float_sum(batch.mel_length), tokens, rows)
    return ParallelTotals(*(tf.maximum(count, 1.0) for count in counts))


def parallel_losses(
    network: Network,
    batch: Batch,
    crop: Crop,
    prediction: ParallelPrediction,
    totals: ParallelTotals,
    flow_head: FlowHead | None,
    dropout: Dropout,
) -> dict[str, tf.Tensor]:
    """Return LOSS_METRICS. The losses of duration and energy are squared errors of the log and of the level.

    `alignment_fit` is the share of a clip's variance that its tokens' mean frames explain, mean over clips.
    """
    # Frames after the length that share a decoder step with real ones must not depend on what pads them.
    target_BTM = target_frames(network, batch)
    is_real_BT1 = length_mask(batch.mel_length, target_BTM.shape[1])[..., None]
    target_BTM = tf.where(is_real_BT1, target_BTM, network.network_silence)
    mask_BT = loss_mask(batch.mel_length, crop, target_BTM.shape[1])
    coarse_BTM = tf.reshape(prediction.decoded.coarse, target_BTM.shape)
    l1, l2 = mel_losses(coarse_BTM, target_BTM, mask_BT, totals.frames)
    posterior_BTS = prediction.alignment.posterior
    mask_BS = length_mask(batch.text_length, batch.tokens.shape[1]) & (batch.mel_length > 0)[:, None]
    duration, energy, voicing, octaves = (
        tf.reduce_sum(tf.where(mask_BS, tf.square(predicted - measured), 0.0)) / totals.tokens
        for predicted, measured in zip(prediction.prosody, prediction.measured, strict=True)
    )
    error_B = tf.reduce_sum(posterior_BTS * prediction.alignment.error, axis=[1, 2])
    token_error = tf.reduce_sum(error_B) / totals.all_frames
    flow = tf.zeros([])
    if flow_head is not None:
        flow = flow_head.loss(prediction.decoded, target_BTM, mask_BT, totals.frames, dropout)
    loss = l1 + l2 + PROSODY_WEIGHT * (duration + energy + voicing + octaves) + flow
    return {
        "objective": loss + token_error,
        "loss": loss,
        "mel_l1": l1 * MEL_SCALE,
        "token_error": token_error,
        "duration_loss": duration,
        "energy_loss": energy,
        "pitch_loss": voicing + octaves,
        "flow_loss": flow,
        "alignment_fit": tf.reduce_sum(_explained_share(target_BTM, batch.mel_length, error_B)) / totals.rows,
    }


def _explained_share(mel_BTM: tf.Tensor, mel_length_B: tf.Tensor, error_B: tf.Tensor) -> tf.Tensor:
    """Return 1 - error / variance of each clip's frames around their mean, [B]; 0 for rows of length 0."""
    mask_BT1 = length_mask(mel_length_B, mel_BTM.shape[1])[..., None]
    frames_B1 = tf.cast(tf.maximum(mel_length_B, 1), tf.float32)[:, None]
    mean_B1M = (tf.reduce_sum(tf.where(mask_BT1, mel_BTM, 0.0), axis=1) / frames_B1)[:, None, :]
    squares_B = tf.reduce_sum(tf.where(mask_BT1, tf.square(mel_BTM - mean_B1M), 0.0), axis=[1, 2]) / mel_BTM.shape[-1]
    return tf.where(mel_length_B > 0, 1.0 - tf.math.divide_no_nan(error_B, squares_B), 0.0)

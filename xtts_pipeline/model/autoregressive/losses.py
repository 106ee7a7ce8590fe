"""The training losses, averaged over real frames, decoder steps or tokens only, and metrics of attention and stops.

Tensors in, scalars out; rows of length 0 have no weight. Averages divide by the `BatchTotals` of the whole batch, so
the losses of accumulated parts add up to the loss of the whole batch. Metrics are sums over a batch.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.model.aligner import Alignment
from xtts_pipeline.model.layers import length_mask
from xtts_pipeline.model.losses import decoder_steps, float_sum, loss_mask, mel_losses, target_frames
from xtts_pipeline.model.network import MEL_SCALE, Batch, Crop, Network

LOSS_METRICS = (
    "loss",
    "objective",
    "mel_l1",
    "text_l1",
    "token_error",
    "alignment_loss",
    "stop_loss",
    "stop_error",
    "attention_loss",
    "attention_focus",
    "attention_diagonal",
    "attention_coverage",
)

# Added to a weight before its logarithm: attention of weight 0 costs 14 nats, not infinity.
LEAST_ATTENTION = 1e-6
# Largest distance from the diagonal, as a share of the text, that counts as on it.
DIAGONAL_BAND = 0.15
# A token counts as spoken if one decoder step attends to it with at least this weight.
COVERED_WEIGHT = 0.2


class Prediction(NamedTuple):
    """Output of teacher forcing, float32; mels are in the network's scale.

    coarse and fine [B, T, M], before and after the postnet, T rounded up to whole decoder steps. text_frames [B, T, M],
    the part of `coarse` predicted from the text alone. stop_logit [B, F]. attention [B, G, F, S] of the guided heads to
    the text. alignment of the ground-truth frames, and token_shares [B, F, S], its posterior averaged over each decoder
    step.
    """

    coarse: tf.Tensor
    fine: tf.Tensor
    text_frames: tf.Tensor
    stop_logit: tf.Tensor
    attention: tf.Tensor
    alignment: Alignment
    token_shares: tf.Tensor


class BatchTotals(NamedTuple):
    """Denominators of a whole batch's averages, float32 scalars.

    frames: those that the mel losses cover. all_frames: all real ones. steps: decoder steps, of weight `stop_weight` in
    the stop loss.
    """

    frames: tf.Tensor
    all_frames: tf.Tensor
    steps: tf.Tensor
    stop_weight: tf.Tensor
    tokens: tf.Tensor
    rows: tf.Tensor


def batch_totals(batch: Batch, crop: Crop, frames_per_step: int, stop_positive_weight: float) -> BatchTotals:
    """Return the denominators of a whole batch's averages; each is at least 1."""
    steps = float_sum(decoder_steps(batch.mel_length, frames_per_step))
    rows = float_sum(tf.cast(batch.mel_length > 0, tf.int32))
    tokens = float_sum(tf.where(batch.mel_length > 0, batch.text_length, 0))
    stop_weight = steps + (stop_positive_weight - 1.0) * rows
    counts = (float_sum(batch.mel_length - crop.length), float_sum(batch.mel_length), steps, stop_weight, tokens, rows)
    return BatchTotals(*(tf.maximum(count, 1.0) for count in counts))


def stop_loss(
    stop_logit_BF: tf.Tensor, steps_B: tf.Tensor, positive_weight: float, total_weight: tf.Tensor
) -> tf.Tensor:
    """Return the weighted binary cross-entropy of a stop at the last real decoder step and at no earlier one."""
    is_last_BF = tf.range(stop_logit_BF.shape[1])[None, :] == steps_B[:, None] - 1
    mask_BF = length_mask(steps_B, stop_logit_BF.shape[1])
    entropy_BF = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_last_BF, tf.float32), stop_logit_BF)
    return tf.reduce_sum(tf.where(mask_BF, entropy_BF * tf.where(is_last_BF, positive_weight, 1.0), 0.0)) / total_weight


def off_diagonal(text_length_B: tf.Tensor, steps_B: tf.Tensor, symbols: int, steps: int) -> tf.Tensor:
    """Return the signed distance of decoder steps and tokens from the diagonal, in shares of the whole: [B, F, S]."""
    along_steps_BF = tf.range(steps, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(steps_B, 1), tf.float32)[:, None]
    along_text_BS = (
        tf.range(symbols, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(text_length_B, 1), tf.float32)[:, None]
    )
    return along_steps_BF[:, :, None] - along_text_BS[:, None, :]


def guided_attention_loss(
    attention_BGFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor, width: float, total_steps: tf.Tensor
) -> tf.Tensor:
    """Return the attention weight off the diagonal, mean over heads and real decoder steps (Tachibana et al. 2017)."""
    steps, symbols = attention_BGFS.shape[2:]
    penalty_BFS = 1.0 - tf.exp(-tf.square(off_diagonal(text_length_B, steps_B, symbols, steps)) / (2.0 * width**2))
    off_diagonal_BF = tf.reduce_sum(tf.reduce_mean(attention_BGFS, axis=1) * penalty_BFS, axis=-1)
    return tf.reduce_sum(tf.where(length_mask(steps_B, steps), off_diagonal_BF, 0.0)) / total_steps


def alignment_losses(
    alignment: Alignment, token_shares_BFS: tf.Tensor, attention_BGFS: tf.Tensor, totals: BatchTotals
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the loss of the aligner and that of attention against the aligner.

    The first is the mean squared error of frames against the mean frames of their tokens, in the network's scale. The
    second is the cross-entropy of attention and the aligner's token shares in nats, mean over guided heads and real
    decoder steps.
    """
    entropy_BGF = -tf.reduce_sum(token_shares_BFS[:, None] * tf.math.log(attention_BGFS + LEAST_ATTENTION), axis=-1)
    cross_entropy = tf.reduce_sum(tf.reduce_mean(entropy_BGF, axis=1)) / totals.steps
    return tf.reduce_sum(alignment.posterior * alignment.error) / totals.all_frames, cross_entropy


def attention_focus(attention_BGFS: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return the sum over real decoder steps of the largest weight of any head (focus rate, Ren et al. 2019).

    The mean over steps is 1 / S for uniform attention and 1 for a single token. If it is low, attention has not
    aligned.
    """
    sharpest_BF = tf.reduce_max(attention_BGFS, axis=[1, 3])
    return tf.reduce_sum(tf.where(length_mask(steps_B, attention_BGFS.shape[2]), sharpest_BF, 0.0))


def diagonal_share(attention_BGFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return the sum over real decoder steps of the weight within DIAGONAL_BAND of the diagonal, mean of the heads."""
    steps, symbols = attention_BGFS.shape[2:]
    is_near_BFS = tf.abs(off_diagonal(text_length_B, steps_B, symbols, steps)) <= DIAGONAL_BAND
    near_BF = tf.reduce_sum(tf.where(is_near_BFS, tf.reduce_mean(attention_BGFS, axis=1), 0.0), axis=-1)
    return tf.reduce_sum(tf.where(length_mask(steps_B, steps), near_BF, 0.0))


def attention_coverage(attention_BGFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return how many real tokens have a weight of at least COVERED_WEIGHT in any real decoder step and head."""
    steps, symbols = attention_BGFS.shape[2:]
    is_real_B1F1 = length_mask(steps_B, steps)[:, None, :, None]
    most_BS = tf.reduce_max(tf.where(is_real_B1F1, attention_BGFS, 0.0), axis=[1, 2])
    is_covered_BS = (most_BS >= COVERED_WEIGHT) & length_mask(text_length_B, symbols)
    return tf.reduce_sum(tf.cast(is_covered_BS, tf.float32))


def stop_error(stop_logit_BF: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return by how many decoder steps stops come too early at a threshold of 0.5, summed over rows.

    A row without a stop counts all its steps. Logits after a clip's end are padding and ignored.
    """
    step_1F = tf.range(stop_logit_BF.shape[1])[None, :]
    is_stop_BF = (stop_logit_BF > 0.0) & (step_1F < steps_B[:, None])
    first_B = tf.reduce_min(tf.where(is_stop_BF, step_1F, steps_B[:, None]), axis=1)
    error_B = tf.where(first_B < steps_B, steps_B - 1 - first_B, steps_B)
    return tf.reduce_sum(tf.cast(error_B, tf.float32))


def total_loss(
    network: Network,
    batch: Batch,
    crop: Crop,
    prediction: Prediction,
    config: TrainingConfig,
    guidance: tf.Tensor | float,
    totals: BatchTotals,
) -> dict[str, tf.Tensor]:
    """Return `objective`, which training minimises, its parts, and the attention metrics.

    `guidance` scales the weight of the diagonal attention loss. `loss` is the objective without the losses of attention
    and aligner, so that training and validation compare. `mel_l1` is in natural log units, `stop_error` in decoder
    steps.
    """
    target_BTM = target_frames(network, batch)
    mask_BT = loss_mask(batch.mel_length, crop, target_BTM.shape[1])
    steps_B = decoder_steps(batch.mel_length, network.frames_per_step)
    coarse_l1, coarse_l2 = mel_losses(prediction.coarse, target_BTM, mask_BT, totals.frames)
    fine_l1, fine_l2 = mel_losses(prediction.fine, target_BTM, mask_BT, totals.frames)
    stop = stop_loss(prediction.stop_logit, steps_B, config.stop_positive_weight, totals.stop_weight)
    text_l1, text_l2 = mel_losses(prediction.text_frames, target_BTM, mask_BT, totals.frames)
    attention_BGFS = prediction.attention
    attention = guided_attention_loss(
        attention_BGFS, batch.text_length, steps_B, config.guided_attention_width, totals.steps
    )
    token_error, alignment = alignment_losses(prediction.alignment, prediction.token_shares, attention_BGFS, totals)
    loss = coarse_l1 + coarse_l2 + fine_l1 + fine_l2 + text_l1 + text_l2 + config.stop_weight * stop
    guided = config.guided_attention_weight * guidance * attention + config.alignment_weight * alignment
    return {
        "objective": loss + guided + token_error,
        "loss": loss,
        "mel_l1": fine_l1 * MEL_SCALE,
        "text_l1": text_l1 * MEL_SCALE,
        "token_error": token_error,
        "alignment_loss": alignment,
        "stop_loss": stop,
        "stop_error": stop_error(prediction.stop_logit, steps_B) / totals.rows,
        "attention_loss": attention,
        "attention_focus": attention_focus(attention_BGFS, steps_B) / totals.steps,
        "attention_diagonal": diagonal_share(attention_BGFS, batch.text_length, steps_B) / totals.steps,
        "attention_coverage": attention_coverage(attention_BGFS, tf.where(steps_B > 0, batch.text_length, 0), steps_B)
        / totals.tokens,
    }

"""What training minimises, each part averaged over real frames or decoder steps only.

Tensors in, scalars out; rows of length 0 weigh nothing.
"""

import tensorflow as tf

from xtts_pipeline.config import TrainingConfig
from xtts_pipeline.model.layers import length_mask
from xtts_pipeline.model.network import MEL_SCALE, Batch, Network, Prediction

GUIDED_LAYERS, GUIDED_HEADS = 2, 2


def masked_mean(value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the mean of value where the bool mask of the same shape is True; 0 where it is nowhere."""
    weight = tf.cast(mask, value.dtype)
    return tf.reduce_sum(tf.where(mask, value, 0.0)) / tf.maximum(tf.reduce_sum(weight), 1.0)


def decoder_steps(mel_length_B: tf.Tensor, frames_per_step: int) -> tf.Tensor:
    """Return how many decoder steps hold a real frame, int32 [B]."""
    return (mel_length_B + frames_per_step - 1) // frames_per_step


def spoken_target(network: Network, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the target mel, in the network's scale and whole decoder steps, and how many of its frames [B] are spoken.

    The stop ends whole decoder steps, so the last step's frames past the end of the clip are spoken too: they are taught silence.
    """
    frames = batch.mel.shape[1]
    silence = network.to_network_scale(network.silence)
    is_real_BT1 = length_mask(batch.mel_length, frames)[..., None]
    target_BTM = tf.where(is_real_BT1, network.to_network_scale(batch.mel), silence)
    target_BTM = tf.pad(target_BTM, [[0, 0], [0, -frames % network.frames_per_step], [0, 0]], constant_values=silence)
    return target_BTM, decoder_steps(batch.mel_length, network.frames_per_step) * network.frames_per_step


def mel_losses(predicted_BTM: tf.Tensor, target_BTM: tf.Tensor, mel_length_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the mean absolute and the mean squared error over the first `mel_length` frames of each row."""
    mask_BT = length_mask(mel_length_B, target_BTM.shape[1])
    difference_BTM = predicted_BTM - target_BTM
    absolute = masked_mean(tf.reduce_mean(tf.abs(difference_BTM), axis=-1), mask_BT)
    return absolute, masked_mean(tf.reduce_mean(tf.square(difference_BTM), axis=-1), mask_BT)


def stop_loss(stop_logit_BF: tf.Tensor, steps_B: tf.Tensor, positive_weight: float) -> tf.Tensor:
    """Return the weighted binary cross-entropy of stopping at the last real decoder step and nowhere before."""
    is_last_BF = tf.range(stop_logit_BF.shape[1])[None, :] == steps_B[:, None] - 1
    mask_BF = length_mask(steps_B, stop_logit_BF.shape[1])
    entropy_BF = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(is_last_BF, tf.float32), stop_logit_BF)
    weight_BF = tf.where(is_last_BF, positive_weight, 1.0)
    total = tf.reduce_sum(tf.where(mask_BF, weight_BF, 0.0))
    return tf.reduce_sum(tf.where(mask_BF, entropy_BF * weight_BF, 0.0)) / tf.maximum(total, 1.0)


def guided_attention_loss(attention_LBHFS: tf.Tensor, text_length_B: tf.Tensor, steps_B: tf.Tensor, width: float) -> tf.Tensor:
    """Return how much attention lies off the diagonal, mean over real decoder steps (Tachibana et al. 2017)."""
    steps, symbols = attention_LBHFS.shape[-2:]
    along_steps_BF = tf.range(steps, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(steps_B, 1), tf.float32)[:, None]
    along_text_BS = tf.range(symbols, dtype=tf.float32)[None, :] / tf.cast(tf.maximum(text_length_B, 1), tf.float32)[:, None]
    penalty_BFS = 1.0 - tf.exp(-tf.square(along_steps_BF[:, :, None] - along_text_BS[:, None, :]) / (2.0 * width**2))
    off_diagonal_LBHF = tf.reduce_sum(attention_LBHFS * penalty_BFS[None, :, None], axis=-1)
    return masked_mean(tf.reduce_mean(off_diagonal_LBHF, axis=[0, 2]), length_mask(steps_B, steps))


def guided_heads(attention_LBHFS: tf.Tensor) -> tf.Tensor:
    """Return the attention of those heads that are asked to follow the text: two of the upper two layers."""
    return attention_LBHFS[-GUIDED_LAYERS:, :, :GUIDED_HEADS]


def attention_focus(attention_LBHFS: tf.Tensor, steps_B: tf.Tensor) -> tf.Tensor:
    """Return the mean over real decoder steps of the sharpest guided head's greatest weight, 0 to 1 (Ren et al. 2019)."""
    sharpest_BF = tf.reduce_max(tf.reduce_max(attention_LBHFS, axis=-1), axis=[0, 2])
    return masked_mean(sharpest_BF, length_mask(steps_B, attention_LBHFS.shape[-2]))


def total_loss(
    network: Network, batch: Batch, prediction: Prediction, config: TrainingConfig, guidance: tf.Tensor | float
) -> dict[str, tf.Tensor]:
    """Return `objective`, what training minimises, and its parts.

    `loss` is the objective without guidance, so training's and validation's compare; `guidance` weighs the guided attention and fades to
    0; `mel_l1` is in natural log units.
    """
    target_BTM, spoken_length_B = spoken_target(network, batch)
    steps_B = decoder_steps(batch.mel_length, network.frames_per_step)
    coarse_l1, coarse_l2 = mel_losses(prediction.coarse, target_BTM, spoken_length_B)
    fine_l1, fine_l2 = mel_losses(prediction.fine, target_BTM, spoken_length_B)
    stop = stop_loss(prediction.stop_logit, steps_B, config.stop_positive_weight)
    guided = guided_heads(prediction.attention)
    attention = guided_attention_loss(guided, batch.text_length, steps_B, config.guided_attention_width)
    loss = coarse_l1 + coarse_l2 + fine_l1 + fine_l2 + config.stop_weight * stop
    return {
        "objective": loss + config.guided_attention_weight * guidance * attention,
        "loss": loss,
        "mel_l1": fine_l1 * MEL_SCALE,
        "stop_loss": stop,
        "attention_loss": attention,
        "attention_focus": attention_focus(guided, steps_B),
    }

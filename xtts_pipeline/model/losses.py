"""The losses of mel frames, which every decoder has, averaged over real frames only.

Tensors in, scalars out; rows of length 0 have no weight. Averages divide by totals of the whole batch, so the losses of
accumulated parts add up to the loss of the whole batch.
"""

import tensorflow as tf

from xtts_pipeline.model.layers import length_mask
from xtts_pipeline.model.network import Batch, Crop, Network


def decoder_steps(mel_length_B: tf.Tensor, frames_per_step: int) -> tf.Tensor:
    """Return the number of decoder steps that hold a real frame, int32 [B]."""
    return (mel_length_B + frames_per_step - 1) // frames_per_step


def target_frames(network: Network, batch: Batch) -> tf.Tensor:
    """Return the target mel in the network's scale, padded to whole decoder steps."""
    target_BTM = network.to_network_scale(batch.mel)
    extra = -batch.mel.shape[1] % network.frames_per_step
    return tf.pad(target_BTM, [[0, 0], [0, extra], [0, 0]], constant_values=network.network_silence)


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


def float_sum(counts_B: tf.Tensor) -> tf.Tensor:
    """Return the sum of counts as float32."""
    return tf.cast(tf.reduce_sum(counts_B), tf.float32)

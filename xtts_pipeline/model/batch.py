"""The input of a compiled step: a batch of clips, their references, and the scale of mels in the network."""

from typing import NamedTuple

import tensorflow as tf

# Natural-log mels lie between the floor, about -11.5, and about 2; the network's own scale is near zero.
MEL_CENTRE, MEL_SCALE = -5.0, 4.0


class Batch(NamedTuple):
    """Input of a compiled step, in the order of its signature; ids are None if the cache has only one of the kind.

    tokens int32 [B, S], mel float16 [B, T, M], text_length, mel_length, speaker, language int32 [B].
    """

    tokens: tf.Tensor
    mel: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor
    speaker: tf.Tensor | None = None
    language: tf.Tensor | None = None


class Crop(NamedTuple):
    """The frames of each clip that are its own reference, int32 [B] each; length 0 is none."""

    first_frame: tf.Tensor
    length: tf.Tensor


class References(NamedTuple):
    """The references of a batch, mel [B, C, M] in natural log, length int32 [B]; 0 is none, so the null voice."""

    mel: tf.Tensor
    length: tf.Tensor


def next_of_speaker(speaker_B: tf.Tensor, mel_length_B: tf.Tensor) -> tf.Tensor:
    """Return the row of the next clip of each row's speaker in the batch, int32 [B]; -1 without another clip."""
    rows = speaker_B.shape[0]
    row_B = tf.range(rows)
    ahead_BB = tf.math.floormod(row_B[None, :] - row_B[:, None], rows)
    is_other_BB = (speaker_B[:, None] == speaker_B[None, :]) & (mel_length_B > 0)[None, :] & (ahead_BB > 0)
    ahead_B = tf.reduce_min(tf.where(is_other_BB, ahead_BB, rows), axis=1)
    return tf.where(ahead_B < rows, tf.math.floormod(row_B + ahead_B, rows), -1)


def without_others(crop: Crop, other_B: tf.Tensor) -> Crop:
    """Return the crops that are still used if rows with another clip hear that one."""
    return crop._replace(length=tf.where(other_B >= 0, 0, crop.length))


def to_network_scale(mel: tf.Tensor) -> tf.Tensor:
    """Return natural-log mels in the network's scale, float32."""
    return (tf.cast(mel, tf.float32) - MEL_CENTRE) / MEL_SCALE


def from_network_scale(mel: tf.Tensor) -> tf.Tensor:
    """Return mels of the network's scale in natural log."""
    return mel * MEL_SCALE + MEL_CENTRE

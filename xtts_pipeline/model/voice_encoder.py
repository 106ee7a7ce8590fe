"""Encode a reference mel of any length as a fixed number of voice latents.

A Perceiver resampler (Jaegle et al. 2021; Alayrac et al. 2022), as XTTS conditions its decoder (Casanova et al. 2024).
"""

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import REFERENCE_TAPS
from xtts_pipeline.model.layers import Convolution, Dense, Dropout, EncoderLayer, Initializer, LayerNorm, length_mask


class VoiceEncoder(tf.Module):
    """A dense layer and a convolution over the reference; then latents attend to its frames and to each other.

    There are no positions, since a voice has no order.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="voice_encoder")
        self.widen = Dense(initializer, mel_bins, config.width, "widen")
        self.convolution = Convolution(initializer, config.width, config.width, REFERENCE_TAPS, "convolution")
        self.frame_norm = LayerNorm(config.width, "frame_norm")
        self.latents = initializer.normal((config.voice_latents, config.width), 0.5, "latents")
        self.layers = [
            EncoderLayer(initializer, config, f"resampler_layer_{index}") for index in range(config.voice_layers)
        ]
        self.norm = LayerNorm(config.width, "norm")

    def __call__(self, reference_BCM: tf.Tensor, length_B: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return latents [B, V, D] of references in the network's scale; frames after `length` have no influence."""
        batch, frames = reference_BCM.shape[:2]
        mask_BC = length_mask(length_B, frames)
        # Zeroed first: the convolution would carry masked frames into the last real ones.
        frame_BCD = tf.where(
            mask_BC[..., None], tf.nn.relu(self.widen(reference_BCM)), tf.zeros([], reference_BCM.dtype)
        )
        frame_BCD = self.frame_norm(frame_BCD + tf.nn.relu(self.convolution(frame_BCD)))
        voices = self.latents.shape[0]
        latent_BVD = tf.tile(tf.cast(self.latents, frame_BCD.dtype)[None], [batch, 1, 1])
        mask_B11S = tf.concat([mask_BC, tf.ones([batch, voices], tf.bool)], axis=1)[:, None, None, :]
        for layer in self.layers:
            latent_BVD = layer(latent_BVD, mask_B11S, dropout, context_BCD=frame_BCD)
        return self.norm(latent_BVD)

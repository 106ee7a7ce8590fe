"""Encode texts as the vectors that the decoder reads, and references of any length as a few voice latents."""

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import REFERENCE_TAPS, TEXT_TAPS
from xtts_pipeline.model.layers import (
    Attention,
    Convolution,
    Dense,
    Dropout,
    FeedForward,
    Initializer,
    LayerNorm,
    add_positions,
    embed,
    length_mask,
    recomputed,
    sinusoid_positions,
)


class EncoderLayer(tf.Module):
    """Self-attention, also to a context if there is one, then a feed-forward layer; both pre-norm and residual."""

    def __init__(self, initializer: Initializer, config: ModelConfig, name: str) -> None:
        super().__init__(name=name)
        self.dropout_rate, self.is_recomputed = config.dropout, config.remat
        self.attention_salt, self.feedforward_salt = initializer.salt(), initializer.salt()
        self.attention_norm = LayerNorm(config.width, "attention_norm")
        self.attention = Attention(initializer, config.width, config.heads, "attention")
        self.feedforward_norm = LayerNorm(config.width, "feedforward_norm")
        self.feedforward = FeedForward(initializer, config.width, config.feedforward_width, "feedforward")

    def __call__(
        self, x_BSD: tf.Tensor, mask_B11S: tf.Tensor, dropout: Dropout, context_BCD: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return [B, S, D]; the mask is over the context first, then over x."""

        def run(x_BSD: tf.Tensor, context_BCD: tf.Tensor | None = None) -> tf.Tensor:
            normal_BSD = self.attention_norm(x_BSD)
            memory = normal_BSD if context_BCD is None else tf.concat([context_BCD, normal_BSD], axis=1)
            x_BSD += dropout.apply(
                self.attention(normal_BSD, memory, mask_B11S), self.dropout_rate, self.attention_salt
            )
            inner_BSD = self.feedforward(self.feedforward_norm(x_BSD))
            return x_BSD + dropout.apply(inner_BSD, self.dropout_rate, self.feedforward_salt)

        inputs = [x_BSD] if context_BCD is None else [x_BSD, context_BCD]
        return recomputed(run, *inputs) if self.is_recomputed and dropout.is_training else run(*inputs)


class TextEncoder(tf.Module):
    """Embedding, one convolution over neighbouring tokens, positions, then self-attention layers.

    The language vector is added before the layers, since it decides how tokens sound together. Added after them it
    would be one constant for the whole text, which attention ignores.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, symbol_count: int, max_text_length: int) -> None:
        super().__init__(name="text_encoder")
        self.dropout_rate, self.salt = config.dropout, initializer.salt()
        self.embedding = initializer.normal((symbol_count, config.width), 0.5, "embedding")
        self.convolution = Convolution(initializer, config.width, config.width, TEXT_TAPS, "convolution")
        self.position_scale = tf.Variable(1.0, name="position_scale")
        self.positions_SD = sinusoid_positions(max_text_length, config.width)
        self.layers = [
            EncoderLayer(initializer, config, f"encoder_layer_{index}") for index in range(config.encoder_layers)
        ]
        self.norm = LayerNorm(config.width, "norm")

    def __call__(
        self,
        tokens_BS: tf.Tensor,
        text_length_B: tf.Tensor,
        dropout: Dropout,
        dtype: tf.DType = tf.float32,
        language_BD: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return [B, S, D] of `dtype`; padded positions have no influence on real ones."""
        mask_BS = length_mask(text_length_B, tokens_BS.shape[1])
        # Zeroed first: the convolution would carry the pad token's vector into the last real tokens.
        embedded_BSD = embed(self.embedding, tokens_BS)
        if language_BD is not None:
            embedded_BSD += language_BD[:, None, :]
        x_BSD = tf.cast(tf.where(mask_BS[..., None], embedded_BSD, 0.0), dtype)
        x_BSD += tf.nn.relu(self.convolution(x_BSD))
        x_BSD = add_positions(x_BSD, self.positions_SD[None, : tokens_BS.shape[1]], self.position_scale)
        x_BSD = dropout.apply(x_BSD, self.dropout_rate, self.salt)
        for layer in self.layers:
            x_BSD = layer(x_BSD, mask_BS[:, None, None, :], dropout)
        return self.norm(x_BSD)


class VoiceEncoder(tf.Module):
    """A dense layer and a convolution over the reference; then latents attend to its frames and to each other.

    A Perceiver resampler (Jaegle et al. 2021; Alayrac et al. 2022), as XTTS conditions its decoder (Casanova et al.
    2024). There are no positions, since a voice has no order.
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

"""Encode token ids as the vectors that the decoder attends to."""

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import TEXT_TAPS
from xtts_pipeline.model.layers import (
    Convolution,
    Dropout,
    EncoderLayer,
    Initializer,
    LayerNorm,
    add_positions,
    length_mask,
    sinusoid_positions,
)


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
        embedded_BSD = tf.gather(self.embedding, tokens_BS)
        if language_BD is not None:
            embedded_BSD += language_BD[:, None, :]
        x_BSD = tf.cast(tf.where(mask_BS[..., None], embedded_BSD, 0.0), dtype)
        x_BSD += tf.nn.relu(self.convolution(x_BSD))
        x_BSD = add_positions(x_BSD, self.positions_SD[None, : tokens_BS.shape[1]], self.position_scale)
        x_BSD = dropout.apply(x_BSD, self.dropout_rate, self.salt)
        for layer in self.layers:
            x_BSD = layer(x_BSD, mask_BS[:, None, None, :], dropout)
        return self.norm(x_BSD)

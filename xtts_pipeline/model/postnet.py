"""Refine the decoder's coarse mel frames."""

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import POSTNET_TAPS
from xtts_pipeline.model.layers import Convolution, Dropout, Initializer, LayerNorm


class Postnet(tf.Module):
    """Convolutions that add the fine structure that the decoder does not predict.

    Causal, unlike Tacotron 2's: a frame is final once it is decoded, so speech can be streamed and padding has no
    influence.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="postnet")
        self.dropout_rate = config.dropout
        widths = [mel_bins, *[config.postnet_width] * (config.postnet_layers - 1), mel_bins]
        self.layers = [
            Convolution(
                initializer, widths[index], widths[index + 1], POSTNET_TAPS, f"convolution_{index}", is_causal=True
            )
            for index in range(config.postnet_layers)
        ]
        self.norms = [LayerNorm(width, f"norm_{index}") for index, width in enumerate(widths[1:-1])]
        self.salts = [initializer.salt() for _ in self.norms]

    @property
    def context_frames(self) -> int:
        """The number of earlier frames that a refined frame depends on."""
        return (POSTNET_TAPS - 1) * len(self.layers)

    def __call__(self, mel_BTM: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the refined mel [B, T, M]."""
        x = mel_BTM
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < len(self.norms):
                x = dropout.apply(tf.nn.tanh(self.norms[index](x)), self.dropout_rate, self.salts[index])
        return mel_BTM + x if self.layers else mel_BTM

"""Predict the duration, energy and pitch of tokens, and frames from the tokens that they belong to.

Shape key, beside that of `layers`: N the R * M values of a decoder step.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import CONVNEXT_TAPS, PLACE_FEATURES, PREDICTOR_TAPS
from xtts_pipeline.model.convnext import ConvNextBlock
from xtts_pipeline.model.durations import Timing, places, token_shares
from xtts_pipeline.model.layers import Convolution, Dense, Dropout, Initializer, LayerNorm, recomputed

# A corpus has far fewer tokens than frames, so their prosody is learned by heart sooner than frames are.
PREDICTOR_DROPOUT = 0.1


class Prosody(NamedTuple):
    """Of each token: the log of its duration in frames, its mean level in the network's scale, and its `Pitch`.

    float32 [B, S] each.
    """

    log_duration: tf.Tensor
    energy: tf.Tensor
    voicing: tf.Tensor
    octaves: tf.Tensor


class ProsodyPredictor(tf.Module):
    """Two convolutions over tokens, each with a ReLU, normalisation and dropout (FastSpeech 2, Ren et al. 2021)."""

    def __init__(self, initializer: Initializer, config: ModelConfig) -> None:
        super().__init__(name="prosody_predictor")
        self.convolutions = [
            Convolution(initializer, config.width, config.width, PREDICTOR_TAPS, f"convolution_{index}")
            for index in range(2)
        ]
        self.norms = [LayerNorm(config.width, f"norm_{index}") for index in range(2)]
        self.salts = [initializer.salt() for _ in range(2)]
        self.projection = Dense(initializer, config.width, len(Prosody._fields), "projection")

    def __call__(self, token_BSD: tf.Tensor, mask_BS: tf.Tensor, dropout: Dropout) -> Prosody:
        """Return the prosody of tokens; padded ones have no influence."""
        mask_BS1 = tf.cast(mask_BS, token_BSD.dtype)[..., None]
        x_BSD = token_BSD
        for convolution, norm, salt in zip(self.convolutions, self.norms, self.salts, strict=True):
            x_BSD = norm(tf.nn.relu(convolution(x_BSD * mask_BS1)))
            x_BSD = dropout.apply(x_BSD, PREDICTOR_DROPOUT, salt)
        return Prosody(*tf.unstack(tf.cast(self.projection(x_BSD), tf.float32), axis=-1))


class DecodedFrames(NamedTuple):
    """The frames of F decoder steps in the network's scale, R frames a step.

    coarse [B, F, R * M] is their mean, hidden [B, F, D] the decoder's last layer. is_real [B, F] is False outside of
    the speech.
    """

    coarse: tf.Tensor
    hidden: tf.Tensor
    is_real: tf.Tensor


class FrameDecoder(tf.Module):
    """Each decoder step starts as the mixture of the tokens that it overlaps; ConvNeXt blocks then run over the steps.

    A step predicts `frames_per_step` frames. reach: how many steps to each side a step depends on.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="frame_decoder")
        self.dropout_rate, self.is_recomputed = config.dropout, config.remat
        self.frames_per_step = config.frames_per_step
        self.reach = CONVNEXT_TAPS // 2 * config.decoder_layers
        self.place = Dense(initializer, PLACE_FEATURES, config.width, "place")
        self.blocks = [
            ConvNextBlock(
                initializer, config.width, config.feedforward_width, 1.0 / config.decoder_layers, f"block_{index}"
            )
            for index in range(config.decoder_layers)
        ]
        self.salts = [initializer.salt() for _ in self.blocks]
        self.norm = LayerNorm(config.width, "norm")
        self.to_frames = Dense(initializer, config.width, config.frames_per_step * mel_bins, "to_frames")

    def __call__(
        self,
        token_BSD: tf.Tensor,
        timing: Timing,
        length_B: tf.Tensor,
        dropout: Dropout,
        step_F: tf.Tensor,
    ) -> DecodedFrames:
        """Return the frames of decoder steps with these consecutive numbers.

        `timing` and `length` are in frames. Steps outside of 0 to `length` have no influence.
        """
        timing = Timing(*(frames_BS / self.frames_per_step for frames_BS in timing))
        shares_BFS = token_shares(timing, step_F)
        is_real_BF = (step_F >= 0) & (step_F * self.frames_per_step < length_B[:, None])
        mask_BF1 = tf.cast(is_real_BF, token_BSD.dtype)[..., None]
        x_BFD = tf.matmul(tf.cast(shares_BFS, token_BSD.dtype), token_BSD)
        x_BFD += self.place(tf.cast(places(timing, step_F, shares_BFS), token_BSD.dtype))
        x_BFD *= mask_BF1
        for block, salt in zip(self.blocks, self.salts, strict=True):

            def run(x_BFD: tf.Tensor, block: ConvNextBlock = block, salt: int = salt) -> tf.Tensor:
                return (x_BFD + dropout.apply(block.change(x_BFD), self.dropout_rate, salt)) * mask_BF1

            x_BFD = recomputed(run, x_BFD) if self.is_recomputed and dropout.is_training else run(x_BFD)
        hidden_BFD = self.norm(x_BFD)
        return DecodedFrames(tf.cast(self.to_frames(hidden_BFD), tf.float32), hidden_BFD, is_real_BF)

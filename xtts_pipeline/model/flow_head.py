"""Draw the detail of frames that the frame decoder can only average: conditional flow matching.

A network trained on mean errors predicts the mean of all frames that a text may stand for, and that mean is blurred.
The flow moves noise around the coarse frames to frames like recorded ones (Lipman et al. 2023; Mehta et al. 2024,
"Matcha-TTS").

Shape key, beside that of `layers`: N the R * M values of a decoder step.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import hz_to_bin
from xtts_pipeline.config.schema import AudioConfig, ModelConfig
from xtts_pipeline.model.architecture import CONVNEXT_TAPS, FLOW_TIME_FEATURES
from xtts_pipeline.model.convnext import ConvNextBlock
from xtts_pipeline.model.frame_decoder import DecodedFrames
from xtts_pipeline.model.layers import Dense, Dropout, Initializer, LayerNorm, recomputed, spread_evenly

# Standard deviation of the noise around the coarse frames, in the network's scale: about three times that of their
# errors, so that every recorded frame is likely under it.
NOISE = 0.5
# The fastest change over the flow's time that a feature of the time can show, in radians.
HIGHEST_FREQUENCY = 200.0
# The share of clips whose velocities are learned without the decoder's hidden layer, so that synthesis can move away
# from frames that suit any text (classifier-free guidance, Ho and Salimans 2022).
CONDITION_DROPOUT = 0.1
# What guidance has over 1 counts once below the first of these frequencies and HIGH_GUIDANCE times above the second:
# the detail of high frequencies needs more than the harmonics bear (Sadat et al. 2025 do the same with pictures).
HIGH_GUIDANCE, GUIDANCE_RISES_HZ = 2.0, (600.0, 1_400.0)


class Velocities(NamedTuple):
    """The velocity of each frame on its way from noise to speech, predicted and true, float32 [B, T, M]."""

    predicted: tf.Tensor
    true: tf.Tensor


class FlowHead(tf.Module):
    """Predict the velocity of frames on their way from noise to speech.

    reach: how many decoder steps to each side one velocity depends on.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, audio: AudioConfig) -> None:
        super().__init__(name="flow_head")
        width = config.frames_per_step * audio.mel_bins
        self.is_recomputed = config.remat
        self.reach = CONVNEXT_TAPS // 2 * config.flow_layers
        self.noise_salt, self.time_salt, self.condition_salt = (initializer.salt() for _ in range(3))
        self.frequencies = np.geomspace(1.0, HIGHEST_FREQUENCY, FLOW_TIME_FEATURES // 2).astype(np.float32)
        self.from_frames = Dense(initializer, width, config.width, "from_frames")
        self.from_hidden = Dense(initializer, config.width, config.width, "from_hidden")
        self.null_condition = initializer.normal((config.width,), 0.5, "null_condition")
        self.from_time = Dense(initializer, FLOW_TIME_FEATURES, config.width, "from_time")
        self.blocks = [
            ConvNextBlock(
                initializer, config.width, config.feedforward_width, 1.0 / config.flow_layers, f"block_{index}"
            )
            for index in range(config.flow_layers)
        ]
        self.norm = LayerNorm(config.width, "norm")
        self.to_velocity = Dense(initializer, config.width, width, "to_velocity")
        rises_at = [hz_to_bin(hz, audio) for hz in GUIDANCE_RISES_HZ]
        weights_M = np.interp(np.arange(audio.mel_bins), rises_at, [1.0, HIGH_GUIDANCE])
        self.guidance_weights_N = np.tile(weights_M, config.frames_per_step).astype(np.float32)

    def velocities(self, decoded: DecodedFrames, target_BTM: tf.Tensor, dropout: Dropout) -> Velocities:
        """Return the velocities of recorded frames, in whole decoder steps, at one time a row: random in training.

        No gradient reaches the coarse frames: their own losses train them.
        """
        start_BFN = self._start(tf.stop_gradient(decoded.coarse), dropout, 0)
        if dropout.is_training:
            # Times that are spread over a batch vary its loss less than times of chance (Kingma et al. 2021).
            time_B = dropout.draw_evenly(self.time_salt, target_BTM.shape[0])
        else:
            # A clip has the same time in any batch, so that the losses of evaluations compare.
            steps_B = tf.reduce_sum(tf.cast(decoded.is_real, tf.float32), axis=1)
            time_B = spread_evenly(steps_B)
        velocity_BFN = tf.reshape(target_BTM, start_BFN.shape) - start_BFN
        frames_BFN = start_BFN + time_B[:, None, None] * velocity_BFN
        condition_BFD = self.from_hidden(decoded.hidden)
        if dropout.is_training:
            is_known_B = dropout.draw(self.condition_salt, target_BTM.shape[0]) >= CONDITION_DROPOUT
            condition_BFD = tf.where(is_known_B[:, None, None], condition_BFD, self._null_condition(condition_BFD))
        predicted_BFN = self._velocity(frames_BFN, time_B, condition_BFD, decoded.is_real, self.is_recomputed)
        return Velocities(*(tf.reshape(x_BFN, target_BTM.shape) for x_BFN in (predicted_BFN, velocity_BFN)))

    def draw(
        self,
        decoded: DecodedFrames,
        dropout: Dropout,
        first_step: tf.Tensor | int,
        updates: int,
        guidance: float,
    ) -> tf.Tensor:
        """Return drawn frames [B, F, R * M]; the noise of a decoder step depends on its number alone.

        Steps nearer than `updates * reach` to an edge of the window depend on steps outside of it. `guidance`
        multiplies the difference that the decoder's hidden layer makes to each velocity, below 600 Hz; what it has over
        1 is `HIGH_GUIDANCE` times as much above 1,400 Hz.
        """
        rows = decoded.coarse.shape[0]
        frames_BFN, condition_BFD = self._start(decoded.coarse, dropout, first_step), self.from_hidden(decoded.hidden)
        null_11D = self._null_condition(condition_BFD)
        strength_N = 1.0 + (guidance - 1.0) * self.guidance_weights_N
        for step in range(updates):
            time_B = tf.fill([rows], step / updates)
            velocity_BFN = self._velocity(frames_BFN, time_B, condition_BFD, decoded.is_real)
            if guidance != 1.0:
                null_BFN = self._velocity(frames_BFN, time_B, null_11D, decoded.is_real)
                velocity_BFN = null_BFN + strength_N * (velocity_BFN - null_BFN)
            frames_BFN += velocity_BFN / updates
        return frames_BFN

    def _null_condition(self, like: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.null_condition, like.dtype)[None, None, :]

    def _start(self, coarse_BFN: tf.Tensor, dropout: Dropout, first_step: tf.Tensor | int) -> tf.Tensor:
        rows, steps, width = coarse_BFN.shape
        return coarse_BFN + NOISE * dropout.draw_normal(self.noise_salt, rows, steps, width, first_step)

    def _velocity(
        self,
        frames_BFN: tf.Tensor,
        time_B: tf.Tensor,
        condition_BFD: tf.Tensor,
        is_real_BF: tf.Tensor,
        is_recomputed: bool = False,
    ) -> tf.Tensor:
        dtype = condition_BFD.dtype
        mask_BF1 = tf.cast(is_real_BF, dtype)[..., None]
        angle_BK = time_B[:, None] * self.frequencies[None, :]
        time_BK = tf.cast(tf.concat([tf.sin(angle_BK), tf.cos(angle_BK)], axis=-1), dtype)
        x_BFD = self.from_frames(tf.cast(frames_BFN, dtype)) + condition_BFD
        x_BFD = (x_BFD + self.from_time(time_BK)[:, None, :]) * mask_BF1
        for block in self.blocks:
            run = partial(block, mask_BT1=mask_BF1)
            x_BFD = recomputed(run, x_BFD) if is_recomputed else run(x_BFD)
        return tf.cast(self.to_velocity(self.norm(x_BFD)), tf.float32)

"""The network with the parallel decoder: prosody of tokens from the text, then all frames at once.

After FastPitch (Lancucki 2021), with the aligner's durations in place of a teacher's.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig, SynthesisConfig, TrainingConfig
from xtts_pipeline.model.decoding import Chunk, Speech
from xtts_pipeline.model.layers import Dense, Dropout, Initializer, length_mask
from xtts_pipeline.model.network import NO_SCHEDULES, Batch, Crop, Memory, Network, Schedules
from xtts_pipeline.model.parallel.durations import Timing, spoken_durations, timing_of
from xtts_pipeline.model.parallel.frame_decoder import FrameDecoder, Prosody, ProsodyPredictor
from xtts_pipeline.model.parallel.losses import (
    LOSS_METRICS,
    ParallelPrediction,
    ParallelTotals,
    parallel_losses,
    parallel_totals,
)

LEAST_DURATION = 1e-3


class SpeechPlan(NamedTuple):
    """All that frames are decoded from: tokens [B, S, D], their timing, and the frames of each row, int32 [B]."""

    tokens: tf.Tensor
    timing: Timing
    length: tf.Tensor


class ParallelNetwork(Network):
    """A network whose decoder predicts how long each token lasts, then all frames at once."""

    LOSS_METRICS = LOSS_METRICS
    frames_per_step = 1

    def build_decoder(self, initializer: Initializer, config: ModelConfig) -> None:
        """Create the predictor of prosody and the frame decoder."""
        self.voice_to_tokens = None
        if config.voice_latents:
            self.voice_to_tokens = Dense(initializer, config.width, config.width, "voice_to_tokens")
        self.predictor = ProsodyPredictor(initializer, config)
        self.energy_to_tokens = Dense(initializer, 1, config.width, "energy_to_tokens")
        self.frame_decoder = FrameDecoder(initializer, config, self.mel_bins)

    def __call__(self, batch: Batch, crop: Crop, dropout: Dropout) -> ParallelPrediction:
        """Predict the frames of recorded clips from their own durations and energies, and predict those."""
        memory = self.encode(batch, self.crop_voice(batch.mel, crop, dropout), crop.length > 0, dropout)
        mel_BTM = self.to_network_scale(batch.mel)
        alignment = self.aligner(batch.tokens, batch.text_length, mel_BTM, batch.mel_length)
        duration_BS = tf.reduce_sum(alignment.posterior, axis=1)
        level_BS = tf.einsum("BTS,BT->BS", alignment.posterior, tf.reduce_mean(mel_BTM, axis=-1))
        present_BS = tf.maximum(duration_BS, LEAST_DURATION)
        measured = Prosody(tf.math.log(present_BS), level_BS / present_BS)
        tokens_BSD = self._add_voice(memory)
        # Its gradient would bend the text's vectors towards durations.
        predicted = self.predictor(tf.stop_gradient(tokens_BSD), memory.text_mask, dropout)
        tokens_BSD = self._add_energy(tokens_BSD, measured.energy)
        frame_T = tf.range(batch.mel.shape[1])
        decoded = self.frame_decoder(tokens_BSD, timing_of(duration_BS), batch.mel_length, dropout, frame_T)
        return ParallelPrediction(decoded.coarse, predicted, measured, alignment)

    def batch_totals(self, batch: Batch, crop: Crop, config: TrainingConfig) -> ParallelTotals:  # noqa: ARG002
        """Return the denominators of a whole batch's averages."""
        return parallel_totals(batch, crop)

    def losses(
        self,
        batch: Batch,
        crop: Crop,
        dropout: Dropout,
        config: TrainingConfig,  # noqa: ARG002 (the losses have no weights)
        totals: ParallelTotals,
        schedules: Schedules = NO_SCHEDULES,  # noqa: ARG002
    ) -> dict[str, tf.Tensor]:
        """Return the losses with the aligner's durations; see `parallel_losses`."""
        return parallel_losses(self, batch, crop, self(batch, crop, dropout), totals)

    def predict_known(self, batch: Batch, crop: Crop, dropout: Dropout) -> tf.Tensor:
        """Return the frames with the durations and energies of the recording."""
        return self(batch, crop, dropout).coarse

    def begin_speech(
        self,
        memory: Memory,
        settings: SynthesisConfig,  # noqa: ARG002
        speed: tf.Tensor | float = 1.0,
    ) -> tuple[SpeechPlan, tf.Tensor]:
        """Return the plan, and the number of the next frame."""
        tokens_BSD = self._add_voice(memory)
        predicted = self.predictor(tokens_BSD, memory.text_mask, Dropout.fixed(0))
        timing = timing_of(spoken_durations(predicted.log_duration, memory.text_mask, speed))
        length_B = tf.cast(tf.round(tf.reduce_sum(timing.duration, axis=1)), tf.int32)
        return SpeechPlan(self._add_energy(tokens_BSD, predicted.energy), timing, length_B), tf.constant(0)

    def continue_speech(
        self, plan: SpeechPlan, state: tf.Tensor, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig
    ) -> tuple[tf.Tensor, Chunk]:
        """Decode the next `chunk_frames` frames in a window that holds all that they depend on."""
        reach, following = self.frame_decoder.reach, state + settings.chunk_frames
        length_B = tf.minimum(plan.length, max_frames_B)
        frame_T = tf.range(settings.chunk_frames + 2 * reach) + state - reach
        inside = slice(reach, reach + settings.chunk_frames)
        decoded = self.frame_decoder(plan.tokens, plan.timing, length_B, dropout, frame_T)
        is_speaking_B = length_B > following
        return following, Chunk(
            self.finish_frames(decoded.coarse[:, inside], settings),
            decoded.shares[:, inside],
            tf.minimum(length_B, following),
            ~is_speaking_B & (plan.length <= max_frames_B),
            is_speaking_B,
        )

    def speak(self, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig) -> Speech:
        """Decode all frames of the texts at once."""
        plan, _ = self.begin_speech(memory, settings)
        max_frames_B = tf.minimum(max_frames_B, self.max_mel_frames)
        length_B, frame_T = tf.minimum(plan.length, max_frames_B), tf.range(self.max_mel_frames)
        decoded = self.frame_decoder(plan.tokens, plan.timing, length_B, dropout, frame_T)
        is_real_BT1 = length_mask(length_B, self.max_mel_frames)[..., None]
        mel_BTM = tf.where(is_real_BT1, self.finish_frames(decoded.coarse, settings), self.silence)
        shares_BTS = tf.where(is_real_BT1, decoded.shares, 0.0)
        return Speech(mel_BTM, length_B, plan.length <= max_frames_B, shares_BTS)

    def _add_voice(self, memory: Memory) -> tf.Tensor:
        if self.voice_to_tokens is None:
            return memory.text
        return memory.text + self.voice_to_tokens(tf.reduce_mean(memory.voice, axis=1))[:, None, :]

    def _add_energy(self, tokens_BSD: tf.Tensor, energy_BS: tf.Tensor) -> tf.Tensor:
        return tokens_BSD + self.energy_to_tokens(tf.cast(energy_BS, tokens_BSD.dtype)[..., None])

"""The network with the parallel decoder: prosody of tokens from the text, then all frames at once.

After FastPitch (Lancucki 2021), with the aligner's durations in place of a teacher's.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig, SynthesisConfig, TrainingConfig
from xtts_pipeline.model.decoding import Chunk, Speech
from xtts_pipeline.model.layers import Dense, Dropout, Initializer, length_mask
from xtts_pipeline.model.losses import decoder_steps
from xtts_pipeline.model.network import NO_SCHEDULES, Batch, Crop, Memory, Network, Schedules
from xtts_pipeline.model.parallel.durations import LEAST_DURATION, Timing, spoken_durations, timing_of
from xtts_pipeline.model.parallel.flow_head import FlowHead
from xtts_pipeline.model.parallel.frame_decoder import DecodedFrames, FrameDecoder, Prosody, ProsodyPredictor
from xtts_pipeline.model.parallel.losses import (
    LOSS_METRICS,
    ParallelPrediction,
    ParallelTotals,
    parallel_losses,
    parallel_totals,
    rows_with_path,
)
from xtts_pipeline.model.parallel.pitch import PitchFinder

SEMITONES_PER_OCTAVE = 12.0


class SpeechPlan(NamedTuple):
    """All that frames are decoded from: tokens [B, S, D], their timing, and the frames of each row, int32 [B]."""

    tokens: tf.Tensor
    timing: Timing
    length: tf.Tensor


class ParallelNetwork(Network):
    """A network whose decoder predicts how long each token lasts, then all frames at once."""

    LOSS_METRICS = LOSS_METRICS

    def build_decoder(self, initializer: Initializer, config: ModelConfig) -> None:
        """Create the predictor of prosody, the frame decoder and the flow head."""
        self.frames_per_step = config.frames_per_step
        self.max_steps = decoder_steps(self.max_mel_frames, config.frames_per_step)
        self.voice_to_tokens = None
        if config.voice_latents:
            self.voice_to_tokens = Dense(initializer, config.width, config.width, "voice_to_tokens")
        self.predictor = ProsodyPredictor(initializer, config)
        self.pitch_finder = PitchFinder(self.audio)
        self.prosody_to_tokens = Dense(initializer, 3, config.width, "prosody_to_tokens")
        self.frame_decoder = FrameDecoder(initializer, config, self.mel_bins)
        self.flow_head = FlowHead(initializer, config, self.mel_bins) if config.flow_layers else None

    def __call__(self, batch: Batch, crop: Crop, dropout: Dropout) -> ParallelPrediction:
        """Predict the frames of recorded clips from their own durations and energies, and predict those."""
        memory = self.encode_clips(batch, crop, dropout)
        mel_BTM = self.to_network_scale(batch.mel)
        alignment = self.aligner(batch.tokens, batch.text_length, mel_BTM, batch.mel_length)
        duration_BS = tf.reduce_sum(alignment.posterior, axis=1)
        level_BS = tf.einsum("BTS,BT->BS", alignment.posterior, tf.reduce_mean(mel_BTM, axis=-1))
        present_BS = tf.maximum(duration_BS, LEAST_DURATION)
        pitch = self.pitch_finder(mel_BTM, alignment.posterior)
        measured = Prosody(tf.math.log(present_BS), level_BS / present_BS, *pitch)
        tokens_BSD = self._add_voice(memory)
        # Its gradient would bend the text's vectors towards durations.
        predicted = self.predictor(tf.stop_gradient(tokens_BSD), memory.text_mask, dropout)
        tokens_BSD = self._add_prosody(tokens_BSD, measured)
        step_F = tf.range(decoder_steps(batch.mel.shape[1], self.frames_per_step))
        decoded = self.frame_decoder(tokens_BSD, timing_of(duration_BS), batch.mel_length, dropout, step_F)
        return ParallelPrediction(decoded, predicted, measured, alignment)

    def batch_totals(self, batch: Batch, crop: Crop, config: TrainingConfig) -> ParallelTotals:  # noqa: ARG002
        """Return the denominators of a whole batch's averages."""
        return parallel_totals(*rows_with_path(batch, crop))

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
        batch, crop = rows_with_path(batch, crop)
        prediction = self(batch, crop, dropout)
        return parallel_losses(self, batch, crop, prediction, totals, self.flow_head, dropout)

    def predict_known(self, batch: Batch, crop: Crop, dropout: Dropout, settings: SynthesisConfig) -> tf.Tensor:
        """Return the frames with the durations and energies of the recording."""
        return self.finish_steps(self(batch, crop, dropout).decoded, dropout, 0, settings)[:, : batch.mel.shape[1]]

    def begin_speech(
        self,
        memory: Memory,
        settings: SynthesisConfig,  # noqa: ARG002
        speed: tf.Tensor | float = 1.0,
        semitones: tf.Tensor | float = 0.0,
    ) -> tuple[SpeechPlan, tf.Tensor]:
        """Return the plan, and the number of the next decoder step."""
        tokens_BSD = self._add_voice(memory)
        predicted = self.predictor(tokens_BSD, memory.text_mask, Dropout.fixed(0))
        predicted = predicted._replace(octaves=predicted.octaves + predicted.voicing * semitones / SEMITONES_PER_OCTAVE)
        timing = timing_of(spoken_durations(predicted.log_duration, memory.text_mask, speed))
        length_B = tf.cast(tf.round(tf.reduce_sum(timing.duration, axis=1)), tf.int32)
        return SpeechPlan(self._add_prosody(tokens_BSD, predicted), timing, length_B), tf.constant(0)

    def planned_durations(self, plan: SpeechPlan) -> tf.Tensor:
        """Return the durations of the plan."""
        return plan.timing.duration

    def continue_speech(
        self, plan: SpeechPlan, state: tf.Tensor, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig
    ) -> tuple[tf.Tensor, Chunk]:
        """Decode the next `chunk_frames` frames, in whole steps, in a window that holds all that they depend on."""
        steps = decoder_steps(settings.chunk_frames, self.frames_per_step)
        reach = self.frame_decoder.reach
        if self.flow_head is not None:
            reach += self.flow_head.reach * settings.flow_steps
        length_B, first = tf.minimum(plan.length, max_frames_B), state - reach
        decoded = self.frame_decoder(
            plan.tokens, plan.timing, length_B, dropout, first + tf.range(reach + steps + reach)
        )
        inside = slice(reach * self.frames_per_step, (reach + steps) * self.frames_per_step)
        following = state + steps
        is_speaking_B = length_B > following * self.frames_per_step
        return following, Chunk(
            self.finish_steps(decoded, dropout, first, settings)[:, inside],
            _attention(decoded)[:, reach : reach + steps],
            tf.minimum(length_B, following * self.frames_per_step),
            ~is_speaking_B & (plan.length <= max_frames_B),
            is_speaking_B,
        )

    def speak(self, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig) -> Speech:
        """Decode all frames of the texts at once."""
        plan, _ = self.begin_speech(memory, settings)
        max_frames_B = tf.minimum(max_frames_B, self.max_mel_frames)
        length_B = tf.minimum(plan.length, max_frames_B)
        decoded = self.frame_decoder(plan.tokens, plan.timing, length_B, dropout, tf.range(self.max_steps))
        mel_BTM = self.finish_steps(decoded, dropout, 0, settings)[:, : self.max_mel_frames]
        mel_BTM = tf.where(length_mask(length_B, self.max_mel_frames)[..., None], mel_BTM, self.silence)
        return Speech(mel_BTM, length_B, plan.length <= max_frames_B, _attention(decoded))

    def finish_steps(
        self, decoded: DecodedFrames, dropout: Dropout, first_step: tf.Tensor | int, settings: SynthesisConfig
    ) -> tf.Tensor:
        """Return decoded frames with their detail, [B, F * R, M] in natural log."""
        frames_BFN = decoded.coarse
        if self.flow_head is not None:
            frames_BFN = self.flow_head.draw(decoded, dropout, first_step, settings.flow_steps)
        frames_BTM = tf.reshape(frames_BFN, [frames_BFN.shape[0], -1, self.mel_bins])
        mel_BTM = self.finish_frames(frames_BTM, settings)
        return mel_BTM if self.flow_head is None else tf.maximum(mel_BTM, self.silence)

    def _add_voice(self, memory: Memory) -> tf.Tensor:
        if self.voice_to_tokens is None:
            return memory.text
        return memory.text + self.voice_to_tokens(tf.reduce_mean(memory.voice, axis=1))[:, None, :]

    def _add_prosody(self, tokens_BSD: tf.Tensor, prosody: Prosody) -> tf.Tensor:
        prosody_BS3 = tf.stack([prosody.energy, prosody.voicing, prosody.octaves], axis=-1)
        return tokens_BSD + self.prosody_to_tokens(tf.cast(prosody_BS3, tokens_BSD.dtype))


def _attention(decoded: DecodedFrames) -> tf.Tensor:
    """Return the shares of tokens in decoder steps, which sum to 1 in the last one too, and to 0 after it."""
    shares_BFS = tf.where(decoded.is_real[..., None], decoded.shares, 0.0)
    return tf.math.divide_no_nan(shares_BFS, tf.reduce_sum(shares_BFS, axis=-1, keepdims=True))

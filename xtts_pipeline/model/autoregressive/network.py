"""The network with the autoregressive decoder: frames, stops and attention from text, voice and earlier frames."""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig, SynthesisConfig, TrainingConfig
from xtts_pipeline.model.aligner import pool_to_decoder_steps
from xtts_pipeline.model.autoregressive.decoding import DecodingState, begin_speech, continue_speech, speak
from xtts_pipeline.model.autoregressive.losses import (
    LOSS_METRICS,
    BatchTotals,
    Prediction,
    attention_coverage,
    attention_focus,
    batch_totals,
    diagonal_share,
    total_loss,
)
from xtts_pipeline.model.autoregressive.mel_decoder import DecoderOutputs, MelDecoder, Postnet, ProjectedMemory
from xtts_pipeline.model.decoding import Chunk, Speech
from xtts_pipeline.model.layers import Dropout, Initializer
from xtts_pipeline.model.losses import decoder_steps
from xtts_pipeline.model.network import NO_SCHEDULES, Batch, Crop, Memory, Network, Schedules


class DecoderInputs(NamedTuple):
    """Feedback to each decoder step: the last frame [B, F, M] and the attention [B, F, S] of the step before it."""

    previous_frames: tf.Tensor
    previous_attention: tf.Tensor


class AutoregressiveNetwork(Network):
    """A network whose decoder predicts each frame from the frames before it, then refines it in a postnet."""

    LOSS_METRICS = LOSS_METRICS
    SCHEDULES = ("scheduled_sampling_share",)
    EXTRA_SALTS = ("scheduled_sampling",)

    def build_decoder(self, initializer: Initializer, config: ModelConfig) -> None:
        """Create the mel decoder and the postnet."""
        self.frames_per_step = config.frames_per_step
        self.max_steps = -(-self.max_mel_frames // config.frames_per_step)
        self.mel_decoder = MelDecoder(initializer, config, self.mel_bins, self.max_steps)
        self.postnet = Postnet(initializer, config, self.mel_bins)

    def __call__(
        self, batch: Batch, crop: Crop, dropout: Dropout, scheduled_sampling_share: tf.Tensor | None = None
    ) -> Prediction:
        """Predict each frame from the ground-truth frames before it, or with scheduled sampling from predicted ones."""
        memory = self.encode_clips(batch, crop, dropout)
        mel_BTM = self.to_network_scale(batch.mel)
        alignment = self.aligner(batch.tokens, batch.text_length, mel_BTM, batch.mel_length)
        token_shares_BFS = pool_to_decoder_steps(alignment.posterior, self.frames_per_step)
        inputs = DecoderInputs(self._previous_frames(mel_BTM), _shift_one_step(token_shares_BFS))
        if scheduled_sampling_share is not None:
            inputs = self._sample_inputs(inputs, memory, scheduled_sampling_share, dropout)
        outputs = self._decode(inputs, memory, dropout)
        return Prediction(
            outputs.frames,
            self.refine(outputs.frames, dropout),
            outputs.text_frames,
            outputs.stop_logit,
            outputs.attention,
            alignment,
            token_shares_BFS,
        )

    def batch_totals(self, batch: Batch, crop: Crop, config: TrainingConfig) -> BatchTotals:
        """Return the denominators of a whole batch's averages."""
        return batch_totals(batch, crop, self.frames_per_step, config.stop_positive_weight)

    def losses(
        self,
        batch: Batch,
        crop: Crop,
        dropout: Dropout,
        config: TrainingConfig,
        totals: BatchTotals,
        schedules: Schedules = NO_SCHEDULES,
    ) -> dict[str, tf.Tensor]:
        """Return the losses under teacher forcing, or with scheduled sampling; see `total_loss`."""
        prediction = self(batch, crop, dropout, schedules.scheduled_sampling_share)
        return total_loss(self, batch, crop, prediction, config, schedules.guidance, totals)

    def predict_known(self, batch: Batch, crop: Crop, dropout: Dropout, settings: SynthesisConfig) -> tf.Tensor:
        """Return the frames predicted from the recorded frames before them, after the postnet."""
        return self.finish_frames(self(batch, crop, dropout).fine, settings)

    def begin_speech(
        self,
        memory: Memory,
        settings: SynthesisConfig,
        speed: tf.Tensor | float = 1.0,  # noqa: ARG002 (it has no durations)
        semitones: tf.Tensor | float = 0.0,  # noqa: ARG002 (it has no pitch)
    ) -> tuple[ProjectedMemory, DecodingState]:
        """Return the projected memory, and the state before the first chunk of `chunk_frames`, in whole steps."""
        return begin_speech(self, memory, min(-(-settings.chunk_frames // self.frames_per_step), self.max_steps))

    def continue_speech(
        self,
        plan: ProjectedMemory,
        state: DecodingState,
        dropout: Dropout,
        max_frames_B: tf.Tensor,
        settings: SynthesisConfig,
    ) -> tuple[DecodingState, Chunk]:
        """Decode the next chunk, step by step."""
        return continue_speech(self, plan, state, dropout, max_frames_B, settings)

    def speak(self, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig) -> Speech:
        """Decode whole texts, at most `max_frames` a row."""
        return speak(self, memory, dropout, max_frames_B, settings)

    def speech_metrics(self, speech: Speech, text_length_B: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return how sharp attention is, how much of it is near the diagonal, and how many tokens it covers."""
        steps_B = decoder_steps(speech.mel_length, self.frames_per_step)
        steps, tokens = (tf.cast(tf.maximum(tf.reduce_sum(x), 1), tf.float32) for x in (steps_B, text_length_B))
        attention_B1FS = speech.attention[:, None]
        return {
            "attention_focus": attention_focus(attention_B1FS, steps_B) / steps,
            "attention_diagonal": diagonal_share(attention_B1FS, text_length_B, steps_B) / steps,
            "attention_coverage": attention_coverage(attention_B1FS, text_length_B, steps_B) / tokens,
        }

    def refine(self, coarse_BTM: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the frames after the postnet, float32, in the network's scale."""
        return tf.cast(self.postnet(tf.cast(coarse_BTM, self.dtype), dropout), tf.float32)

    def silent_frame(self, rows: int) -> tf.Tensor:
        """Return the frame before the first decoder step, [rows, 1, M]."""
        return tf.fill([rows, 1, self.mel_bins], self.network_silence)

    def _previous_frames(self, frames_BTM: tf.Tensor) -> tf.Tensor:
        """Return the last frame of the step before each decoder step, silence for the first: [B, F, M]."""
        steps = -(-frames_BTM.shape[1] // self.frames_per_step)
        last_BFM = frames_BTM[:, self.frames_per_step - 1 :: self.frames_per_step][:, : steps - 1]
        return tf.concat([self.silent_frame(frames_BTM.shape[0]), last_BFM], axis=1)

    def _decode(self, inputs: DecoderInputs, memory: Memory, dropout: Dropout) -> DecoderOutputs:
        frames_BFM = tf.cast(inputs.previous_frames, self.dtype)
        return self.mel_decoder.decode_all(frames_BFM, inputs.previous_attention, memory, dropout)

    def _sample_inputs(self, true: DecoderInputs, memory: Memory, share: tf.Tensor, dropout: Dropout) -> DecoderInputs:
        """Scheduled sampling: a random share of the steps gets the output of a first pass instead of ground truth.

        Parallel scheduled sampling (Duckworth et al. 2019): one more forward pass without gradient, instead of a loop
        over steps.
        """
        rows, steps = true.previous_frames.shape[:2]

        def mix() -> DecoderInputs:
            outputs = self._decode(true, memory, dropout)
            is_sampled_BF1 = (dropout.draw(self.salts["scheduled_sampling"], rows, steps) < share)[..., None]
            attention_BFS = _shift_one_step(tf.reduce_mean(outputs.attention, axis=1))
            frames_BFM = tf.where(is_sampled_BF1, self._previous_frames(outputs.frames), true.previous_frames)
            return DecoderInputs(frames_BFM, tf.where(is_sampled_BF1, attention_BFS, true.previous_attention))

        # A condition, not a share of 0: before sampling starts the first pass must cost nothing.
        return DecoderInputs(*map(tf.stop_gradient, tf.cond(share > 0.0, mix, lambda: true)))


def _shift_one_step(x_BFS: tf.Tensor) -> tf.Tensor:
    """Return each decoder step's value at the step after it; 0 at the first step."""
    return tf.pad(x_BFS, [[0, 0], [1, 0], [0, 0]])[:, :-1]

"""The acoustic model's compiled steps, of training and of validation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.model.batch import Batch, Crop, References, next_of_speaker, without_others
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import LOSS_METRICS, BatchTotals, batch_totals, decoder_steps, rows_with_path
from xtts_pipeline.model.network import Network
from xtts_pipeline.training.acoustic.voice_change import VoiceChange
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.step import GlobalBatch, Gradients, Metrics, TrainStep, stack_metrics


class AcousticStep(TrainStep):
    """One update of the acoustic model."""

    METRICS = (*LOSS_METRICS, "gradient_norm", "learning_rate", "mel_frames", "is_skipped")
    SUMMED_METRICS = (*LOSS_METRICS, "mel_frames")
    NUMBERS = 3
    network: Network

    def row_numbers(self, batch: Batch) -> np.ndarray:
        """Return text lengths, mel lengths and speakers, int32 [3, rows]; one speaker is 0."""
        speaker = np.zeros(batch.mel.shape[0]) if batch.speaker is None else batch.speaker
        return np.stack([batch.text_length, batch.mel_length, speaker])

    def shared_rows(self, batch: Batch, first_row: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the references that clips of other devices may hear, [rows, C, M], if there are several speakers."""
        if self.network.voice_encoder is None or batch.speaker is None:
            return ()
        dropout = Dropout.for_step(self.config.seed, self.step.read_value(), first_row)
        return (self.network.shared_references(batch, dropout).mel,)

    def batch_gradients(self, batch: Batch, whole: GlobalBatch | None = None) -> tuple[Gradients, Metrics]:
        """Return gradients and SUMMED_METRICS, computed in `accumulation_steps` parts one after the other.

        Dropout depends on a row's index in the whole batch. So the parts add up to one pass.
        """
        gradients, metrics = self._summed_gradients(batch, whole)
        frames = tf.cast(tf.reduce_sum(batch.mel_length), tf.float32)
        return gradients, {**metrics, "mel_frames": frames}

    def _summed_gradients(self, batch: Batch, whole: GlobalBatch | None) -> tuple[Gradients, Metrics]:
        config, network, step = self.config, self.network, self.step.read_value()
        first = 0 if whole is None else whole.first_row
        dropout = Dropout.for_step(config.seed, step, first)
        crop = network.choose_crops(batch.mel_length, dropout, config.reference_dropout)
        if whole is None:
            crop, reference = network.other_references(batch, crop, dropout)
            totals = batch_totals(batch, crop)
        else:
            crop, reference, totals = self._references_of_all(batch, crop, step, whole)
        if reference is not None and config.voice_change:
            batch, reference = VoiceChange(network.audio, config.voice_change)(batch, reference, dropout)
        if config.accumulation_steps == 1:
            return self._gradients(batch, crop, reference, totals, dropout)

        rows = batch.tokens.shape[0] // config.accumulation_steps

        def part_gradients(index: tf.Tensor) -> tuple[Gradients, Metrics]:
            def take_part(tensor: tf.Tensor | None) -> tf.Tensor | None:
                return None if tensor is None else tf.gather(tf.reshape(tensor, [-1, rows, *tensor.shape[1:]]), index)

            # Without other devices no operation is added, so the program of one device stays what it is.
            first_example = index * rows if whole is None else first + index * rows
            part_dropout = Dropout.for_step(config.seed, step, first_example)
            part, part_crop = Batch(*map(take_part, batch)), Crop(*map(take_part, crop))
            part_reference = None if reference is None else References(*map(take_part, reference))
            return self._gradients(part, part_crop, part_reference, totals, part_dropout)

        def add_part(index: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
            return index + 1, tf.nest.map_structure(tf.add, sums, part_gradients(index))

        no_gradients = [tf.zeros(variable.shape) for variable in self.optimizer.trained.values()]
        zeros = (no_gradients, {name: tf.zeros([]) for name in LOSS_METRICS})
        _, sums = tf.while_loop(lambda index, _: index < config.accumulation_steps, add_part, (tf.constant(0), zeros))
        return sums

    def _references_of_all(
        self, batch: Batch, crop: Crop, step: tf.Tensor, whole: GlobalBatch
    ) -> tuple[Crop, References | None, BatchTotals]:
        """Return what `other_references` would, and the totals, with the clips of all devices in view."""
        network, (text_length_B, mel_length_B, speaker_B) = self.network, tf.unstack(whole.numbers)
        whole_batch = batch._replace(text_length=text_length_B, mel_length=mel_length_B)
        dropout = Dropout.for_step(self.config.seed, step)
        whole_crop = network.choose_crops(mel_length_B, dropout, self.config.reference_dropout)
        if not whole.shared:
            return crop, network.own_references(batch, crop), batch_totals(whole_batch, whole_crop)
        whole_other_B = next_of_speaker(speaker_B, mel_length_B)
        other_B = tf.gather(whole_other_B, whole.first_row + tf.range(batch.mel.shape[0]))
        shared = References(whole.shared[0], tf.minimum(mel_length_B, network.reference_frames))
        return (
            without_others(crop, other_B),
            network.choose_references(batch, crop, other_B, shared),
            batch_totals(whole_batch, without_others(whole_crop, whole_other_B)),
        )

    def _gradients(
        self, batch: Batch, crop: Crop, reference: References | None, totals: BatchTotals, dropout: Dropout
    ) -> tuple[Gradients, Metrics]:
        with tf.GradientTape() as tape:
            metrics = self.network.losses(batch, crop, reference, dropout, totals)
            scale = None if self.loss_scale is None else self.loss_scale.scale.read_value()
            scaled = metrics["objective"] if scale is None else metrics["objective"] * scale
        found = tape.gradient(
            scaled, list(self.optimizer.trained.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        gradients = [tf.convert_to_tensor(gradient) for gradient in found]
        return (gradients if scale is None else [gradient / scale for gradient in gradients]), metrics


class EvaluateStep:
    """The losses of one batch with what the decoder is told of the recording, and with references as in training.

    `null_voice_loss` is the loss without a reference, if the network has a voice encoder.
    """

    def __init__(self, network: Network, config: TrainingConfig, signatures: Sequence[Batch]) -> None:
        self.network, self.config = network, config
        null_voice = () if network.voice_encoder is None else ("null_voice_loss",)
        self.METRICS = (*LOSS_METRICS, *null_voice, "weight")
        self.compiled = CompiledByShape(self._evaluate_step, signatures, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Return the METRICS as float32 [len(METRICS)]; `weight` is the number of decoder steps behind the means."""
        return self.compiled(batch)

    def _evaluate_step(self, batch: Batch) -> tf.Tensor:
        network, dropout = self.network, Dropout.fixed(self.config.seed)
        crop = network.choose_crops(batch.mel_length, dropout, reference_dropout=0.0)
        metrics = self._losses(batch, *network.other_references(batch, crop, dropout), dropout)
        if network.voice_encoder is not None:
            no_crop = crop._replace(length=tf.zeros_like(crop.length))
            no_reference = network.own_references(batch, no_crop)
            metrics["null_voice_loss"] = self._losses(batch, no_crop, no_reference, dropout)["loss"]
        counted, _ = rows_with_path(batch, crop)
        weight = tf.reduce_sum(decoder_steps(counted.mel_length, network.frames_per_step))
        return stack_metrics({**metrics, "weight": tf.cast(weight, tf.float32)}, self.METRICS)

    def _losses(self, batch: Batch, crop: Crop, reference: References | None, dropout: Dropout) -> Metrics:
        return self.network.losses(batch, crop, reference, dropout, batch_totals(batch, crop))

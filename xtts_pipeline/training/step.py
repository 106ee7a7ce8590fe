"""The compiled step of training and of validation: one signature, one trace and one XLA program for each bucket.

Contains no tf.shape, no Python side effect and no readback. Results stay on the device until a report reads them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import from_signature
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import BatchTotals, batch_totals, decoder_steps, total_loss
from xtts_pipeline.model.network import Batch, Crop, Network
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.optimizer import AdamW, LossScale, clip_by_global_norm
from xtts_pipeline.training.schedule import guidance, learning_rate, scheduled_sampling_share

# What both training and validation report about the losses.
LOSS_METRICS = (
    "loss",
    "objective",
    "mel_l1",
    "text_l1",
    "token_error",
    "alignment_loss",
    "stop_loss",
    "stop_error",
    "attention_loss",
    "attention_focus",
    "attention_diagonal",
    "attention_coverage",
)


class GlobalBatch(NamedTuple):
    """The whole batch that several devices share, as one device sees it.

    first_row: index of the device's first row in the whole batch, int32 [].
    text_length, mel_length: lengths of all rows of the whole batch, int32 [rows].
    """

    first_row: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor


class TrainStep(tf.Module):
    """One optimizer update on one batch of any of the signatures, which differ in shape alone.

    State: the network, its EMA `average`, the optimizer's moments, the loss scale, the step counter and a factor of
    the learning rate. Validation and synthesis use `average`. An update that is not finite is skipped (`is_skipped`
    is 1), but the step still counts.
    """

    METRICS = (
        *LOSS_METRICS,
        "gradient_norm",
        "learning_rate",
        "scheduled_sampling_share",
        "mel_frames",
        "is_skipped",
    )

    def __init__(self, network: Network, average: Network, config: TrainingConfig, signatures: Sequence[Batch]) -> None:
        super().__init__(name="train_step")
        self.network, self.average, self.config, self._signature = network, average, config, signatures[0]
        # int64: TensorFlow keeps int32 variables on the host even on a GPU, where XLA cannot reach them.
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        trained = {name: variable for name, variable in named_variables(network).items() if variable.trainable}
        self.optimizer = AdamW(trained, config.weight_decay)
        # A roll-back lowers the learning rate. A variable, so that nothing is traced again.
        self.rate_factor = tf.Variable(1.0, trainable=False, name="rate_factor")
        self.loss_scale = LossScale() if config.precision == "float16" else None
        averages = named_variables(average)
        self._averages = [averages[name] for name in trained]
        for averaged, variable in zip(self._averages, trained.values(), strict=True):
            averaged.assign(variable)
        self.compiled = CompiledByShape(self._train_step, signatures, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Run the step; return the METRICS as float32 [len(METRICS)], still on the device."""
        return self.compiled(batch)

    def _train_step(self, *tensors: tf.Tensor) -> tf.Tensor:
        batch = from_signature(tensors, self._signature)
        step = self.step.read_value()
        share = scheduled_sampling_share(step, self.config)
        gradients, metrics = self._batch_gradients(batch, step, share)
        frames = tf.cast(tf.reduce_sum(batch.mel_length), tf.float32)
        return self._update(gradients, {**metrics, "scheduled_sampling_share": share, "mel_frames": frames}, step)

    def _update(self, gradients: Sequence[tf.Tensor], metrics: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Apply the gradients of a whole batch to every variable; return the METRICS."""
        config = self.config
        gradients, norm = clip_by_global_norm(gradients, config.clip_norm)
        rate = learning_rate(step, config) * self.rate_factor
        # An update that is not finite reaches no variable, so no average, moment or checkpoint can hold NaN.
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(metrics["loss"])
        self.optimizer.apply(gradients, rate, step, is_finite)
        if self.loss_scale is not None:
            self.loss_scale.update(is_finite)
        self._update_average(step)
        self.step.assign_add(1)
        extra = {
            "gradient_norm": norm,
            "learning_rate": rate,
            "is_skipped": tf.cast(tf.logical_not(is_finite), tf.float32),
        }
        return stack_metrics({**metrics, **extra}, self.METRICS)

    def _batch_gradients(
        self, batch: Batch, step: tf.Tensor, share: tf.Tensor, whole: GlobalBatch | None = None
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return gradients and metrics of the batch, computed in `accumulation_steps` parts one after the other.

        `whole` is the global batch that several devices share; None if `batch` is all of it. Every mean divides by
        totals of the whole batch, and dropout depends on a row's index in it. So the parts add up to one pass.
        """
        config, network = self.config, self.network
        first = 0 if whole is None else whole.first_row
        dropout = Dropout.for_step(config.seed, step, first)
        crop = network.choose_reference(batch.mel_length, dropout, config.reference_dropout)
        whole_batch, whole_crop = batch, crop
        if whole is not None:
            whole_batch = batch._replace(text_length=whole.text_length, mel_length=whole.mel_length)
            whole_crop = network.choose_reference(
                whole_batch.mel_length, Dropout.for_step(config.seed, step), config.reference_dropout
            )
        totals = batch_totals(whole_batch, whole_crop, network.frames_per_step, config.stop_positive_weight)
        if config.accumulation_steps == 1:
            return self._gradients(batch, crop, totals, dropout, step, share)

        rows = batch.tokens.shape[0] // config.accumulation_steps

        def part_gradients(index: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
            def take_part(tensor: tf.Tensor | None) -> tf.Tensor | None:
                return None if tensor is None else tf.gather(tf.reshape(tensor, [-1, rows, *tensor.shape[1:]]), index)

            # Without other devices no operation is added, so the program of one device stays what it is.
            first_example = index * rows if whole is None else first + index * rows
            part_dropout = Dropout.for_step(config.seed, step, first_example)
            part, part_crop = Batch(*map(take_part, batch)), Crop(*map(take_part, crop))
            return self._gradients(part, part_crop, totals, part_dropout, step, share)

        def add_part(index: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
            return index + 1, tf.nest.map_structure(tf.add, sums, part_gradients(index))

        no_gradients = [tf.zeros(variable.shape) for variable in self.optimizer.trained.values()]
        zeros = (no_gradients, {name: tf.zeros([]) for name in LOSS_METRICS})
        _, sums = tf.while_loop(lambda index, _: index < config.accumulation_steps, add_part, (tf.constant(0), zeros))
        return sums

    def _gradients(
        self, batch: Batch, crop: Crop, totals: BatchTotals, dropout: Dropout, step: tf.Tensor, share: tf.Tensor
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        config = self.config
        with tf.GradientTape() as tape:
            prediction = self.network(batch, crop, dropout, None if config.scheduled_sampling_start is None else share)
            metrics = total_loss(self.network, batch, crop, prediction, config, guidance(step, config), totals)
            scale = None if self.loss_scale is None else self.loss_scale.scale.read_value()
            scaled = metrics["objective"] if scale is None else metrics["objective"] * scale
        found = tape.gradient(
            scaled, list(self.optimizer.trained.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        gradients = [tf.convert_to_tensor(gradient) for gradient in found]
        return (gradients if scale is None else [gradient / scale for gradient in gradients]), metrics

    def _update_average(self, step: tf.Tensor) -> None:
        """Update the EMA; its decay starts low because the weights move far from their initial values at first."""
        count = tf.cast(step, tf.float32)
        rate = 1.0 - tf.minimum(self.config.ema_decay, (1.0 + count) / (10.0 + count))
        for averaged, variable in zip(self._averages, self.optimizer.trained.values(), strict=True):
            averaged.assign_add(rate * (variable - averaged))


class EvaluateStep:
    """The losses of one batch under teacher forcing, with the prenet's dropout only; each clip is its own reference."""

    METRICS = (*LOSS_METRICS, "weight")

    def __init__(self, network: Network, config: TrainingConfig, signatures: Sequence[Batch]) -> None:
        self.network, self.config, self._signature = network, config, signatures[0]
        self.compiled = CompiledByShape(self._evaluate_step, signatures, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Return the METRICS as float32 [len(METRICS)]; `weight` is the number of decoder steps behind the means."""
        return self.compiled(batch)

    def _evaluate_step(self, *tensors: tf.Tensor) -> tf.Tensor:
        batch, network, config = from_signature(tensors, self._signature), self.network, self.config
        dropout = Dropout.fixed(config.seed)
        crop = network.choose_reference(batch.mel_length, dropout, reference_dropout=0.0)
        totals = batch_totals(batch, crop, network.frames_per_step, config.stop_positive_weight)
        metrics = total_loss(network, batch, crop, network(batch, crop, dropout), config, 0.0, totals)
        weight = tf.reduce_sum(decoder_steps(batch.mel_length, network.frames_per_step))
        return stack_metrics({**metrics, "weight": tf.cast(weight, tf.float32)}, self.METRICS)


def stack_metrics(metrics: Mapping[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the named scalars as one vector, so that a report costs one readback instead of one for each number."""
    return tf.stack([metrics[name] for name in names])

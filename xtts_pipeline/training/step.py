"""The compiled step of training: one signature, one trace and one XLA program for each shape of batches.

Contains no tf.shape, no Python side effect and no readback. Results stay on the device until a report reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.optimizer import AdamW, Betas, LossScale
from xtts_pipeline.training.schedule import LearningRate

Gradients = list[tf.Tensor]
Metrics = dict[str, tf.Tensor]


class GlobalBatch(NamedTuple):
    """The whole batch that several devices share, as one device sees it.

    first_row: index of the device's first row in the whole batch, int32 [].
    numbers: what `TrainStep.row_numbers` returns for all rows of the whole batch, int32 [NUMBERS, rows].
    shared: what `TrainStep.shared_rows` returns for all rows.
    """

    first_row: tf.Tensor
    numbers: tf.Tensor
    shared: tuple[tf.Tensor, ...] = ()


class TrainStep(tf.Module, ABC):
    """One optimizer update on one batch of any of the signatures, which differ in shape alone.

    State: the network, its EMA `average`, the optimizer's moments, the loss scale, the step counter and a factor of
    the learning rate. Validation and synthesis use `average`. An update that is not finite is skipped (`is_skipped`
    is 1), but the step still counts.
    METRICS: what a call returns; `is_skipped` is the last.
    SUMMED_METRICS: what `batch_gradients` returns; the shares of several devices add up to those of the whole batch.
    NUMBERS: how many numbers of a row `row_numbers` returns.
    programs: one for each phase. compiled: that of the step that `begin` announced.
    """

    METRICS: tuple[str, ...]
    SUMMED_METRICS: tuple[str, ...]
    NUMBERS: ClassVar[int] = 0
    BETAS: ClassVar[Betas] = Betas()

    def __init__(
        self,
        network: tf.Module,
        average: tf.Module,
        config: TrainingConfig,
        signatures: Sequence[Any],
        others: Mapping[str, tf.Variable] | None = None,
        others_first_step: int = 0,
    ) -> None:
        """Train `network`, and from a step on the variables `others`, which have no EMA."""
        super().__init__(name="train_step")
        self.network, self.average, self.config = network, average, config
        # int64: TensorFlow keeps int32 variables on the host even on a GPU, where XLA cannot reach them.
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        trained = {name: variable for name, variable in named_variables(network).items() if variable.trainable}
        others = others or {}
        first_steps = dict.fromkeys(others, others_first_step)
        self.optimizer = AdamW({**trained, **others}, config.weight_decay, self.BETAS, first_steps)
        self.learning_rate = LearningRate(config)
        # A roll-back lowers the learning rate. A variable, so that nothing is traced again.
        self.rate_factor = tf.Variable(1.0, trainable=False, name="rate_factor")
        self.loss_scale = LossScale() if config.precision == "float16" else None
        averages = named_variables(average)
        self._averages = [(averages[name], variable) for name, variable in trained.items()]
        for averaged, variable in self._averages:
            averaged.assign(variable)
        self.compiled = CompiledByShape(self._train_step, signatures, config)
        self.programs = [self.compiled]

    @property
    def phase(self) -> int:
        """The number of the phase of the step that `begin` announced."""
        return self.programs.index(self.compiled)

    def begin(self, steps_done: int) -> None:
        """Choose the program of the next step."""

    def __call__(self, batch: Any) -> tf.Tensor:
        """Run the step; return the METRICS as float32 [len(METRICS)], still on the device."""
        return self.compiled(batch)

    @abstractmethod
    def batch_gradients(self, batch: Any, whole: GlobalBatch | None = None) -> tuple[Gradients, Metrics]:
        """Return the gradients of the trained variables and the SUMMED_METRICS of a batch.

        `whole` is the batch that several devices share; None if `batch` is all of it. Every mean divides by totals of
        the whole batch, so that the devices' results add up.
        """

    def row_numbers(self, batch: Any) -> np.ndarray:
        """Return the numbers of each row that the gradients of other devices depend on, int [NUMBERS, rows]."""
        return np.zeros([self.NUMBERS, rows_of(batch)])

    def shared_rows(self, batch: Any, first_row: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return the tensors of a device's rows, each [rows, ...], that the gradients of other devices depend on.

        `first_row` is the index of the device's first row in the whole batch.
        """
        del batch, first_row
        return ()

    def clip(self, gradients: Gradients) -> tuple[Gradients, Metrics]:
        """Return the clipped gradients, and the metrics of their norms before."""
        clipped, norm = tf.clip_by_global_norm(gradients, self.config.clip_norm)
        return clipped, {"gradient_norm": norm}

    def update(self, gradients: Gradients, metrics: Metrics) -> tf.Tensor:
        """Apply the gradients of a whole batch to every variable; return the METRICS."""
        step = self.step.read_value()
        gradients, norms = self.clip(gradients)
        rate = self.learning_rate(step) * self.rate_factor
        # An update that is not finite reaches no weight and no moment, so neither they nor the average, which goes on
        # towards the weights, can hold NaN.
        is_finite = tf.math.is_finite(metrics["loss"])
        for norm in norms.values():
            is_finite &= tf.math.is_finite(norm)
        self.optimizer.apply(gradients, rate, step, is_finite)
        if self.loss_scale is not None:
            self.loss_scale.update(is_finite)
        self._update_average(step)
        self.step.assign_add(1)
        is_skipped = tf.cast(tf.logical_not(is_finite), tf.float32)
        others = {**norms, "learning_rate": rate, "is_skipped": is_skipped}
        return stack_metrics({**metrics, **others}, self.METRICS)

    def _train_step(self, batch: Any) -> tf.Tensor:
        return self.update(*self.batch_gradients(batch))

    def _update_average(self, step: tf.Tensor) -> None:
        """Update the EMA; its decay starts low because the weights move far from their initial values at first."""
        count = tf.cast(step, tf.float32)
        rate = 1.0 - tf.minimum(self.config.ema_decay, (1.0 + count) / (10.0 + count))
        for averaged, variable in self._averages:
            averaged.assign_add(rate * (variable - averaged))


def stack_metrics(metrics: Mapping[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the named scalars as one vector, so that a report costs one readback instead of one for each number."""
    return tf.stack([metrics[name] for name in names])

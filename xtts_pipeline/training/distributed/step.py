"""The training step on several devices: gradients of each device's rows are summed between two compiled programs.

Every device has a gradient program for each shape and one update program, each traced and compiled once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import from_signature, rows_of, with_rows
from xtts_pipeline.training.compiled import CompiledByShape, repeatable_names
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.step import GlobalBatch, TrainStep, stack_metrics


class DistributedStep:
    """One update on a whole batch: each process provides its rows, and each of its devices takes an equal share.

    Losses divide by totals of the whole batch, and dropout depends on a row's index in it, so the sums equal those of
    one device with the whole batch.
    is_stop_agreed: whether any process was asked to stop before the last step; equal in all processes.
    """

    def __init__(
        self,
        step: TrainStep,
        signatures: Sequence[Any],
        distribution: Distribution,
        interruption: Interruption | None = None,
    ) -> None:
        """Take a step that was created in the distribution's scope, and its signatures, of whole batches."""
        if distribution.strategy is None:
            raise ValueError("distribution: found a single device, expected several; use the step itself")
        self._step, self._signature = step, signatures[0]
        self._strategy: tf.distribute.Strategy = distribution.strategy
        self._distribution, self._interruption, self.is_stop_agreed = distribution, interruption, False
        replicas = distribution.replicas
        parts = [with_rows(signature, rows_of(signature) // replicas) for signature in signatures]

        def extra_specs(part: Any) -> list[tf.TensorSpec]:
            first, rows = tf.TensorSpec([], tf.int32, "first"), rows_of(part) * replicas
            shared = tf.function(step.shared_rows, autograph=False).get_concrete_function(part, first)
            gathered = [tf.TensorSpec([rows, *each.shape[1:]], each.dtype) for each in shared.structured_outputs]
            return [first, tf.TensorSpec([step.NUMBERS, rows], tf.int32, "numbers"), *gathered]

        self._programs = [
            CompiledByShape(function, parts, step.config, extra_specs)
            for function in (self._first_gradient_step, self._gradient_step)[-len(step.programs) :]
        ]
        shapes = [variable.shape for variable in step.optimizer.trained.values()]
        self._sizes = [*(shape.num_elements() for shape in shapes), *[1] * len(step.SUMMED_METRICS)]
        self._shapes = [*shapes, *[[]] * len(step.SUMMED_METRICS)]
        vector = tf.TensorSpec([sum(self._sizes)], tf.float32)
        self.update = tf.function(
            self._update_step, input_signature=[vector], jit_compile=step.config.jit_compile, autograph=False
        )
        # Keyed by the id of a gradient function and the rows of a device: without `strict_shapes` all shapes share one.
        self._runs: dict[tuple[int, int], Any] = {}
        # Shares of the next batches, which `send_ahead` has copied to their devices.
        self._ahead: deque[Any] = deque()
        self._copies = ThreadPoolExecutor(distribution.local_replicas * len(signatures[0]), "copy")

    @property
    def compiled(self) -> CompiledByShape:
        """The gradient program of the step that `begin` announced."""
        return self._programs[self._step.phase]

    def begin(self, steps_done: int) -> None:
        """Choose the program of the next step."""
        self._step.begin(steps_done)

    def send_ahead(self, batch: Any) -> Any:
        """Copy the batch's shares to their devices and return it; steps take the batches in the order of the calls."""
        # At once, so that no copy waits until a device has ended the next step too.
        copies = [
            [self._copies.submit(_copy_of_share, tensor, device) for tensor in share]
            for share, device in zip(self._shares(batch), self._strategy.extended.worker_devices, strict=True)
        ]
        self._ahead.append(self._by_replica([[copy.result() for copy in share] for share in copies]))
        return batch

    def __call__(self, batch: Any) -> tf.Tensor:
        """Run the step on this process's rows of a batch; return the whole batch's METRICS, float32, on the device."""
        rows = rows_of(batch) // self._distribution.local_replicas
        function = self.compiled.function_of(with_rows(batch, rows))
        key = (id(function), rows)
        if key not in self._runs:
            self._runs[key] = tf.function(self._run_on_replicas(function, rows), autograph=False)
        inputs = self._ahead.popleft() if self._ahead else self._by_replica(self._shares(batch))
        with self.compiled.showing_compilation(with_rows(batch, rows)):
            result = self._runs[key](inputs, self._whole_numbers(batch))
        return self._strategy.experimental_local_results(result)[0]

    def watch_with(self, monitor: CompilationMonitor) -> None:
        """Make the monitor count the traces and compilations of both programs."""
        devices = self._distribution.local_replicas
        for program in self._programs:
            monitor.watch(*program.functions, calls=program, devices=devices)
        monitor.watch(self.update, devices=devices)

    def _shares(self, batch: Any) -> list[Sequence[tf.Tensor]]:
        """Return each local device's rows of the batch."""
        # On the CPU, where batches are: else each would pass through the first GPU.
        with tf.device("CPU"):
            parts = [tf.split(tensor, self._distribution.local_replicas) for tensor in batch if tensor is not None]
        return list(zip(*parts, strict=True))

    def _by_replica(self, shares: Sequence[Sequence[tf.Tensor]]) -> Any:
        """Return the shares of the local devices as the strategy takes them; it copies nothing."""
        first_replica = self._distribution.worker * len(shares)
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: list(shares[context.replica_id_in_sync_group - first_replica])
        )

    def _whole_numbers(self, batch: Any) -> tf.Tensor:
        """Exchange row numbers and requests to stop; return those of the whole batch, int32 [NUMBERS, rows]."""
        distribution = self._distribution
        whole = np.zeros([self._step.NUMBERS, rows_of(batch) * distribution.workers])
        mine = distribution.rows_of_worker(whole.shape[1])
        whole[:, mine.start : mine.stop] = self._step.row_numbers(batch)
        is_asked = self._interruption is not None and self._interruption.is_asked
        *numbers, asked = distribution.sum([*whole.ravel(), float(is_asked)])
        self.is_stop_agreed = asked > 0.0
        return tf.constant(np.reshape(numbers, whole.shape), tf.int32)

    def _run_on_replicas(self, function: Any, rows: int) -> Callable[..., Any]:
        """Return a function that runs both programs on every device and sums the vectors of the first between them.

        Before, the devices exchange their shared rows.
        """

        def on_replica(tensors: Sequence[tf.Tensor], numbers: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            first = tf.cast(replica.replica_id_in_sync_group * rows, tf.int32)
            shared = self._step.shared_rows(from_signature(tensors, self._signature), first)
            gathered = [replica.all_gather(each, axis=0) for each in shared]
            vector = function(*tensors, first, numbers, *gathered)
            summed = replica.all_reduce(tf.distribute.ReduceOp.SUM, vector)
            # Its own name: which shape comes first, and so traces it, differs between runs.
            with repeatable_names("_update_step"):
                return self.update(summed)

        def run(tensors: Any, numbers: tf.Tensor) -> Any:
            return self._strategy.run(on_replica, args=(tensors, numbers))

        return run

    def _first_gradient_step(self, *arguments: Any) -> tf.Tensor:
        """Return what `_gradient_step` does, in the first of two phases: XLA's log tells programs apart by name."""
        return self._gradient_step(*arguments)

    def _gradient_step(self, batch: Any, first: tf.Tensor, numbers: tf.Tensor, *shared: tf.Tensor) -> tf.Tensor:
        """Return gradients and SUMMED_METRICS of a device's rows in one vector, so that one all-reduce sums them."""
        gradients, metrics = self._step.batch_gradients(batch, GlobalBatch(first, numbers, shared))
        summed = stack_metrics(metrics, self._step.SUMMED_METRICS)
        return tf.concat([*(tf.reshape(gradient, [-1]) for gradient in gradients), summed], axis=0)

    def _update_step(self, vector: tf.Tensor) -> tf.Tensor:
        """Apply the summed vector of `_gradient_step`; return the METRICS."""
        parts = [
            tf.reshape(part, shape) for part, shape in zip(tf.split(vector, self._sizes), self._shapes, strict=True)
        ]
        names = self._step.SUMMED_METRICS
        trained = len(parts) - len(names)
        metrics = dict(zip(names, parts[trained:], strict=True))
        return self._step.update(parts[:trained], metrics)


def describe_distribution(distribution: Distribution, signatures: Sequence[Any], settings: TrainingConfig) -> str:
    """Return one line with the devices, the batch size of each bucket and the learning rate."""
    rows = [rows_of(signature) for signature in signatures]
    whole, shares = ", ".join(map(str, rows)), ", ".join(str(size // distribution.replicas) for size in rows)
    return f"{distribution}; batches of {whole} in all, {shares} on each; learning rate {settings.learning_rate:g}"


def _copy_of_share(tensor: tf.Tensor, device: str) -> tf.Tensor:
    # int32 stays in the host's memory, where a function of several devices expects it.
    with tf.device(device):
        return tf.identity(tensor)

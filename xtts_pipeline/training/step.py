"""The compiled step: one signature, one trace, one XLA program a bucket, for training and for validation.

Nothing dynamic is inside: no tf.shape, no Python side effect, no readback. Results stay on the device until somebody asks.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import from_signature
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import Totals, batch_totals, decoder_steps, total_loss
from xtts_pipeline.model.network import Batch, Crop, Network
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.optimizer import AdamW, LossScale, clip_by_global_norm
from xtts_pipeline.training.retracing import Change, RetraceError, arguments_of, find_change, key_of
from xtts_pipeline.training.schedule import guidance, learning_rate, scheduled_sampling_share

# What training and validation both report of the losses.
PARTS = (
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
LOSS_METRICS = ("loss", "objective", *PARTS)


class ShapedFunction:
    """A function of a batch's tensors, compiled once for each signature; all of them share whatever variables it uses.

    functions are the tf.functions, one a signature. With `strict_shapes` off there is one without a signature, which is traced anew for
    any shape; with `debug_eager` there is none, and the Python function itself runs. changes are the calls that fitted no signature.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signatures: Sequence[Batch],
        config: TrainingConfig,
        more: Callable[[Batch], Sequence[tf.TensorSpec]] = lambda _: (),
    ) -> None:
        """Take what the function is given beside the batch of a signature as `more`."""

        def compiled(signature: Batch | None) -> Any:
            specs = None if signature is None else [*(spec for spec in signature if spec is not None), *more(signature)]
            return tf.function(function, input_signature=specs, jit_compile=config.jit_compile, autograph=False)

        self.python_name = function.__name__
        self._name = self.python_name.lstrip("_")
        self._signatures = [arguments_of(signature) for signature in signatures]
        self._is_strict = config.strict_shapes
        asked = [] if config.debug_eager else signatures if config.strict_shapes else [None]
        self.functions = [compiled(signature) for signature in asked]
        # Without a signature the one function takes every shape.
        self._runs = self.functions or [function]
        self._by_key = dict(zip(map(key_of, signatures), cycle(self._runs), strict=False))
        self._met: set[Hashable] = set()
        self.changes: list[Change] = []
        self.is_first_of_shape = False

    @property
    def shapes_met(self) -> int:
        """How many of the signatures it has been called with."""
        return len(self._met) - len(self.changes)

    def __call__(self, batch: Batch) -> Any:
        """Call the function of the batch's shape; if strict, raise RetraceError where it fits no signature, before anything is traced."""
        return self.function_of(batch)(*(tensor for tensor in batch if tensor is not None))

    def function_of(self, batch: Batch) -> Any:
        """Return the function of the batch's shape, or raise RetraceError as a call does."""
        key = key_of(batch)
        self.is_first_of_shape = key not in self._met
        if self.is_first_of_shape:
            self._meet(key, batch)
        return self._by_key[key]

    def trace(self, batch: Batch) -> None:
        """Trace the function of the batch's shape without running it, as a call would; nothing with `debug_eager`, or if none fits."""
        function = self._by_key.get(key_of(batch))
        if self.functions and function is not None:
            function.get_concrete_function(*(tensor for tensor in batch if tensor is not None))

    def _meet(self, key: Hashable, batch: Batch) -> None:
        if key not in self._by_key:
            change = find_change(arguments_of(batch), self._signatures)
            if change is not None:
                if self._is_strict:
                    raise RetraceError(self._name, change)
                self.changes.append(change)
            self._by_key[key] = self._runs[0]
        self._met.add(key)


class Part(NamedTuple):
    """Where the rows of a batch stand in a whole one that several devices share.

    first: the number of the first row, int32 []; text_length and mel_length int32 [rows of the whole].
    """

    first: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor


class TrainStep(tf.Module):
    """One optimizer update on one batch of any of the signatures, which differ in shape alone.

    State: the network, its average, the optimizer's moments, loss scale, step counter and the factor of the learning rate.
    An update that is not finite is left out (`is_skipped` is 1), and the step counts all the same.
    `average` is a network like the one that is trained; its weights follow the trained ones slowly (an exponential moving average), and
    it is the one that is validated and speaks.
    """

    METRICS = (
        "loss",
        "objective",
        *PARTS,
        "gradient_norm",
        "learning_rate",
        "scheduled_sampling_share",
        "mel_frames",
        "is_skipped",
    )

    def __init__(self, network: Network, average: Network, config: TrainingConfig, signatures: Sequence[Batch]) -> None:
        super().__init__(name="train_step")
        self.network, self.average, self.config, self._signature = network, average, config, signatures[0]
        # int64: TensorFlow keeps int32 variables on the host even on a GPU, where XLA could not reach this one.
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        trained = {name: variable for name, variable in named_variables(network).items() if variable.trainable}
        self.optimizer = AdamW(trained, config.weight_decay)
        # A run that had to roll back goes on with a lower rate; a variable, so that nothing is traced again.
        self.rate_factor = tf.Variable(1.0, trainable=False, name="rate_factor")
        self.loss_scale = LossScale() if config.precision == "float16" else None
        averages = named_variables(average)
        self._averages = [averages[name] for name in trained]
        for follower, variable in zip(self._averages, trained.values(), strict=True):
            follower.assign(variable)
        self.compiled = ShapedFunction(self._train_step, signatures, config)

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
        """Change every variable as the gradients of a whole batch want it; return the METRICS."""
        config = self.config
        gradients, norm = clip_by_global_norm(gradients, config.clip_norm)
        rate = learning_rate(step, config) * self.rate_factor
        # Nothing of an update that is not finite reaches a variable: no average, no moment and no checkpoint can hold it.
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(metrics["loss"])
        self.optimizer.apply(gradients, rate, step, is_finite)
        if self.loss_scale is not None:
            self.loss_scale.update(is_finite)
        self._follow(step)
        self.step.assign_add(1)
        extra = {
            "gradient_norm": norm,
            "learning_rate": rate,
            "is_skipped": tf.cast(tf.logical_not(is_finite), tf.float32),
        }
        return in_order({**metrics, **extra}, self.METRICS)

    def _batch_gradients(
        self, batch: Batch, step: tf.Tensor, share: tf.Tensor, within: Part | None = None
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Return the gradients and metrics of the whole batch, gone through in `accumulation_steps` parts one after the other.

        Every average divides by what the whole batch holds, and each row is dropped out by its place in the whole, so the parts add up
        to what one pass would give. The batch is the whole, or lies `within` one.
        """
        config, network = self.config, self.network
        first = 0 if within is None else within.first
        dropout = Dropout.for_step(config.seed, step, first)
        crop = network.choose_reference(batch.mel_length, dropout, config.reference_dropout)
        whole, whole_crop = batch, crop
        if within is not None:
            whole = batch._replace(text_length=within.text_length, mel_length=within.mel_length)
            whole_crop = network.choose_reference(
                whole.mel_length, Dropout.for_step(config.seed, step), config.reference_dropout
            )
        totals = batch_totals(whole, whole_crop, network.frames_per_step, config.stop_positive_weight)
        if config.accumulation_steps == 1:
            return self._gradients(batch, crop, totals, dropout, step, share)

        rows = batch.tokens.shape[0] // config.accumulation_steps

        def part(index: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
            def cut(tensor: tf.Tensor | None) -> tf.Tensor | None:
                return None if tensor is None else tf.gather(tf.reshape(tensor, [-1, rows, *tensor.shape[1:]]), index)

            # Nothing is added where a batch is whole: one device's program is the same operations as if there were no others.
            first_example = index * rows if within is None else first + index * rows
            own_dropout = Dropout.for_step(config.seed, step, first_example)
            return self._gradients(Batch(*map(cut, batch)), Crop(*map(cut, crop)), totals, own_dropout, step, share)

        def add_part(index: tf.Tensor, sums: Any) -> tuple[tf.Tensor, Any]:
            return index + 1, tf.nest.map_structure(tf.add, sums, part(index))

        no_gradients = [tf.zeros(variable.shape) for variable in self.optimizer.trained.values()]
        nothing = (no_gradients, {name: tf.zeros([]) for name in LOSS_METRICS})
        _, sums = tf.while_loop(lambda index, _: index < config.accumulation_steps, add_part, (tf.constant(0), nothing))
        return sums

    def _gradients(
        self, batch: Batch, crop: Crop, totals: Totals, dropout: Dropout, step: tf.Tensor, share: tf.Tensor
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

    def _follow(self, step: tf.Tensor) -> None:
        """Move the average towards the trained weights; faster at first, when they have moved far from where they began."""
        count = tf.cast(step, tf.float32)
        rate = 1.0 - tf.minimum(self.config.ema_decay, (1.0 + count) / (10.0 + count))
        for follower, variable in zip(self._averages, self.optimizer.trained.values(), strict=True):
            follower.assign_add(rate * (variable - follower))


class EvaluateStep:
    """The losses of one batch under teacher forcing on the true mel, without dropout but the prenet's, each clip with its own reference."""

    METRICS = (*LOSS_METRICS, "weight")

    def __init__(self, network: Network, config: TrainingConfig, signatures: Sequence[Batch]) -> None:
        self.network, self.config, self._signature = network, config, signatures[0]
        self.compiled = ShapedFunction(self._evaluate_step, signatures, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Run the step; return the METRICS as float32 [len(METRICS)]; `weight` is how many decoder steps the means stand for."""
        return self.compiled(batch)

    def _evaluate_step(self, *tensors: tf.Tensor) -> tf.Tensor:
        batch, network, config = from_signature(tensors, self._signature), self.network, self.config
        dropout = Dropout.fixed(config.seed)
        crop = network.choose_reference(batch.mel_length, dropout, reference_dropout=0.0)
        totals = batch_totals(batch, crop, network.frames_per_step, config.stop_positive_weight)
        metrics = total_loss(network, batch, crop, network(batch, crop, dropout), config, 0.0, totals)
        weight = tf.reduce_sum(decoder_steps(batch.mel_length, network.frames_per_step))
        return in_order({**metrics, "weight": tf.cast(weight, tf.float32)}, self.METRICS)


def in_order(metrics: Mapping[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the named scalars as one vector: a report then costs one readback, not one a number."""
    return tf.stack([metrics[name] for name in names])

"""The compiled step: one signature, one trace, one XLA program for training and one for validation.

Nothing dynamic is inside: no tf.shape, no Python side effect, no readback. Results stay on the device until somebody asks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from xtts_pipeline.config import TrainingConfig
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import decoder_steps, total_loss
from xtts_pipeline.model.network import Batch, Network
from xtts_pipeline.schema import RecordSpec
from xtts_pipeline.training.optimizer import AdamW, clip_by_global_norm
from xtts_pipeline.training.schedule import learning_rate
from xtts_pipeline.training.variables import named_variables

# What training and validation both report of the losses.
PARTS = ("mel_l1", "stop_loss", "attention_loss", "attention_focus")


def batch_signature(spec: RecordSpec, batch_size: int, *, with_speaker: bool, with_language: bool) -> Batch:
    """Return the TensorSpecs of a batch: fully static, made of the manifest's record spec and the batch size alone."""
    specs = {field.name: tf.TensorSpec([batch_size, *field.shape], field.dtype, name=field.name) for field in spec.batch_fields}
    if not with_speaker:
        specs.pop("speaker")
    if not with_language:
        specs.pop("language")
    return Batch(**specs)


def to_batch(fields: Mapping[str, Any], signature: Batch) -> Batch:
    """Return those of the parsed fields that the signature asks for, in its order."""
    return Batch(*(None if spec is None else fields[name] for name, spec in zip(Batch._fields, signature, strict=True)))


class TrainStep(tf.Module):
    """One optimizer update on one batch. State: the network, the optimizer's moments, and the step counter."""

    METRICS = ("loss", "objective", *PARTS, "gradient_norm", "learning_rate", "mel_frames")

    def __init__(self, network: Network, config: TrainingConfig, signature: Batch) -> None:
        super().__init__(name="train_step")
        self.network, self.config = network, config
        # int64: TensorFlow keeps int32 variables on the host even on a GPU, where XLA could not reach this one.
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        trained = {name: variable for name, variable in named_variables(network).items() if variable.trainable}
        self.optimizer = AdamW(trained, config.weight_decay)
        self.function = _compile(self._train_step, signature, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Run the step; return the METRICS as float32 [len(METRICS)], still on the device."""
        return self.function(*(tensor for tensor in batch if tensor is not None))

    def _train_step(self, *tensors: tf.Tensor) -> tf.Tensor:
        batch = _from_signature(tensors, self.network)
        step = self.step.read_value()
        variables = self.optimizer.trained
        with tf.GradientTape() as tape:
            prediction = self.network(batch, Dropout.for_step(self.config.seed, step))
            metrics = total_loss(self.network, batch, prediction, self.config, self._guidance(step))
        gradients = tape.gradient(metrics["objective"], list(variables.values()))
        gradients, norm = clip_by_global_norm(gradients, self.config.clip_norm)
        rate = learning_rate(step, self.config)
        self.optimizer.apply(gradients, rate, step)
        self.step.assign_add(1)
        frames = tf.cast(tf.reduce_sum(batch.mel_length), tf.float32)
        return _in_order({**metrics, "gradient_norm": norm, "learning_rate": rate, "mel_frames": frames}, self.METRICS)

    def _guidance(self, step: tf.Tensor) -> tf.Tensor:
        return tf.maximum(0.0, 1.0 - tf.cast(step, tf.float32) / self.config.guided_attention_steps)


class EvaluateStep:
    """The losses of one batch under teacher forcing on the true mel, without dropout but the prenet's."""

    METRICS = ("loss", *PARTS, "weight")

    def __init__(self, network: Network, config: TrainingConfig, signature: Batch) -> None:
        self.network, self.config = network, config
        self.function = _compile(self._evaluate_step, signature, config)

    def __call__(self, batch: Batch) -> tf.Tensor:
        """Run the step; return the METRICS as float32 [len(METRICS)]; `weight` is how many decoder steps the means stand for."""
        return self.function(*(tensor for tensor in batch if tensor is not None))

    def _evaluate_step(self, *tensors: tf.Tensor) -> tf.Tensor:
        batch = _from_signature(tensors, self.network)
        prediction = self.network(batch, Dropout.fixed(self.config.seed))
        metrics = total_loss(self.network, batch, prediction, self.config, guidance=0.0)
        steps_B = decoder_steps(batch.mel_length, self.network.frames_per_step)
        return _in_order({**metrics, "weight": tf.cast(tf.reduce_sum(steps_B), tf.float32)}, self.METRICS)


def _compile(function: Callable[..., tf.Tensor], signature: Batch, config: TrainingConfig) -> Any:
    specs = [spec for spec in signature if spec is not None] if config.strict_shapes else None
    return tf.function(function, input_signature=specs, jit_compile=config.jit_compile, autograph=False)


def _in_order(metrics: Mapping[str, tf.Tensor], names: Sequence[str]) -> tf.Tensor:
    """Return the named scalars as one vector: a report then costs one readback, not one a number."""
    return tf.stack([metrics[name] for name in names])


def _from_signature(tensors: tuple[tf.Tensor, ...], network: Network) -> Batch:
    """Return the batch of positional tensors; speaker and language come last, and only where the network has them."""
    given = iter(tensors)
    return Batch(
        tokens=next(given),
        mel=next(given),
        text_length=next(given),
        mel_length=next(given),
        speaker=next(given) if network.speaker_embedding is not None else None,
        language=next(given) if network.language_embedding is not None else None,
    )

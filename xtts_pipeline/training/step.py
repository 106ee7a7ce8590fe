"""The compiled step: one signature, one trace, one XLA program for training and one for validation.

Nothing dynamic is inside: no tf.shape, no Python side effect, no readback. Results stay on the device until somebody asks.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.config import TrainingConfig
from xtts_pipeline.model.layers import Dropout, mix_bits
from xtts_pipeline.model.losses import decoder_steps, total_loss
from xtts_pipeline.model.network import Batch, Network
from xtts_pipeline.schema import RecordSpec
from xtts_pipeline.training.optimizer import AdamW, clip_by_global_norm
from xtts_pipeline.training.schedule import learning_rate

Metrics = dict[str, tf.Tensor]


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

    def __init__(self, network: Network, config: TrainingConfig, signature: Batch) -> None:
        super().__init__(name="train_step")
        self.network, self.config = network, config
        self.step = tf.Variable(0, dtype=tf.int32, trainable=False, name="step")
        self.optimizer = AdamW(network.trainable_variables, config.weight_decay)
        self.function = _compile(self._train_step, signature, config)

    def __call__(self, batch: Batch) -> Metrics:
        """Run the step; returns scalars that are still on the device."""
        return self.function(*(tensor for tensor in batch if tensor is not None))

    def _train_step(self, *tensors: tf.Tensor) -> Metrics:
        batch = _from_signature(tensors, self.network)
        step = self.step.read_value()
        dropout = Dropout(dropout_key(self.config.seed, step), is_training=True)
        with tf.GradientTape() as tape:
            metrics = total_loss(self.network, batch, self.network(batch, dropout), self.config, self._guidance(step))
        gradients = tape.gradient(metrics["loss"], self.network.trainable_variables)
        gradients, norm = clip_by_global_norm(gradients, self.config.clip_norm)
        rate = learning_rate(step, self.config)
        self.optimizer.apply(gradients, rate, step)
        self.step.assign_add(1)
        return {**metrics, "gradient_norm": norm, "learning_rate": rate, "mel_frames": tf.reduce_sum(batch.mel_length)}

    def _guidance(self, step: tf.Tensor) -> tf.Tensor:
        return tf.maximum(0.0, 1.0 - tf.cast(step, tf.float32) / max(self.config.guided_attention_steps, 1))


class EvaluateStep:
    """The losses of one batch under teacher forcing on the true mel, without dropout but the prenet's."""

    def __init__(self, network: Network, config: TrainingConfig, signature: Batch) -> None:
        self.network, self.config = network, config
        self.function = _compile(self._evaluate_step, signature, config)

    def __call__(self, batch: Batch) -> Metrics:
        """Run the step; `weight` says how many decoder steps the means stand for."""
        return self.function(*(tensor for tensor in batch if tensor is not None))

    def _evaluate_step(self, *tensors: tf.Tensor) -> Metrics:
        batch = _from_signature(tensors, self.network)
        # A fixed key: two evaluations of the same weights agree.
        dropout = Dropout(tf.constant(self.config.seed & 0xFFFFFFFF, tf.uint32), is_training=False)
        metrics = total_loss(self.network, batch, self.network(batch, dropout), self.config, guidance=0.0)
        steps_B = decoder_steps(batch.mel_length, self.network.frames_per_step)
        return {**metrics, "weight": tf.cast(tf.reduce_sum(steps_B), tf.float32)}


def dropout_key(seed: int, step: tf.Tensor) -> tf.Tensor:
    """Return the uint32 key of a step's dropout masks."""
    return mix_bits(tf.cast(step, tf.uint32) + np.uint32(seed * 0x9E3779B1 & 0xFFFFFFFF))


def _compile(function: Callable[..., Metrics], signature: Batch, config: TrainingConfig) -> Any:
    specs = [spec for spec in signature if spec is not None] if config.strict_shapes else None
    return tf.function(function, input_signature=specs, jit_compile=config.jit_compile or None, autograph=False)


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

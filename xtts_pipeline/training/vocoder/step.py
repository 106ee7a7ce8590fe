"""The vocoder's compiled steps: one update of generator and discriminators together, and the losses of validation."""

from collections.abc import Sequence

import tensorflow as tf

from xtts_pipeline.config.schema import AudioConfig, Config, VocoderConfig
from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.data.waves import WaveBatch
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.optimizer import Betas
from xtts_pipeline.training.step import GlobalBatch, Gradients, Metrics, TrainStep, stack_metrics
from xtts_pipeline.vocoder.discriminators import Discriminators
from xtts_pipeline.vocoder.generator import Generator
from xtts_pipeline.vocoder.losses import (
    MelLoss,
    SpectralLoss,
    adversarial_loss,
    discriminator_loss,
    feature_loss,
)

LOSS_METRICS = ("loss", "mel_l1", "spectral_loss")
ADVERSARIAL_METRICS = ("adversarial_loss", "feature_loss", "discriminator_loss")


class ReconstructionLoss:
    """The losses against the recording, one value a row: `loss` is the weighted sum of the others."""

    def __init__(self, audio: AudioConfig, settings: VocoderConfig) -> None:
        self._settings = settings
        self._mel, self._spectral = MelLoss(audio), SpectralLoss(settings.spectral_sizes)

    def __call__(self, wave_BN: tf.Tensor, truth_BN: tf.Tensor) -> Metrics:
        """Return the LOSS_METRICS of each row, float32 [B]."""
        settings = self._settings
        mel, spectral = self._mel(wave_BN, truth_BN), self._spectral(wave_BN, truth_BN)
        loss = settings.mel_weight * mel + settings.spectral_weight * spectral
        return {"loss": loss, "mel_l1": mel, "spectral_loss": spectral}


class VocoderStep(TrainStep):
    """One update of the generator and of its discriminators, all gradients at the same weights.

    Before `vocoder.adversarial_start`, which is a phase with a program of its own, and without
    `vocoder.adversarial_weight`, the losses of the discriminators are 0, and nothing changes them.
    """

    SUMMED_METRICS = (*LOSS_METRICS, *ADVERSARIAL_METRICS, "mel_frames")
    METRICS = (
        *LOSS_METRICS,
        *ADVERSARIAL_METRICS,
        "gradient_norm",
        "discriminator_gradient_norm",
        "learning_rate",
        "mel_frames",
        "is_skipped",
    )
    BETAS = Betas(0.8, 0.99)
    network: Generator

    def __init__(
        self, generator: Generator, average: Generator, config: Config, signatures: Sequence[WaveBatch]
    ) -> None:
        settings, discriminators = config.vocoder, None
        if settings.adversarial_weight:
            discriminators = Discriminators(
                settings.discriminator_sizes,
                settings.discriminator_periods,
                settings.discriminator_width,
                config.training.seed,
            )
        others = {} if discriminators is None else named_variables(discriminators)
        judges = {f"discriminators.{name}": variable for name, variable in others.items()}
        start = settings.adversarial_start if judges else 0
        super().__init__(generator, average, config.training, signatures, judges, start)
        self.discriminators, self._settings = discriminators, settings
        self._reconstruction = ReconstructionLoss(config.audio, settings)
        self._trained = len(self.optimizer.trained) - len(judges)
        self._adversarial_start = start
        if start:
            self.programs.insert(0, CompiledByShape(self._reconstruction_step, signatures, config.training))
        self.begin(0)

    def begin(self, steps_done: int) -> None:
        """Choose the program of the next step."""
        self.compiled = self.programs[-1 if steps_done >= self._adversarial_start else 0]

    def _reconstruction_step(self, batch: WaveBatch) -> tf.Tensor:
        return self._train_step(batch)

    def batch_gradients(self, batch: WaveBatch, whole: GlobalBatch | None = None) -> tuple[Gradients, Metrics]:
        """Return the gradients of the generator, then of the discriminators, and the SUMMED_METRICS."""
        settings, rows = self._settings, rows_of(batch)
        # The phase is known when a program is traced; each program is one phase's.
        discriminators = self.discriminators if self.compiled is self.programs[-1] else None
        share = 1.0 if whole is None else rows / whole.numbers.shape[1]
        variables = list(self.optimizer.trained.values())
        truth_BN = batch.sound
        # Both gradients come from one forward pass; each is taken of its own variables alone.
        with tf.GradientTape(persistent=True) as tape:
            wave_BN = self.network(tf.cast(batch.mel, tf.float32), dtype=self._dtype)
            rows_of_losses = self._reconstruction(wave_BN, truth_BN)
            metrics = {name: share * tf.reduce_mean(loss_B) for name, loss_B in rows_of_losses.items()}
            objective = metrics["loss"]
            adversarial = feature = against = tf.zeros([])
            if discriminators is not None:
                true, made = discriminators(truth_BN), discriminators(wave_BN)
                adversarial, feature = share * adversarial_loss(made), share * feature_loss(true, made)
                against = share * discriminator_loss(true, made)
                objective += settings.adversarial_weight * adversarial + settings.feature_weight * feature
        gradients = tape.gradient(objective, variables[: self._trained])
        judges = variables[self._trained :]
        gradients += tape.gradient(against, judges) if discriminators else [tf.zeros(judge.shape) for judge in judges]
        metrics |= dict(zip(ADVERSARIAL_METRICS, (adversarial, feature, against), strict=True))
        frames = tf.constant(float(rows * batch.mel.shape[1]))
        return [tf.convert_to_tensor(gradient) for gradient in gradients], {**metrics, "mel_frames": frames}

    def clip(self, gradients: Gradients) -> tuple[Gradients, Metrics]:
        """Clip generator and discriminators each by its own norm."""
        limit, clipped, norm = self.config.clip_norm, list(gradients[self._trained :]), tf.zeros([])
        if clipped:
            clipped, norm = tf.clip_by_global_norm(clipped, limit)
        own, own_norm = tf.clip_by_global_norm(gradients[: self._trained], limit)
        return own + clipped, {"gradient_norm": own_norm, "discriminator_gradient_norm": norm}

    @property
    def _dtype(self) -> tf.DType:
        return tf.dtypes.as_dtype(self.config.product_type)


class EvaluateVocoderStep:
    """The reconstruction losses of a batch of crops, row by row."""

    METRICS = LOSS_METRICS

    def __init__(self, generator: Generator, config: Config, signature: WaveBatch) -> None:
        self.generator = generator
        self._reconstruction = ReconstructionLoss(config.audio, config.vocoder)
        self.compiled = CompiledByShape(self._evaluate_step, [signature], config.training)

    def __call__(self, batch: WaveBatch) -> tf.Tensor:
        """Return the METRICS of each row, float32 [len(METRICS), B]."""
        return self.compiled(batch)

    def _evaluate_step(self, batch: WaveBatch) -> tf.Tensor:
        losses = self._reconstruction(self.generator(tf.cast(batch.mel, tf.float32)), batch.sound)
        return stack_metrics(losses, self.METRICS)

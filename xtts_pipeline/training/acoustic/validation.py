"""Validate the EMA network: its losses on the whole split, and a few sentences that it speaks.

The losses take the timing of the recordings. Only speech with the network's own timing shows what listeners hear, so
its distortion decides which checkpoint is the best.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import tensorflow as tf

from xtts_pipeline import plots
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import with_rows
from xtts_pipeline.data.source import Source
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.distortion import mel_distortion
from xtts_pipeline.model.durations import cut_durations
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network, Speech
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.acoustic.step import EvaluateStep
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE, Distribution
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.task import Validation
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

# Mean mel-cepstral distortion of the spoken sentences, in dB.
DISTORTION = "distortion_db"


@dataclass(frozen=True)
class SpokenSentence:
    """One of the fixed validation sentences as the network synthesizes it now, and its ground truth.

    symbols: names of the S tokens. true_mel, mel: float32 [T, mel_bins], natural log.
    durations: float32 [S], the frames of each token.
    """

    number: int
    vocoder: GriffinLim
    symbols: tuple[str, ...]
    true_mel: np.ndarray
    mel: np.ndarray
    durations: np.ndarray
    has_stopped: bool

    @property
    def name(self) -> str:
        """The group of its tags in TensorBoard."""
        return f"sentence_{self.number}"

    @property
    def text(self) -> str:
        """The text as the network reads it, without names such as `<begin>`."""
        return "".join(symbol for symbol in self.symbols if len(symbol) == 1)

    def picture(self) -> tuple[str, bytes]:
        """Return the tag and the PNG of both mels and of the tokens."""
        label = "spoken" if self.has_stopped else f"spoken {plots.CUT_MARK}"
        mels = (self.true_mel, self.mel)
        return "mels_and_tokens", plots.encode_comparison(
            *mels, self.vocoder.audio, label, self.durations, self.symbols
        )

    def sounds(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return the sound of both mels; that of the true one is the upper bound of this run's quality."""
        return {"true": lambda: self.vocoder(self.true_mel), "spoken": lambda: self.vocoder(self.mel)}


class SpeakStep:
    """Synthesizes a batch of texts with references as in training. Compiled once."""

    def __init__(self, network: Network, config: Config, signature: Batch) -> None:
        self.network, self.config = network, config
        self.compiled = CompiledByShape(self._speak_step, [signature], config.training)

    def __call__(self, batch: Batch) -> tuple[Speech, tf.Tensor]:
        """Return the speech, and its mean mel-cepstral distortion in dB."""
        speech, distortion = self.compiled(batch)
        return speech, distortion

    def _speak_step(self, batch: Batch) -> tuple[Speech, tf.Tensor]:
        network, settings = self.network, self.config.synthesis
        dropout = Dropout.fixed(self.config.training.seed)
        crop = network.choose_crops(batch.mel_length, dropout, reference_dropout=0.0)
        _, reference = network.other_references(batch, crop, dropout)
        memory = network.encode_clips(batch, reference, dropout)
        cap_B = tf.round(settings.max_frames_per_token * tf.cast(batch.text_length, tf.float32))
        # Take the minimum before the cast: a configured cap may exceed int32.
        max_frames_B = tf.cast(tf.minimum(cap_B, float(batch.mel.shape[1])), tf.int32)
        speech = network.speak(memory, dropout, max_frames_B, settings)
        distortion_B = mel_distortion(batch.mel, batch.mel_length, speech.mel, speech.mel_length)
        return speech, finite_mean(distortion_B)


class AcousticValidation(Validation):
    """The losses of the split with the timing of recordings, and sentences that are spoken freely."""

    def __init__(
        self,
        source: Source,
        config: Config,
        network: Network,
        signatures: Sequence[Batch],
        monitor: CompilationMonitor,
        distribution: Distribution = SINGLE_DEVICE,
    ) -> None:
        """Take the signatures of the buckets, the largest last. Raise CacheError if the cache has no validation clips.

        N workers evaluate every N-th batch each, on their first devices. Only the chief synthesizes samples.
        """
        super().__init__(config.training, distribution)
        self._source = source
        # A device has memory for a part of a training batch, so for no more rows here.
        parts = distribution.replicas * config.training.accumulation_steps
        signatures = self._signatures = [
            with_rows(signature, signature.tokens.shape[0] // parts) for signature in signatures
        ]
        self._evaluate_step = EvaluateStep(network, config.training, signatures)
        monitor.watch(*self._evaluate_step.compiled.functions, calls=self._evaluate_step.compiled)
        speech_signature = with_rows(signatures[-1], min(config.training.sample_sentences, source.validation_clips))
        self._sentences = source.validation_sentences(speech_signature)
        self._spoken: Speech | None = None
        self._speak_step = SpeakStep(network, config, speech_signature)
        if config.training.sample_every_evaluations is not None:
            monitor.watch(*self._speak_step.compiled.functions, calls=self._speak_step.compiled)
            self.best_metric = DISTORTION
        self._vocoder = GriffinLim.from_settings(source.manifest.audio, config.synthesis)
        self._tokenizer = Tokenizer(source.manifest.symbols, config.text.blank)

    def evaluate(self, before_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Return the losses over the whole split, and the distortion if speech is synthesized at all.

        An exception of `before_batch` ends it.
        """

        def batches() -> Iterator[Batch]:
            workers = self._distribution
            for batch in islice(
                self._source.validation_batches(self._signatures), workers.worker, None, workers.workers
            ):
                before_batch()
                yield batch

        numbers = mean_losses(self._evaluate_step, batches(), self._distribution)
        if self.best_metric == DISTORTION:
            before_batch()
            found = math.nan
            if self._distribution.is_chief:
                self._spoken, distortion = self._speak_step(self._sentences)
                found = float(distortion)
            # All workers need it, since their patience must end at the same step.
            numbers[DISTORTION] = float(self._distribution.broadcast([found])[0])
        self.evaluations += 1
        return numbers

    def synthesize_samples(self) -> tuple[dict[str, float], list[SpokenSentence]]:
        """Return metrics of the sentences that the last evaluation has spoken, and the sentences."""
        batch = self._sentences
        said = Speech(*(tensor.numpy() for tensor in self._spoken or self._speak_step(batch)[0]))
        ratios = said.mel_length / batch.mel_length.numpy()
        numbers = {"stop_rate": float(said.has_stopped.mean()), "duration_ratio": float(np.median(ratios))}
        return numbers, [self._sentence(row, said) for row in range(len(ratios))]

    def _sentence(self, row: int, said: Speech) -> SpokenSentence:
        batch, frames = self._sentences, int(said.mel_length[row])
        tokens = batch.tokens[row, : int(batch.text_length[row])].numpy()
        return SpokenSentence(
            number=row + 1,
            vocoder=self._vocoder,
            symbols=tuple(self._tokenizer.name_of(int(token)) for token in tokens),
            true_mel=batch.mel[row, : int(batch.mel_length[row])].numpy().astype(np.float32),
            mel=said.mel[row, :frames],
            durations=cut_durations(said.duration[row, : len(tokens)], frames),
            has_stopped=bool(said.has_stopped[row]),
        )


def finite_mean(values_B: tf.Tensor) -> tf.Tensor:
    """Return the mean of the finite values, so that one bad clip does not hide all others; NaN if there is none."""
    is_finite_B = tf.math.is_finite(values_B)
    count = tf.reduce_sum(tf.cast(is_finite_B, values_B.dtype))
    return tf.reduce_sum(tf.where(is_finite_B, values_B, tf.zeros([], values_B.dtype))) / count


def mean_losses(
    step: EvaluateStep, batches: Iterable[Batch], distribution: Distribution = SINGLE_DEVICE
) -> dict[str, float]:
    """Return the mean losses over all batches of all workers, each batch weighted by its decoder steps.

    So are means over tokens or clips, which hence depend a little on how the clips fall into batches.
    A batch that is not finite is left out, so that one bad clip does not hide all others; `skipped_batches` counts
    them. The losses are NaN if no batch with a decoder step is left.
    """
    *names, _ = step.METRICS
    vectors = [step(batch) for batch in batches]
    # One readback for all batches. A worker may have none.
    results = tf.stack(vectors).numpy().astype(np.float64) if vectors else np.empty([0, len(names) + 1])
    finite = results[np.isfinite(results).all(axis=1)]
    weights = finite[:, -1]
    counts = [weights.sum(), len(results) - len(finite)]
    *sums, weight, skipped = distribution.sum([*(finite[:, :-1] * weights[:, None]).sum(axis=0), *counts]).tolist()
    means = [value / weight if weight else math.nan for value in sums]
    return {**dict(zip(names, means, strict=True)), "skipped_batches": skipped}

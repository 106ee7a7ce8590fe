"""Validate the EMA generator: its losses on a crop of each validation clip, and whole clips to listen to."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from xtts_pipeline import plots
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig, Config
from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.data.waves import WaveBatch, WaveSource
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.task import Validation
from xtts_pipeline.training.vocoder.step import EvaluateVocoderStep
from xtts_pipeline.vocoder.generator import Generator
from xtts_pipeline.vocoder.neural import NeuralVocoder


@dataclass(frozen=True)
class VocodedClip:
    """A validation clip and its copy by the vocoder: waves float32 [samples], mel float32 [T, mel_bins]."""

    number: int
    audio: AudioConfig
    true_mel: np.ndarray
    true_wave: np.ndarray
    wave: np.ndarray

    @property
    def name(self) -> str:
        """The group of its tags in TensorBoard."""
        return f"clip_{self.number}"

    @property
    def text(self) -> str:
        """Nothing: a vocoder reads no text."""
        return ""

    @property
    def mel(self) -> np.ndarray:
        """The mel of the copy, float32 [T, mel_bins]."""
        return log_mel(self.wave, self.audio)

    def picture(self) -> tuple[str, bytes]:
        """Return the tag and the PNG of both mels."""
        return "mel", plots.encode_comparison(self.true_mel, self.mel, self.audio, "copy")

    def sounds(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return the recording and its copy."""
        return {"true": lambda: self.true_wave, "copy": lambda: self.wave}


class VocoderValidation(Validation):
    """Losses of the validation crops, and copies of the first validation clips whose mels are finite."""

    def __init__(
        self,
        source: WaveSource,
        config: Config,
        average: Generator,
        signature: WaveBatch,
        monitor: CompilationMonitor,
        distribution: Distribution,
    ) -> None:
        """Take the signature of one device's share of a training batch."""
        super().__init__(config.training, distribution)
        self._source, self._audio, self._rows = source, config.audio, rows_of(signature)
        self._step = EvaluateVocoderStep(average, config, signature)
        monitor.watch(*self._step.compiled.functions, calls=self._step.compiled)
        self._vocoder = NeuralVocoder(average)
        # The vocoder refuses a mel that is not finite; such a clip must not end the run.
        clips = (source.validation_clip(number) for number in range(source.validation_clips))
        finite = ((mel, wave) for _, mel, wave in clips if np.isfinite(mel).all())
        self._clips = list(islice(finite, config.training.sample_sentences))

    def evaluate(self, before_batch: Callable[[], None] = lambda: None) -> dict[str, float]:
        """Return the mean losses over the validation crops; one that is not finite is left out and counted.

        N workers evaluate every N-th batch each, on their first devices.
        """
        names, workers, found = self._step.METRICS, self._distribution, []
        crops = self._source.validation_crops(self._rows)
        for batch, rows in islice(crops, workers.worker, None, workers.workers):
            before_batch()
            found.append(self._step(batch).numpy()[:, :rows])
        losses = np.concatenate([np.empty([len(names), 0]), *found], axis=1)
        finite = losses[:, np.isfinite(losses).all(axis=0)]
        counts = [finite.shape[1], losses.shape[1] - finite.shape[1]]
        *sums, rows, skipped = workers.sum([*finite.sum(axis=1), *counts]).tolist()
        self.evaluations += 1
        means = [value / rows if rows else math.nan for value in sums]
        return {**dict(zip(names, means, strict=True)), "skipped_crops": skipped}

    def synthesize_samples(self) -> tuple[dict[str, float], list[VocodedClip]]:
        """Return the mean distance of the copies' mels from the true ones, in nats, and the clips."""
        clips = [
            VocodedClip(number, self._audio, mel, wave, self._vocoder(mel))
            for number, (mel, wave) in enumerate(self._clips, 1)
        ]
        distances = [float(np.abs(clip.mel - clip.true_mel).mean()) for clip in clips]
        return {"mel_distance": float(np.mean(distances)) if distances else math.nan}, clips

"""Evaluate a checkpoint on a split of a cache: synthesize each text and compare the speech with the ground truth.

Imports TensorFlow.
"""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import joblib
import numpy as np
import tqdm

from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, config_differences
from xtts_pipeline.errors import CacheError
from xtts_pipeline.evaluation.ground_truth import read_ground_truth
from xtts_pipeline.evaluation.intelligibility import Recogniser
from xtts_pipeline.evaluation.judges import Judges
from xtts_pipeline.evaluation.utterance import Comparison, EvaluatedUtterance, SpokenUtterance
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.system.processes import in_processes
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.vocoder.griffin_lim import GriffinLim
from xtts_pipeline.vocoder.neural import NeuralVocoder

_SHOWN_DIFFERENCES = 3
# Fewer utterances are compared sooner than a process more has started.
LEAST_OF_PROCESS = 6
# Utterances that are spoken before they are compared, for each process.
AT_ONCE = 8


class SplitEvaluator:
    """Synthesizes, compares and writes the utterances of a split."""

    def __init__(
        self,
        run: Path,
        cache: Path,
        manifest: Manifest,
        *,
        data: Path | None = None,
        references: Sequence[Path] = (),
        vocoder: Path | str | None = None,
        overrides: Sequence[str] = (),
        recogniser: Callable[[], Recogniser] | None = None,
        judges: Callable[[], Judges] | None = None,
    ) -> None:
        """Load the run's checkpoint and `vocoder`, as `Synthesizer.load` does; `overrides` are synthesis settings.

        `references` are sound files of the voice for every text, in place of the cache's speakers. The ground truth is
        the waves of the corpus `data`, or those that the cache stores, or else copy synthesis of the true mels. A
        recogniser adds phoneme error rates, and judges add judgements.
        Raises CacheError for another kind of cache than the run's, and the errors of `Synthesizer.load`.
        """
        self._cache, self._manifest, self._data = cache, manifest, data
        self._references, self._recogniser, self._judges = references, recogniser, judges
        self._synthesizer = Synthesizer.load(run, overrides, vocoder=vocoder)
        check_cache_fits(cache, manifest, self._synthesizer.checkpoint)
        self._griffin_lim: GriffinLim | None = None
        if not isinstance(self._synthesizer.vocoder, GriffinLim):
            settings = self._synthesizer.checkpoint.config.synthesis
            self._griffin_lim = GriffinLim.from_settings(manifest.audio, settings)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that speaks."""
        return self._synthesizer.checkpoint

    @property
    def vocoder_weights_sha256(self) -> str | None:
        """The checksum of the weights of the vocoder, None for Griffin-Lim."""
        vocoder = self._synthesizer.vocoder
        return vocoder.weights_sha256 if isinstance(vocoder, NeuralVocoder) else None

    def evaluate(
        self, entries: Sequence[UtteranceEntry], folder: Path, *, jobs: int, with_progress: bool
    ) -> tuple[EvaluatedUtterance, ...]:
        """Evaluate the entries, ordered as by `split_entries`, and write sounds and pictures into the folder.

        Up to `jobs` processes compare utterances. They wait while others are spoken, so that the measured speed of
        synthesis does not depend on them.
        """
        jobs = max(min(jobs, len(entries) // LEAST_OF_PROCESS), 1)
        comparison = Comparison(folder, self._manifest.audio, self._griffin_lim, self._recogniser, self._judges)
        # The first call compiles and fills caches, which is not part of the measured speed.
        self._synthesize(entries[0])
        truths = enumerate(read_ground_truth(self._cache, self._manifest, entries, self._data))
        evaluated: list[EvaluatedUtterance] = []
        with tqdm.tqdm(total=len(entries), unit="utterance", disable=not with_progress) as shown:
            while spoken := [self._speak(number, *truth) for number, truth in islice(truths, AT_ONCE * jobs)]:
                for utterance in in_processes(jobs, [joblib.delayed(comparison)(each) for each in spoken]):
                    evaluated.append(utterance)
                    shown.update()
        return tuple(evaluated)

    def _speak(
        self, number: int, entry: UtteranceEntry, mel: np.ndarray, true_wave: np.ndarray | None
    ) -> SpokenUtterance:
        before = time.perf_counter()
        spoken = self._synthesize(entry)
        seconds = time.perf_counter() - before
        symbols, copy = tuple(self._synthesizer.symbols(spoken.tokens)), self._synthesizer.vocoder(mel)
        return SpokenUtterance(number, entry, mel, true_wave, spoken, copy, symbols, seconds)

    def _synthesize(self, entry: UtteranceEntry) -> SpokenText:
        # The raw text: `text` may be phonemes already, which the synthesizer does not take.
        speaker = None if self._references else entry.speaker
        return self._synthesizer.synthesize(entry.raw_text, speaker, entry.language, self._references)


def check_cache_fits(cache: Path, manifest: Manifest, checkpoint: Checkpoint) -> None:
    """Raise CacheError with the differences unless the run was trained on such a cache and knows its speakers."""
    identity = checkpoint.cache
    differences = config_differences(manifest, checkpoint.config)
    unknown = sorted(set(manifest.symbols) ^ set(identity.symbols))
    if unknown:
        differences.append(f"symbols: only one of the two has {''.join(unknown)!r}")
    elif manifest.symbols != identity.symbols:
        differences.append("symbols: the same in another order")
    if manifest.fingerprint != identity.fingerprint and not differences:
        differences.append(
            f"fingerprint: the cache has {manifest.fingerprint[:12]}, the run {identity.fingerprint[:12]}"
        )
    for kind, held, known in (
        ("speakers", manifest.speakers, identity.speakers),
        ("languages", manifest.languages, identity.languages),
    ):
        unknown_names = sorted(set(held) - set(known))
        if unknown_names:
            differences.append(f"{kind}: the run does not know {', '.join(unknown_names[:_SHOWN_DIFFERENCES])}")
    if differences:
        more = len(differences) - _SHOWN_DIFFERENCES
        listed = "; ".join(differences[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        found = f"{cache}: not a cache for {checkpoint.folder}: {listed}"
        raise CacheError(f"{found}; name the cache that the run was trained on with --cache")

"""Evaluate a checkpoint on a split of a cache: synthesize each text and compare the speech with the ground truth.

Imports TensorFlow.
"""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import joblib

from xtts_pipeline.cache.format.contents import require_recorded_mels
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

_SHOWN_DIFFERENCES = 3
# Fewer utterances are compared sooner than a process more has started.
LEAST_OF_PROCESS = 6
# Utterances that are spoken before they are compared, for each process.
AT_ONCE = 8


def evaluate_split(
    synthesizer: Synthesizer,
    cache: Path,
    manifest: Manifest,
    entries: Sequence[UtteranceEntry],
    folder: Path,
    *,
    data: Path | None,
    references: Sequence[Path],
    recogniser: Callable[[], Recogniser] | None,
    judges: Callable[[], Judges] | None,
    jobs: int,
    progress: Callable[[], object],
) -> tuple[EvaluatedUtterance, ...]:
    """Speak the entries, ordered as by `split_entries`, compare, and write sounds and pictures into the folder.

    `references` are sound files of the voice for every text, in place of the cache's speakers. The ground truth is the
    waves of the corpus `data`, or those that the cache stores, or else copy synthesis of the true mels. A recogniser
    adds phoneme error rates, and judges add judgements. Up to `jobs` processes compare utterances. They wait while
    others are spoken, so that the measured speed of synthesis does not depend on them. `progress` is called for each.
    Raises the errors of `read_ground_truth` and of `Synthesizer.synthesize`.
    """

    def speak(entry: UtteranceEntry) -> SpokenText:
        # The raw text: `text` may be phonemes already, which the synthesizer does not take.
        return synthesizer.synthesize(entry.raw_text, None if references else entry.speaker, entry.language, references)

    jobs = max(min(jobs, len(entries) // LEAST_OF_PROCESS), 1)
    griffin_lim: GriffinLim | None = None
    if not isinstance(synthesizer.vocoder, GriffinLim):
        griffin_lim = GriffinLim.from_settings(manifest.audio, synthesizer.checkpoint.config.synthesis)
    comparison = Comparison(folder, manifest.audio, griffin_lim, recogniser, judges)
    # The first call compiles and fills caches, which is not part of the measured speed.
    speak(entries[0])
    truths = enumerate(read_ground_truth(cache, manifest, entries, data))
    evaluated: list[EvaluatedUtterance] = []
    while chunk := list(islice(truths, AT_ONCE * jobs)):
        spoken = []
        for number, (entry, mel, wave) in chunk:
            before = time.perf_counter()
            speech = speak(entry)
            seconds = time.perf_counter() - before
            symbols, copy = tuple(synthesizer.symbols(speech.tokens)), synthesizer.vocoder(mel)
            spoken.append(SpokenUtterance(number, entry, mel, wave, speech, copy, symbols, seconds))
        for utterance in in_processes(jobs, [joblib.delayed(comparison)(each) for each in spoken]):
            evaluated.append(utterance)
            progress()
    return tuple(evaluated)


def check_cache_fits(cache: Path, manifest: Manifest, checkpoint: Checkpoint) -> None:
    """Raise CacheError with the differences unless the cache has the run's settings and names that the run knows."""
    require_recorded_mels(cache, manifest)
    identity, differences = checkpoint.cache, config_differences(manifest, checkpoint.config)
    for kind in ("symbols", "speakers", "languages"):
        unknown = sorted(set(getattr(manifest, kind)) - set(getattr(identity, kind)))
        if unknown:
            names = ", ".join(name if name.strip() else repr(name) for name in unknown[:_SHOWN_DIFFERENCES])
            differences.append(f"{kind}: the run does not know {names}")
    if differences:
        more = len(differences) - _SHOWN_DIFFERENCES
        listed = "; ".join(differences[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        found = f"{cache}: not a cache for {checkpoint.folder}: {listed}"
        raise CacheError(f"{found}; name the cache that the run was trained on with --cache")

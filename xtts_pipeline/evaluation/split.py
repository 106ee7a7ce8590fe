"""Evaluate a checkpoint on a split of a cache: synthesize each text and compare the speech with the ground truth.

Imports TensorFlow.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tqdm

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, config_differences
from xtts_pipeline.errors import CacheError, output_errors
from xtts_pipeline.evaluation.ground_truth import read_ground_truth
from xtts_pipeline.evaluation.intelligibility import PhonemeComparison, Recogniser, compare_phonemes
from xtts_pipeline.evaluation.judges import Judgements, Judges
from xtts_pipeline.evaluation.metrics import Sound, SpeechMetrics, measure_speech
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.plots import encode_mel, mel_seconds
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, Vocoder

_SHOWN_DIFFERENCES = 3


@dataclass(frozen=True)
class EvaluatedUtterance:
    """One utterance with its metrics and its files: `sounds` and `pictures` are (label, name).

    The labels are `true`, the recording; `copy`, copy synthesis by the run's vocoder; `copy_griffin_lim`, that by
    Griffin-Lim where the vocoder is another one; and `spoken`, the speech. The pictures are `true` and `spoken`.
    `durations`, float32 [S], are the spoken frames of the tokens, named by `symbols`.
    """

    entry: UtteranceEntry
    metrics: SpeechMetrics
    phonemes: PhonemeComparison | None
    judgements: Judgements
    has_stopped: bool
    text_changes: TextChanges
    synthesis_seconds: float
    spoken_seconds: float
    true_seconds: float
    sounds: tuple[tuple[str, str], ...]
    pictures: tuple[tuple[str, str], ...]
    symbols: tuple[str, ...]
    durations: np.ndarray

    def to_json(self) -> dict[str, object]:
        """Return the utterance's line of utterances.jsonl."""
        values: dict[str, Any] = {
            "id": self.entry.id,
            "text": self.entry.raw_text,
            "speaker": self.entry.speaker,
            "language": self.entry.language,
            "has_stopped": self.has_stopped,
            "synthesis_seconds": self.synthesis_seconds,
            "spoken_seconds": self.spoken_seconds,
            "true_seconds": self.true_seconds,
            **vars(self.metrics),
            "sounds": dict(self.sounds),
            "pictures": [name for _, name in self.pictures],
        }
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
        return {**rounded, "judges": {label: judgement.to_json() for label, judgement in self.judgements.items()}}


class SplitEvaluator:
    """Synthesizes, compares and writes the utterances of a split, one at a time.

    vocoder_weights_sha256: that of `Synthesizer`.
    """

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
        recogniser: Recogniser | None = None,
        judges: Judges | None = None,
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
        self.vocoder_weights_sha256 = self._synthesizer.vocoder_weights_sha256
        check_cache_fits(cache, manifest, self._synthesizer.checkpoint)
        self._vocoders: dict[str, Vocoder] = {"copy": self._synthesizer.vocoder}
        if not isinstance(self._synthesizer.vocoder, GriffinLim):
            settings = self._synthesizer.checkpoint.config.synthesis
            self._vocoders["copy_griffin_lim"] = GriffinLim.from_settings(manifest.audio, settings)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that speaks."""
        return self._synthesizer.checkpoint

    def evaluate(
        self, entries: Sequence[UtteranceEntry], folder: Path, *, with_progress: bool
    ) -> tuple[EvaluatedUtterance, ...]:
        """Evaluate the entries, ordered as by `split_entries`, and write sounds and pictures into the folder."""
        # The first call compiles and fills caches, which is not part of the measured speed.
        self._synthesize(entries[0])
        truths = read_ground_truth(self._cache, self._manifest, entries, self._data)
        shown = tqdm.tqdm(truths, total=len(entries), unit="utterance", disable=not with_progress)
        return tuple(self._evaluate(number, *truth, folder) for number, truth in enumerate(shown))

    def _evaluate(
        self, number: int, entry: UtteranceEntry, mel: np.ndarray, true_wave: np.ndarray | None, folder: Path
    ) -> EvaluatedUtterance:
        audio = self._manifest.audio
        before = time.perf_counter()
        spoken = self._synthesize(entry)
        synthesis_seconds = time.perf_counter() - before
        waves = {"spoken": spoken.wave}
        if true_wave is not None:
            waves["true"] = true_wave
        waves |= {label: vocoder(mel) for label, vocoder in self._vocoders.items()}
        truth = Sound(mel, waves["copy"] if true_wave is None else true_wave)
        speech, symbols = Sound(spoken.mel, spoken.wave), self._synthesizer.symbols(spoken.tokens)
        # Numbered, not named by id: an id may hold any character.
        sounds = tuple((label, f"{number:04d}-{label}.wav") for label in waves)
        for label, name in sounds:
            write_wave(folder / name, waves[label], audio.sample_rate)
        # After the sounds are written, which refuses samples that are not finite.
        phonemes = None if self._recogniser is None else compare_phonemes(self._recogniser, waves, audio.sample_rate)
        judgements = {} if self._judges is None else self._judges.judge(waves, audio.sample_rate)
        drawn = {"true": encode_mel(mel, audio), "spoken": encode_mel(spoken.mel, audio)}
        pictures = tuple((label, f"{number:04d}-{label}.png") for label in drawn)
        with output_errors(folder, "free space or choose another --output"):
            for label, name in pictures:
                (folder / name).write_bytes(drawn[label])
        return EvaluatedUtterance(
            entry=entry,
            metrics=measure_speech(truth, speech, spoken.faults, synthesis_seconds, audio, phonemes, judgements),
            phonemes=phonemes,
            judgements=judgements,
            has_stopped=spoken.has_stopped,
            text_changes=spoken.text_changes,
            synthesis_seconds=synthesis_seconds,
            spoken_seconds=spoken.seconds,
            true_seconds=mel_seconds(mel, audio),
            sounds=sounds,
            pictures=pictures,
            symbols=tuple(symbols),
            durations=spoken.durations,
        )

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

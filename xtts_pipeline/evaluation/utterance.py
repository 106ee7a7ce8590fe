"""Compare the speech of one utterance with the truth. Imports no TensorFlow, so worker processes start quickly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import output_errors
from xtts_pipeline.evaluation.intelligibility import PhonemeComparison, Recogniser, compare_phonemes
from xtts_pipeline.evaluation.judges import Judgements, Judges
from xtts_pipeline.evaluation.metrics import Sound, SpeechMetrics, measure_speech
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.plots import encode_mel, mel_seconds
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

T = TypeVar("T")

_OTHER_OUTPUT = "choose another --output"


@dataclass(frozen=True)
class SpokenUtterance:
    """One utterance of a split and its speech.

    true_mel: float32 [T, mel_bins]. true_wave: float32 [samples], None without a recording. copy: the wave that the
    run's vocoder makes of the true mel. symbols: the names of the spoken tokens.
    """

    number: int
    entry: UtteranceEntry
    true_mel: np.ndarray
    true_wave: np.ndarray | None
    spoken: SpokenText
    copy: np.ndarray
    symbols: tuple[str, ...]
    synthesis_seconds: float


@dataclass(frozen=True)
class EvaluatedUtterance:
    """One utterance with its metrics and the names of its files: `sounds` and `pictures`, by label.

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
    sounds: Mapping[str, str]
    pictures: Mapping[str, str]
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
            "pictures": list(self.pictures.values()),
        }
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
        return {**rounded, "judges": {label: judgement.to_json() for label, judgement in self.judgements.items()}}


@dataclass(frozen=True)
class Comparison:
    """How utterances are compared: the folder of sounds and pictures, and what measures them.

    griffin_lim: makes copy synthesis too, unless it is the run's vocoder. recogniser, judges: their classes, loaded
    once in each process; None leaves their figures out.
    """

    folder: Path
    audio: AudioConfig
    griffin_lim: GriffinLim | None
    recogniser: Callable[[], Recogniser] | None
    judges: Callable[[], Judges] | None

    def __call__(self, utterance: SpokenUtterance) -> EvaluatedUtterance:
        """Write the sounds and pictures of an utterance and return its figures. Raises OutputError."""
        audio, mel, spoken = self.audio, utterance.true_mel, utterance.spoken
        waves = {"spoken": spoken.wave}
        if utterance.true_wave is not None:
            waves["true"] = utterance.true_wave
        waves["copy"] = utterance.copy
        if self.griffin_lim is not None:
            waves["copy_griffin_lim"] = self.griffin_lim(mel)
        truth, speech = Sound(mel, waves.get("true", utterance.copy)), Sound(spoken.mel, spoken.wave)
        # Numbered, not named by id: an id may hold any character.
        sounds = {label: f"{utterance.number:04d}-{label}.wav" for label in waves}
        with output_errors(self.folder, _OTHER_OUTPUT, names_file=True):
            for label, name in sounds.items():
                write_wave(self.folder / name, waves[label], audio.sample_rate)
        # After the sounds are written, which refuses samples that are not finite.
        phonemes = self.recogniser and compare_phonemes(loaded(self.recogniser), waves, audio.sample_rate)
        judgements = loaded(self.judges).judge(waves, audio.sample_rate) if self.judges else {}
        drawn = {"true": encode_mel(mel, audio), "spoken": encode_mel(spoken.mel, audio)}
        pictures = {label: f"{utterance.number:04d}-{label}.png" for label in drawn}
        with output_errors(self.folder, _OTHER_OUTPUT, names_file=True):
            for label, name in pictures.items():
                (self.folder / name).write_bytes(drawn[label])
        seconds = utterance.synthesis_seconds
        return EvaluatedUtterance(
            entry=utterance.entry,
            metrics=measure_speech(truth, speech, spoken.faults, seconds, audio, phonemes, judgements),
            phonemes=phonemes,
            judgements=judgements,
            has_stopped=spoken.has_stopped,
            text_changes=spoken.text_changes,
            synthesis_seconds=seconds,
            spoken_seconds=spoken.seconds,
            true_seconds=mel_seconds(mel, audio),
            sounds=sounds,
            pictures=pictures,
            symbols=utterance.symbols,
            durations=spoken.durations,
        )


def pooled_real_time_factor(utterances: Sequence[EvaluatedUtterance]) -> float:
    """Return all seconds of synthesis over all seconds of speech."""
    spoken_seconds = sum(utterance.spoken_seconds for utterance in utterances)
    return sum(utterance.synthesis_seconds for utterance in utterances) / max(spoken_seconds, 1e-9)


@cache
def loaded(judge: Callable[[], T]) -> T:
    """Return the judge of this class; each process loads it once. Raises ConfigError if its extra is missing."""
    return judge()

"""The figures of one utterance, and what a split's figures come to."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.attention import repeated_tokens, skipped_tokens, sounding_mask
from xtts_pipeline.evaluation.distortion import mel_cepstral_distortion, mel_cepstrum, warping_path
from xtts_pipeline.evaluation.intelligibility import PhonemeErrors
from xtts_pipeline.evaluation.pitch import find_pitch, pitch_error_cents, voicing_error


@dataclass(frozen=True)
class Sound:
    """A span of sound: natural-log mel frames [T, mel_bins], T at least 1, and the wave of the same span, float32 [samples]."""

    mel: np.ndarray
    wave: np.ndarray


@dataclass(frozen=True)
class Figures:
    """One utterance's figures; docs/evaluation.md says what each means. None: there was nothing to take it from."""

    mel_cepstral_distortion_db: float
    pitch_error_cents: float | None
    voicing_error: float
    duration_ratio: float
    skipped_tokens: int
    repeated_tokens: int
    attention_focus: float
    real_time_factor: float | None
    phoneme_error_rate: float | None = None
    phoneme_error_rate_to_copy: float | None = None
    phoneme_error_rate_of_copy: float | None = None


@dataclass(frozen=True)
class Heard:
    """The phonemes' errors of one utterance: of the speech to the truth and to copy synthesis, and of copy synthesis to the truth."""

    to_truth: PhonemeErrors | None
    to_copy: PhonemeErrors
    of_copy: PhonemeErrors | None


@dataclass(frozen=True)
class Measure:
    """How one of the figures is shown, and which of its values is the worst: that of the largest badness."""

    name: str
    label: str
    decimals: int
    badness: Callable[[float], float]


@dataclass(frozen=True)
class Summary:
    """One figure over the utterances that have it; `worst_at` is the place of the worst among all utterances."""

    measure: Measure
    median: float
    mean: float
    worst: float
    worst_at: int
    utterances: int


def _larger(value: float) -> float:
    return value


def _smaller(value: float) -> float:
    return -value


def _further_from_one(value: float) -> float:
    # Half as long is as bad as twice as long.
    return abs(math.log(value))


MEASURES = (
    Measure("mel_cepstral_distortion_db", "mel-cepstral distortion, dB", 2, _larger),
    Measure("pitch_error_cents", "F0 error, cents", 0, _larger),
    Measure("voicing_error", "voicing error", 3, _larger),
    Measure("duration_ratio", "duration ratio", 3, _further_from_one),
    Measure("skipped_tokens", "skipped tokens", 1, _larger),
    Measure("repeated_tokens", "repeated tokens", 1, _larger),
    Measure("attention_focus", "attention focus", 3, _smaller),
    Measure("real_time_factor", "real-time factor", 3, _larger),
    Measure("phoneme_error_rate", "PER to the truth", 3, _larger),
    Measure("phoneme_error_rate_to_copy", "PER to copy synthesis", 3, _larger),
    Measure("phoneme_error_rate_of_copy", "PER of copy synthesis", 3, _larger),
)


def measure(
    true: Sound,
    spoken: Sound,
    attention: np.ndarray,
    symbols: Sequence[str],
    synthesis_seconds: float,
    audio: AudioConfig,
    heard: Heard | None = None,
) -> Figures:
    """Return the figures of speech against the true sound; attention float [F, S] is to tokens that are written as `symbols`."""
    true_cepstrum, spoken_cepstrum = mel_cepstrum(true.mel), mel_cepstrum(spoken.mel)
    path = warping_path(true_cepstrum, spoken_cepstrum)
    true_hz, spoken_hz = find_pitch(true.wave, audio), find_pitch(spoken.wave, audio)
    sounding = sounding_mask(symbols)
    seconds = len(spoken.wave) / audio.sample_rate
    return Figures(
        mel_cepstral_distortion_db=mel_cepstral_distortion(true_cepstrum, spoken_cepstrum, path),
        pitch_error_cents=pitch_error_cents(true_hz, spoken_hz, path),
        voicing_error=voicing_error(true_hz, spoken_hz, path),
        duration_ratio=len(spoken.mel) / len(true.mel),
        skipped_tokens=len(skipped_tokens(attention, sounding)),
        repeated_tokens=len(repeated_tokens(attention, sounding)),
        # The focus rate of FastSpeech (Y. Ren et al., 2019). If it is low, the token counts above mean nothing.
        attention_focus=float(attention.max(axis=1).mean()),
        real_time_factor=synthesis_seconds / seconds if seconds else None,
        phoneme_error_rate=heard.to_truth.rate if heard and heard.to_truth else None,
        phoneme_error_rate_to_copy=heard.to_copy.rate if heard else None,
        phoneme_error_rate_of_copy=heard.of_copy.rate if heard and heard.of_copy else None,
    )


def summarize(figures: Sequence[Figures]) -> list[Summary]:
    """Return the median, mean and worst of each figure that any utterance has, in the order of MEASURES."""
    summaries = []
    for shown in MEASURES:
        values = {at: value for at, row in enumerate(figures) if (value := vars(row)[shown.name]) is not None}
        if not values:
            continue
        worst_at = max(values, key=lambda at: shown.badness(values[at]))
        known = list(values.values())
        summaries.append(
            Summary(shown, float(np.median(known)), float(np.mean(known)), values[worst_at], worst_at, len(known))
        )
    return summaries

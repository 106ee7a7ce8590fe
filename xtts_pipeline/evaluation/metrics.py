"""Compute the metrics of one utterance and summarize them over a split."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import neg, pos

import numpy as np

from xtts_pipeline.audio.cepstrum import mel_cepstrum
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.distortion import (
    mel_cepstral_distortion,
    mel_variance_ratio,
    warping_path,
)
from xtts_pipeline.evaluation.intelligibility import PhonemeComparison
from xtts_pipeline.evaluation.judges import JudgedSound, Judgements
from xtts_pipeline.evaluation.pitch import (
    find_pitch,
    pitch_error_cents,
    pitch_range_ratio,
    voiced_share_difference,
    voicing_error,
)
from xtts_pipeline.inference.guard import Faults


@dataclass(frozen=True)
class Sound:
    """Natural-log mel frames [T, mel_bins], T at least 1, and the wave of the same span, float32 [samples]."""

    mel: np.ndarray
    wave: np.ndarray


@dataclass(frozen=True)
class SpeechMetrics:
    """The metrics of one utterance, explained in docs/evaluation.md; None where the input of a metric is missing."""

    mel_cepstral_distortion_db: float
    mel_variance_ratio: float | None
    pitch_error_cents: float | None
    pitch_range_ratio: float | None
    voicing_error: float
    voiced_share_difference: float
    duration_ratio: float
    skipped_words: int
    repeated_words: int
    real_time_factor: float | None
    phoneme_error_rate: float | None = None
    phoneme_error_rate_to_copy: float | None = None
    phoneme_error_rate_of_copy: float | None = None
    dnsmos_p808: float | None = None
    dnsmos_overall: float | None = None
    speaker_similarity: float | None = None
    pesq_wideband_of_copy: float | None = None
    stoi_of_copy: float | None = None


@dataclass(frozen=True)
class Metric:
    """How to show a field of SpeechMetrics; the worst value is the one with the largest badness.

    `good` are the least and the largest value that is no failure, None for no bound or no threshold.
    """

    name: str
    label: str
    decimals: int
    badness: Callable[[float], float]
    good: tuple[float | None, float | None] = (None, None)

    def value_of(self, metrics: SpeechMetrics) -> float | None:
        """Return this metric's value."""
        value: float | None = vars(metrics)[self.name]
        return value

    def text_of(self, value: float) -> str:
        """Return a value as people read it, a count without decimals; its means and medians have one."""
        return f"{value:.0f}" if self.decimals == 1 and value == int(value) else f"{value:.{self.decimals}f}"

    def is_good(self, value: float) -> bool:
        """Return whether a value keeps the threshold."""
        low, high = self.good
        return (low is None or low <= value) and (high is None or value <= high)

    @property
    def threshold(self) -> str:
        """The good values in words, empty without a threshold."""
        low, high = self.good
        if low is None:
            return "" if high is None else f"at most {high:g}"
        return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"


@dataclass(frozen=True)
class MetricSummary:
    """One metric over the utterances that have it; `worst_at` is the index of the worst among all utterances."""

    metric: Metric
    median: float
    mean: float
    worst: float
    worst_at: int
    utterances: int


def _further_from_one(value: float) -> float:
    # Half the duration is as bad as twice the duration. A single frame has no variance.
    return abs(math.log(value)) if value else math.inf


METRICS = (
    Metric("mel_cepstral_distortion_db", "mel-cepstral distortion, dB", 2, pos),
    Metric("mel_variance_ratio", "variance of mel bins, ratio", 3, _further_from_one),
    Metric("pitch_error_cents", "F0 error, cents", 0, pos),
    Metric("pitch_range_ratio", "F0 range, ratio", 3, _further_from_one),
    Metric("voicing_error", "voicing error", 3, pos),
    Metric("voiced_share_difference", "voiced share, difference", 3, abs),
    Metric("duration_ratio", "duration ratio", 3, _further_from_one, (0.8, 1.25)),
    Metric("skipped_words", "skipped words", 1, pos, (None, 0)),
    Metric("repeated_words", "repeated words", 1, pos, (None, 0)),
    Metric("real_time_factor", "real-time factor", 3, pos),
    Metric("phoneme_error_rate", "PER to the truth", 3, pos, (None, 0.25)),
    Metric("phoneme_error_rate_to_copy", "PER to copy synthesis", 3, pos, (None, 0.25)),
    Metric("phoneme_error_rate_of_copy", "PER of copy synthesis", 3, pos),
    Metric("dnsmos_p808", "DNSMOS P.808, 1 to 5", 2, neg),
    Metric("dnsmos_overall", "DNSMOS overall, 1 to 5", 2, neg),
    Metric("speaker_similarity", "speaker similarity", 3, neg),
    Metric("pesq_wideband_of_copy", "PESQ-WB of copy synthesis", 2, neg),
    Metric("stoi_of_copy", "STOI of copy synthesis", 3, neg),
)


def measure_speech(
    true: Sound,
    spoken: Sound,
    faults: Faults,
    synthesis_seconds: float,
    audio: AudioConfig,
    phonemes: PhonemeComparison | None = None,
    judgements: Judgements | None = None,
) -> SpeechMetrics:
    """Compare speech with the true sound; `faults` are those that the guard of synthesis found."""
    true_cepstrum, spoken_cepstrum = mel_cepstrum(true.mel), mel_cepstrum(spoken.mel)
    path = warping_path(true_cepstrum, spoken_cepstrum)
    true_hz, spoken_hz = find_pitch(true.wave, audio), find_pitch(spoken.wave, audio)
    seconds = len(spoken.wave) / audio.sample_rate
    rates = {name: errors.rate for name, errors in (phonemes or {}).items()}
    judged, copied = ((judgements or {}).get(label, JudgedSound()) for label in ("spoken", "copy"))
    return SpeechMetrics(
        mel_cepstral_distortion_db=mel_cepstral_distortion(true_cepstrum, spoken_cepstrum, path),
        mel_variance_ratio=mel_variance_ratio(true.mel, spoken.mel),
        pitch_error_cents=pitch_error_cents(true_hz, spoken_hz, path),
        pitch_range_ratio=pitch_range_ratio(true_hz, spoken_hz),
        voicing_error=voicing_error(true_hz, spoken_hz, path),
        voiced_share_difference=voiced_share_difference(true_hz, spoken_hz),
        duration_ratio=len(spoken.mel) / len(true.mel),
        skipped_words=faults.skipped_words,
        repeated_words=faults.repeated_words,
        real_time_factor=synthesis_seconds / seconds if seconds else None,
        phoneme_error_rate=rates.get("to_truth"),
        phoneme_error_rate_to_copy=rates.get("to_copy"),
        phoneme_error_rate_of_copy=rates.get("of_copy"),
        dnsmos_p808=judged.dnsmos_p808,
        dnsmos_overall=judged.dnsmos_overall,
        speaker_similarity=judged.speaker_similarity,
        pesq_wideband_of_copy=copied.pesq_wideband,
        stoi_of_copy=copied.stoi,
    )


def summarize(rows: Sequence[SpeechMetrics]) -> list[MetricSummary]:
    """Return the median, mean and worst of each metric that any utterance has, in the order of METRICS."""
    summaries = []
    for metric in METRICS:
        values = {index: value for index, row in enumerate(rows) if (value := metric.value_of(row)) is not None}
        if not values:
            continue
        worst_at = max(values, key=lambda index: metric.badness(values[index]))
        known = list(values.values())
        summaries.append(
            MetricSummary(
                metric, float(np.median(known)), float(np.mean(known)), values[worst_at], worst_at, len(known)
            )
        )
    return summaries

"""One utterance's figures, and their summary."""

import math
from dataclasses import replace

import numpy as np
import pytest

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.intelligibility import PhonemeErrors
from xtts_pipeline.evaluation.metrics import METRICS, Sound, SpeechMetrics, measure_speech, summarize
from xtts_pipeline.inference.guard import NO_FAULTS, Faults

AUDIO = AudioConfig(sample_rate=8_000, fft_size=256, window_samples=256, hop_samples=128, mel_bins=16, max_hz=4_000.0)
EVEN = SpeechMetrics(
    mel_cepstral_distortion_db=5.0,
    mel_variance_ratio=1.0,
    pitch_error_cents=None,
    pitch_range_ratio=None,
    voicing_error=0.1,
    voiced_share_difference=0.0,
    duration_ratio=1.0,
    skipped_words=0,
    repeated_words=0,
    real_time_factor=0.5,
)


def make_sound(frames: int = 40) -> Sound:
    random = np.random.default_rng(0)
    samples = (frames - 1) * AUDIO.hop_samples
    wave = np.sign(np.sin(2 * np.pi * 150 * np.arange(samples) / AUDIO.sample_rate)).astype(np.float32)
    return Sound(random.normal(-5, 1, (frames, AUDIO.mel_bins)).astype(np.float32), 0.3 * wave)


def test_speech_that_is_the_truth_has_no_error():
    sound = make_sound()

    figures = measure_speech(sound, sound, NO_FAULTS, 0.1, AUDIO)

    assert figures == replace(
        EVEN,
        mel_cepstral_distortion_db=0.0,
        pitch_error_cents=0.0,
        voicing_error=0.0,
        real_time_factor=pytest.approx(0.1 / (39 * 128 / 8_000)),
    )


def test_each_figure_comes_from_what_it_names():
    true, spoken = make_sound(40), make_sound(50)
    phonemes = {"to_truth": PhonemeErrors(2, 8), "to_copy": PhonemeErrors(1, 8), "of_copy": PhonemeErrors(0, 8)}

    figures = measure_speech(true, spoken, Faults(1, 2), 1.0, AUDIO, phonemes)

    assert figures.duration_ratio == 1.25
    assert (figures.skipped_words, figures.repeated_words) == (1, 2)
    assert (figures.phoneme_error_rate, figures.phoneme_error_rate_to_copy, figures.phoneme_error_rate_of_copy) == (
        0.25,
        0.125,
        0.0,
    )


def test_one_frame_of_speech_without_a_sample_still_has_figures():
    figures = measure_speech(make_sound(), make_sound(1), NO_FAULTS, 0.1, AUDIO)

    assert figures.duration_ratio == 1 / 40
    assert figures.pitch_error_cents is None
    assert figures.real_time_factor is None


def test_speech_without_variance_is_the_worst():
    rows = [replace(EVEN, mel_variance_ratio=ratio) for ratio in (0.9, 0.0, 1.3)]
    worst = {summary.metric.name: summary.worst_at for summary in summarize(rows)}

    assert worst["mel_variance_ratio"] == 1


def test_every_figure_is_summarised():
    assert [shown.name for shown in METRICS] == list(vars(EVEN))


def test_a_summary_is_of_the_utterances_that_have_the_figure():
    rows = [
        EVEN,
        replace(EVEN, pitch_error_cents=30.0),
        replace(EVEN, pitch_error_cents=90.0),
        replace(EVEN, pitch_error_cents=33.0),
    ]

    pitch = next(summary for summary in summarize(rows) if summary.metric.name == "pitch_error_cents")

    assert (pitch.median, pitch.mean, pitch.worst, pitch.worst_at, pitch.utterances) == (33.0, 51.0, 90.0, 2, 3)
    assert "phoneme_error_rate" not in {summary.metric.name for summary in summarize(rows)}


@pytest.mark.parametrize(
    ("name", "values", "worst"),
    [
        ("duration_ratio", (1.4, 0.5, 1.9), 0.5),
        ("dnsmos_p808", (0.9, 0.2, 0.5), 0.2),
        ("mel_cepstral_distortion_db", (4.0, 9.0, 5.0), 9.0),
    ],
)
def test_the_worst_is_what_a_listener_would_call_so(name: str, values: tuple[float, ...], worst: float):
    rows = [replace(EVEN, **{name: value}) for value in values]

    summary = next(summary for summary in summarize(rows) if summary.metric.name == name)

    assert summary.worst == worst
    assert values[summary.worst_at] == worst


def test_half_as_long_is_as_bad_as_twice_as_long():
    badness = next(shown.badness for shown in METRICS if shown.name == "duration_ratio")

    assert badness(0.5) == pytest.approx(badness(2.0)) == pytest.approx(math.log(2))

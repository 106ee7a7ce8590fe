"""Mel-cepstral distortion and the path it is taken along."""

import math

import numpy as np
import pytest

from xtts_pipeline.audio.cepstrum import COEFFICIENTS, mel_cepstrum
from xtts_pipeline.evaluation.distortion import (
    mel_cepstral_distortion,
    mel_variance_ratio,
    warping_path,
)

BINS = 80


def random_mel(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(-5, 1, (frames, BINS)).astype(np.float32)


def diagonal(frames: int) -> np.ndarray:
    return np.stack([np.arange(frames)] * 2, axis=1)


def cosine(order: int) -> np.ndarray:
    return np.cos(np.pi * order * (np.arange(BINS) + 0.5) / BINS)


@pytest.mark.parametrize("order", [1, 5, COEFFICIENTS])
def test_a_coefficient_is_the_amplitude_of_its_cosine(order: int):
    cepstrum = mel_cepstrum(-5 + 0.25 * cosine(order)[None])

    assert cepstrum.shape == (1, COEFFICIENTS)
    assert cepstrum[0, order - 1] == pytest.approx(0.25)
    assert np.delete(cepstrum[0], order - 1) == pytest.approx(0, abs=1e-12)


def test_the_distortion_of_one_cosine_is_the_value_worked_out_by_hand():
    true = mel_cepstrum(random_mel(6))
    spoken = mel_cepstrum(random_mel(6) + 0.5 * cosine(3))

    # 10 / ln 10 * sqrt(2 * 0.5^2) = 4.342945 * 0.707107
    assert mel_cepstral_distortion(true, spoken, diagonal(6)) == pytest.approx(3.07093, abs=1e-4)


def test_the_distortion_is_the_spectra_s_root_mean_square_difference_in_db():
    shape = 0.3 * cosine(2) - 0.2 * cosine(7)
    true, spoken = mel_cepstrum(random_mel(4)), mel_cepstrum(random_mel(4) + shape)

    expected_db = 20 / math.log(10) * math.sqrt(np.mean(shape**2))
    assert mel_cepstral_distortion(true, spoken, diagonal(4)) == pytest.approx(expected_db, rel=1e-5)


def test_equal_frames_at_another_loudness_have_no_distortion():
    mel = random_mel(9)
    true, spoken = mel_cepstrum(mel), mel_cepstrum(mel + 2)

    assert mel_cepstral_distortion(true, spoken, warping_path(true, spoken)) == pytest.approx(0, abs=1e-5)


def test_frames_that_are_held_longer_have_no_distortion():
    mel = random_mel(12)
    true, spoken = mel_cepstrum(mel), mel_cepstrum(np.repeat(mel, [1, 3, 1, 2] * 3, axis=0))

    path = warping_path(true, spoken)

    assert mel_cepstral_distortion(true, spoken, path) == pytest.approx(0, abs=1e-6)
    assert path[:, 0].tolist() == np.repeat(np.arange(12), [1, 3, 1, 2] * 3).tolist()


@pytest.mark.parametrize(("true_frames", "spoken_frames"), [(1, 1), (1, 7), (7, 1), (20, 31)])
def test_a_path_leads_from_the_first_frames_to_the_last_by_single_steps(true_frames: int, spoken_frames: int):
    path = warping_path(mel_cepstrum(random_mel(true_frames)), mel_cepstrum(random_mel(spoken_frames, seed=1)))

    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [true_frames - 1, spoken_frames - 1]
    assert {tuple(step) for step in np.diff(path, axis=0).tolist()} <= {(0, 1), (1, 0), (1, 1)}


def test_the_distortion_is_the_same_both_ways():
    true, spoken = mel_cepstrum(random_mel(20)), mel_cepstrum(random_mel(26, seed=1))
    path = warping_path(true, spoken)

    assert mel_cepstral_distortion(spoken, true, path[:, ::-1]) == pytest.approx(
        mel_cepstral_distortion(true, spoken, path)
    )


def test_warping_costs_no_more_than_the_straight_way():
    true, spoken = mel_cepstrum(random_mel(20)), mel_cepstrum(random_mel(20, seed=1))
    costs = [
        np.linalg.norm(true[path[:, 0]] - spoken[path[:, 1]], axis=1).sum()
        for path in (warping_path(true, spoken), diagonal(20))
    ]

    assert costs[0] <= costs[1]


def test_the_variance_of_a_flattened_spectrum_is_that_share_of_the_truth():
    true = random_mel(50)
    flattened = true.mean(axis=0) + 0.5 * (true - true.mean(axis=0))

    assert mel_variance_ratio(true, true) == 1.0
    assert mel_variance_ratio(true, flattened) == pytest.approx(0.25)
    assert mel_variance_ratio(true, random_mel(1)) == 0.0


def test_a_truth_that_never_varies_has_no_ratio_of_variances():
    assert mel_variance_ratio(np.full((4, BINS), -11.5), random_mel(4)) is None

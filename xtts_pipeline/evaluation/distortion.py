"""Compare two mel spectra, whatever their timing.

A path is an array int [P, 2] of (true frame, spoken frame), both ascending. No TensorFlow.
"""

import librosa
import numpy as np

from xtts_pipeline.audio.cepstrum import DECIBELS


def warping_path(true: np.ndarray, spoken: np.ndarray) -> np.ndarray:
    """Return the cheapest path, int [P, 2], through two sequences of vectors, [T, D] and [T', D].

    Dynamic time warping from (0, 0) to both last frames, with Euclidean cost and the equally weighted steps (1, 1),
    (1, 0) and (0, 1) (H. Sakoe and S. Chiba, 1978).
    """
    _, path = librosa.sequence.dtw(true.T, spoken.T)
    result: np.ndarray = path[::-1]
    return result


def mel_cepstral_distortion(true: np.ndarray, spoken: np.ndarray, path: np.ndarray) -> float:
    """Return the mean of 10 / ln 10 * sqrt(2 * sum of squared differences) in dB over a path through two cepstra.

    R. Kubichek, Mel-cepstral distance measure for objective speech quality assessment, 1993. For natural-log magnitudes
    it equals the root mean square difference of the smoothed spectra in dB. Silent frames count like all others.
    """
    differences = true[path[:, 0]] - spoken[path[:, 1]]
    return float(np.mean(DECIBELS * np.sqrt(2 * np.square(differences).sum(axis=1))))


def mel_variance_ratio(true_mel: np.ndarray, spoken_mel: np.ndarray) -> float | None:
    """Return the variance over time of the spoken mel [T', mel_bins] over that of the true one [T, mel_bins].

    The median over the bins, without those that are constant in the truth; None if all are. Below 1 the spectrum is
    smoothed: averaged frames vary less than speech (T. Toda and K. Tokuda, 2007, the global variance).
    """
    true, spoken = (mel.var(axis=0, dtype=np.float64) for mel in (true_mel, spoken_mel))
    varies = true > 0.0
    return float(np.median(spoken[varies] / true[varies])) if varies.any() else None

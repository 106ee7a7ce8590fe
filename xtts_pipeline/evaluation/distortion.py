"""How far the spectrum of spoken frames lies from the true ones, whatever their timing.

Pure NumPy, SciPy and librosa. Every path of this package is an array int [P, 2] of (true frame, spoken frame), both ascending.
"""

import math

import numpy as np
import scipy.fft

COEFFICIENTS = 13
DECIBELS = 10 / math.log(10)


def mel_cepstrum(log_mel: np.ndarray) -> np.ndarray:
    """Return the cepstral coefficients 1 to 13 of natural-log mel frames [T, mel_bins]: float64 [T, 13].

    The DCT-II over the bins, scaled by 2 / mel_bins, so that c[m] is the amplitude of a cosine of m half-periods across the bins
    (S. Davis and P. Mermelstein, 1980; the one-sided cepstrum of SPTK's mcep, on which the constant of the distortion rests).
    Coefficient 0, the loudness, is left out. With fewer than 14 bins there are mel_bins - 1 coefficients.
    """
    spectrum = scipy.fft.dct(log_mel.astype(np.float64), type=2, axis=1)
    cepstrum: np.ndarray = spectrum[:, 1 : 1 + COEFFICIENTS] / log_mel.shape[1]
    return cepstrum


def warping_path(true: np.ndarray, spoken: np.ndarray) -> np.ndarray:
    """Return the cheapest path through two sequences of vectors, [T, D] and [T', D]: int [P, 2], from (0, 0) to both last frames.

    Dynamic time warping with Euclidean cost and the steps (1, 1), (1, 0), (0, 1) of equal weight (H. Sakoe and S. Chiba, 1978).
    """
    # Here: librosa's import costs a second, and most commands warp nothing.
    import librosa

    _, path = librosa.sequence.dtw(true.T, spoken.T)
    result: np.ndarray = path[::-1]
    return result


def mel_cepstral_distortion(true: np.ndarray, spoken: np.ndarray, path: np.ndarray) -> float:
    """Return the mean of 10 / ln 10 * sqrt(2 * sum of squared differences) in dB over a path through two cepstra.

    R. Kubichek, Mel-cepstral distance measure for objective speech quality assessment, 1993. Of magnitudes in natural log this is the
    root mean square difference of the smoothed spectra in dB. Silent frames count like all others.
    """
    differences = true[path[:, 0]] - spoken[path[:, 1]]
    return float(np.mean(DECIBELS * np.sqrt(2 * np.square(differences).sum(axis=1))))

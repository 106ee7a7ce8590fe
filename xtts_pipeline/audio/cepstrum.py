"""The mel cepstrum whose distances are mel-cepstral distortions. NumPy and scipy.fft only."""

import math

import numpy as np
import scipy.fft

COEFFICIENTS = 13
DECIBELS = 10.0 / math.log(10.0)


def mel_cepstrum(log_mel: np.ndarray) -> np.ndarray:
    """Return the cepstral coefficients 1 to 13 of natural-log mel frames [T, mel_bins]: float64 [T, 13].

    The DCT-II over the bins, scaled by 2 / mel_bins: c[m] is the amplitude of a cosine of m half-periods over the bins
    (S. Davis and P. Mermelstein, 1980; the one-sided cepstrum of SPTK's mcep, which the distortion's constant assumes).
    Coefficient 0, the loudness, is left out. Fewer than 14 bins give mel_bins - 1 coefficients.
    """
    spectrum = scipy.fft.dct(log_mel.astype(np.float64), type=2, axis=1)
    cepstrum: np.ndarray = spectrum[:, 1 : 1 + COEFFICIENTS] / log_mel.shape[1]
    return cepstrum

"""Giving predicted spectra back what averaging takes from them.

A network trained on mean errors says the mean of what could be said, whose harmonics are flatter than those of any voice (T. Toda and
K. Tokuda, 2007, "global variance"): the vocoder then makes a hoarse or whispered voice of a low one. What is flattened is still there, so
it is raised again, linearly and frame by frame: what is streamed is what is said whole.
"""

import numpy as np

# Standard deviation of the Gaussian over mel bins that parts the envelope from the harmonics; a formant is several times as wide.
ENVELOPE_BINS = 2.0


def sharpening_matrix(mel_bins: int, sharpness: float) -> np.ndarray:
    """Return float32 [M, M] by which log-mel frames are multiplied from the right: differences from a smooth envelope grow by `sharpness`.

    1 changes nothing, and a frame that is the same in all bins, such as silence, stays what it is.
    """
    bins = np.arange(mel_bins)
    weights = np.exp(-np.square((bins[:, None] - bins[None, :]) / ENVELOPE_BINS) / 2.0)
    # By column: each bin's envelope is an average, at the edges too.
    envelope = weights / weights.sum(axis=0, keepdims=True)
    matrix: np.ndarray = sharpness * np.eye(mel_bins) + (1.0 - sharpness) * envelope
    return matrix.astype(np.float32)

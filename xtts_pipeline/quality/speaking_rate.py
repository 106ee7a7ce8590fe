"""How long each text takes to speak, as the clips themselves say. NumPy only."""

from collections.abc import Sequence

import numpy as np

ROUNDS = 4
# The weight, in clips, of the assumption that all symbols take equally long.
PRIOR_CLIPS = 1.0


def predicted_seconds(texts: Sequence[str], seconds: np.ndarray) -> np.ndarray:
    """Return the seconds that each text should take, float64 [clips]: the sum of a duration for each symbol.

    The durations are a ridge regression of `seconds`, in which clips far from the prediction lose their weight.
    """
    symbols = {symbol: number for number, symbol in enumerate(sorted(set().union(*texts)))}
    counts = np.zeros((len(texts), len(symbols) + 1))
    for row, text in enumerate(texts):
        counts[row, :-1] = np.bincount([symbols[symbol] for symbol in text], minlength=len(symbols))
    counts[:, -1] = 1.0  # what every clip has: its first and last sound
    lengths = counts.sum(axis=1)
    # Per symbol, so that long clips count no more than short ones.
    shares, rates = counts / lengths[:, None], seconds / lengths
    weights = np.ones(len(texts))
    usual = float(np.median(rates))
    fitted = np.full(len(texts), usual)
    for _ in range(ROUNDS):
        errors = rates - fitted
        spread = max(1.4826 * float(np.median(np.abs(errors - np.median(errors)))), 1e-3 * usual)
        weights = 1 / (1 + np.square(errors / (2 * spread)))
        weighted = shares * weights[:, None]
        prior = PRIOR_CLIPS * float(np.square(shares).mean()) * np.eye(len(symbols) + 1)
        extra = np.linalg.solve(shares.T @ weighted + prior, weighted.T @ (rates - usual))
        fitted = np.maximum(usual + shares @ extra, 0.2 * usual)
    predicted: np.ndarray = fitted * lengths
    return predicted

"""Sound piece by piece, from any vocoder.

Pure NumPy; what a stream needs beyond the plain `Vocoder` is said here.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from xtts_pipeline.vocoder.griffin_lim import Vocoder


class WaveStream(Protocol):
    """One wave that is made while its frames still come."""

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames, float [frames, mel_bins], and return the samples that are final now: float32, perhaps none."""

    def finish(self) -> np.ndarray:
        """Return the rest, after which the stream is over; all waves together have (frames - 1) * hop_samples samples."""


@runtime_checkable
class StreamingVocoder(Vocoder, Protocol):
    """A vocoder that can begin before it has seen the end."""

    def stream(self) -> WaveStream:
        """Return a new stream, for one wave."""


class HeldBackStream:
    """What a vocoder without streaming gets: every frame is held back until the last is there."""

    def __init__(self, vocoder: Vocoder) -> None:
        self._vocoder = vocoder
        self._frames: list[np.ndarray] = []

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames and return no samples."""
        self._frames.extend(log_mel)
        return np.zeros(0, np.float32)

    def finish(self) -> np.ndarray:
        """Return the whole wave."""
        return self._vocoder(np.stack(self._frames)) if self._frames else np.zeros(0, np.float32)


def open_stream(vocoder: Vocoder) -> WaveStream:
    """Return the vocoder's own stream, or one that holds everything back where it has none."""
    return vocoder.stream() if isinstance(vocoder, StreamingVocoder) else HeldBackStream(vocoder)

"""Stream sound from any vocoder: the protocols, and a fallback for vocoders that cannot stream. Pure NumPy."""

from typing import Protocol, runtime_checkable

import numpy as np

from xtts_pipeline.vocoder.griffin_lim import Vocoder


class WaveStream(Protocol):
    """One wave, computed while its frames arrive."""

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames, float [frames, mel_bins]; return the samples that are now final, float32 [n]."""

    def finish(self) -> np.ndarray:
        """End the stream and return its rest; all pieces together have (frames - 1) * hop_samples samples."""


@runtime_checkable
class StreamingVocoder(Vocoder, Protocol):
    """A vocoder that can start before it has all frames."""

    def stream(self) -> WaveStream:
        """Return a new stream, for one wave."""


class BufferedStream:
    """The stream of a vocoder that cannot stream: it buffers all frames until the end."""

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
    """Return the vocoder's own stream, or a buffering one if it has none."""
    return vocoder.stream() if isinstance(vocoder, StreamingVocoder) else BufferedStream(vocoder)

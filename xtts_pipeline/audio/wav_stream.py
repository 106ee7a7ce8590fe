"""Write a WAV file that can be played while it grows."""

import struct
from typing import BinaryIO

import numpy as np

from xtts_pipeline.errors import AudioError, Reason

HEADER_BYTES = 44
BYTES_PER_SAMPLE = 2
# What players take for "until the stream ends", where a size cannot be written afterwards.
UNKNOWN_BYTES = 0xFFFFFFFF


class WavStream:
    """A mono 16-bit WAV file to which samples are added; who opened the file closes it.

    With `can_seek` the file is this wave alone, and its header is true after every `write`; without, as in a pipe, the header says that
    the length is not known. Samples over full scale are clipped: how loud the rest will be is not known yet.
    """

    def __init__(self, file: BinaryIO, sample_rate: int, *, can_seek: bool) -> None:
        """Write the header."""
        self._file, self._sample_rate = file, sample_rate
        self._data_bytes = 0
        self._can_seek = can_seek
        self._write_header()
        file.flush()

    def write(self, wave: np.ndarray) -> None:
        """Add samples, float [samples]. Raises AudioError if one is not finite."""
        if not np.isfinite(wave).all():
            raise AudioError(
                Reason.AUDIO_NOT_FINITE, "the speech holds samples that are not finite; the file ends before them"
            )
        samples = np.round(np.clip(wave, -1.0, 1.0) * 32_767).astype("<i2")
        self._file.write(samples.tobytes())
        self._data_bytes += BYTES_PER_SAMPLE * len(samples)
        if self._can_seek:
            self._file.seek(0)
            self._write_header()
            self._file.seek(HEADER_BYTES + self._data_bytes)
        self._file.flush()

    @property
    def seconds(self) -> float:
        """Duration of what was written."""
        return self._data_bytes / BYTES_PER_SAMPLE / self._sample_rate

    def _write_header(self) -> None:
        data_bytes = self._data_bytes if self._can_seek else UNKNOWN_BYTES
        riff_bytes = min(HEADER_BYTES - 8 + data_bytes, UNKNOWN_BYTES)
        rate = self._sample_rate
        pcm = struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * BYTES_PER_SAMPLE, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
        self._file.write(
            b"RIFF" + struct.pack("<I", riff_bytes) + b"WAVEfmt " + pcm + b"data" + struct.pack("<I", data_bytes)
        )

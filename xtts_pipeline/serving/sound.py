"""Encode speech part by part in the formats of OpenAI's API: WAV and PCM by hand, FLAC, MP3 and Opus by libsndfile."""

import io
from typing import BinaryIO, cast

import numpy as np
import soundfile
import soxr

from xtts_pipeline.audio.save import WavStream, clip_to_int16

# OpenAI's clients play raw samples at this rate. MP3 and Opus have it too, and lack many others.
PCM_RATE = 24_000
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": f"audio/pcm;rate={PCM_RATE}",
}
# From a constant bit rate, here 64 kbit/s at 24 kHz, players know the length of an MP3 that does not give it.
MP3_OPTIONS = {"bitrate_mode": "CONSTANT", "compression_level": 0.6}
_LIBRARY_FORMATS = {"mp3": ("MP3", "MPEG_LAYER_III"), "opus": ("OGG", "OPUS"), "flac": ("FLAC", "PCM_16")}
_RATES = {
    "pcm": (PCM_RATE,),
    "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000),
    "opus": (8_000, 12_000, 16_000, 24_000, 48_000),
}


def available_formats() -> list[str]:
    """Return the names of MEDIA_TYPES that this machine's libsndfile can write."""
    return [
        name for name in MEDIA_TYPES if name not in _LIBRARY_FORMATS or soundfile.check_format(*_LIBRARY_FORMATS[name])
    ]


class SoundEncoder:
    """Encodes one speech. `encode` returns the bytes that are ready, `finish` the rest."""

    def __init__(self, name: str, sample_rate: int) -> None:
        rates = _RATES.get(name, (sample_rate,))
        rate = sample_rate if sample_rate in rates else PCM_RATE
        self._name = name
        self._resampler = None if rate == sample_rate else soxr.ResampleStream(sample_rate, rate, 1, dtype="float32")
        self._output = _GrowingFile()
        self._wav = WavStream(cast("BinaryIO", self._output), rate, can_seek=False) if name == "wav" else None
        self._file = None
        if name in _LIBRARY_FORMATS:
            kind, subtype = _LIBRARY_FORMATS[name]
            options = MP3_OPTIONS if name == "mp3" else {}
            self._file = soundfile.SoundFile(self._output, "w", rate, 1, subtype, format=kind, **options)

    def encode(self, wave: np.ndarray) -> bytes:
        """Add samples, float32 [samples]. Raises AudioError if one is not finite."""
        if self._resampler is not None:
            wave = self._resampler.resample_chunk(wave)
        self._write(wave)
        return self._take()

    def finish(self) -> bytes:
        """End the sound."""
        if self._resampler is not None:
            self._write(self._resampler.resample_chunk(np.zeros(0, np.float32), last=True))
        if self._file is not None:
            self._file.close()
        return self._take()

    def _write(self, wave: np.ndarray) -> None:
        if self._wav is not None:
            self._wav.write(wave)
        elif self._file is not None:
            self._file.write(clip_to_int16(wave))
        else:
            self._output.write(clip_to_int16(wave).tobytes())

    def _take(self) -> bytes:
        is_first, content = self._output.taken_bytes == 0, self._output.take()
        if self._name == "mp3" and is_first:
            # LAME's first frame is empty: it would be filled with the length at the end. Start at the next frame.
            start = content.find(content[:2], 4)
            return content[start:] if start > 0 else b""
        return content


class _GrowingFile(io.RawIOBase):
    """A file that is sent while it is written: what a library goes back to overwrite has been sent, and stays."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self._position = self._size = 0
        self._content = bytearray()

    def take(self) -> bytes:
        """Return what was added since the last call."""
        content = bytes(self._content)
        self._content.clear()
        self.taken_bytes += len(content)
        return content

    def write(self, content: object) -> int:
        """Add bytes at the end; those elsewhere are dropped."""
        data = bytes(content)  # type: ignore[call-overload]  # any buffer
        if self._position == self._size:
            self._content += data
            self._size += len(data)
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as libraries do to fill a header at the end."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

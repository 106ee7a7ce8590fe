"""Write mono sound files, whole and atomic, or 16-bit WAV files that grow while they are played."""

import io
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile

from xtts_pipeline.errors import AudioError, OutputError, Reason
from xtts_pipeline.system.atomic_files import write_output

HEADER_BYTES = 44
BYTES_PER_SAMPLE = 2
# Players read this size as "until the stream ends".
UNKNOWN_BYTES = 0xFFFFFFFF
# 32,767 and not 32,768: the largest positive sample that 16 bits hold.
FULL_SCALE_INT16 = 32_767
# libsndfile's names of the formats, by suffix; the first is also that of a file without a suffix.
SOUND_FORMATS = {".wav": "WAV", ".flac": "FLAC", ".mp3": "MP3", ".ogg": "OGG"}
# libsndfile's Vorbis encoder keeps a block on the stack.
BLOCK_SAMPLES = 65_536


def write_wave(path: Path, wave: np.ndarray, sample_rate: int) -> None:
    """Write float samples, [samples], to a sound file, as `write_output` does.

    Raises what `encode_wave` does, and OSError.
    """
    write_output(path, encode_wave(path, wave, sample_rate))


def encode_wave(path: Path, wave: np.ndarray, sample_rate: int) -> bytes:
    """Return float samples, [samples], as a sound file of the format that the suffix of `path` names.

    The suffix is one of SOUND_FORMATS; WAV and FLAC have 16 bits. A wave with a peak over 1 is scaled to a peak of 1
    rather than clipped. Raises AudioError if a sample is not finite, OutputError for one that the format cannot hold.
    """
    peak = float(np.abs(wave).max(initial=0.0))
    if not np.isfinite(peak):
        raise AudioError(
            Reason.AUDIO_NOT_FINITE, f"{path}: the wave holds samples that are not finite; nothing was written"
        )
    samples = np.round(wave * (FULL_SCALE_INT16 / max(peak, 1.0))).astype("<i2")
    name = SOUND_FORMATS.get(path.suffix.lower(), "WAV")
    if name == "WAV":
        return _header(samples.nbytes, sample_rate) + samples.tobytes()
    if not len(samples):
        raise OutputError(f"{path}: libsndfile writes no {name} without samples; name a .wav file")
    encoded = io.BytesIO()
    try:
        with soundfile.SoundFile(encoded, "w", sample_rate, 1, format=name) as file:
            for start in range(0, len(samples), BLOCK_SAMPLES):
                file.write(samples[start : start + BLOCK_SAMPLES])
    except soundfile.LibsndfileError as error:
        problem = f"libsndfile writes no {name} of {sample_rate} Hz ({error.error_string})"
        raise OutputError(f"{path}: {problem}; name a .wav file") from None
    return encoded.getvalue()


class WavStream:
    """A WAV file to which samples are added; the caller opens and closes the file.

    With `can_seek` the file holds this wave alone, and its header is correct after every `write`. Without, as in a
    pipe, the header says that the length is unknown. Samples over full scale are clipped, since the peak of what
    follows is unknown.
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
        samples = clip_to_int16(wave)
        self._file.write(samples.tobytes())
        self._data_bytes += BYTES_PER_SAMPLE * len(samples)
        if self._can_seek:
            self._file.seek(0)
            self._write_header()
            self._file.seek(HEADER_BYTES + self._data_bytes)
        self._file.flush()

    @property
    def seconds(self) -> float:
        """Duration of the samples written."""
        return self._data_bytes / BYTES_PER_SAMPLE / self._sample_rate

    def _write_header(self) -> None:
        self._file.write(_header(self._data_bytes if self._can_seek else UNKNOWN_BYTES, self._sample_rate))


def clip_to_int16(wave: np.ndarray) -> np.ndarray:
    """Return float samples as int16, clipped at full scale. Raises AudioError if one is not finite."""
    if not np.isfinite(wave).all():
        raise AudioError(
            Reason.AUDIO_NOT_FINITE, "the speech holds samples that are not finite; the file ends before them"
        )
    samples: np.ndarray = np.round(np.clip(wave, -1.0, 1.0) * FULL_SCALE_INT16).astype("<i2")
    return samples


def _header(data_bytes: int, sample_rate: int) -> bytes:
    # A wave over 4 GiB has no size in this format; players read it until it ends.
    data_bytes, riff_bytes = (min(size, UNKNOWN_BYTES) for size in (data_bytes, HEADER_BYTES - 8 + data_bytes))
    byte_rate = sample_rate * BYTES_PER_SAMPLE
    pcm = struct.pack("<IHHIIHH", 16, 1, 1, sample_rate, byte_rate, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
    return b"RIFF" + struct.pack("<I", riff_bytes) + b"WAVEfmt " + pcm + b"data" + struct.pack("<I", data_bytes)

"""Write waves as sound files that are either whole or not there."""

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import soundfile

from xtts_pipeline.errors import AudioError, OutputError, Reason


def write_wave(path: Path, wave: np.ndarray, sample_rate: int) -> None:
    """Write float samples, [samples], as a mono 16-bit WAV file: first beside it under another name, then renamed.

    A link is followed, and what is no file, such as a pipe, is written to as it is. A wave whose peak is over 1 is scaled to a peak of 1:
    louder than the file can hold, it would be clipped. Raises AudioError if a sample is not finite, OutputError if the file cannot be
    written.
    """
    peak = float(np.abs(wave).max(initial=0.0))
    if not np.isfinite(peak):
        raise AudioError(
            Reason.AUDIO_NOT_FINITE, f"{path}: the wave holds samples that are not finite; nothing was written"
        )
    # 32,767 and not 32,768: the largest positive sample that 16 bits hold.
    samples = np.round(wave * (32_767 / max(peak, 1.0))).astype(np.int16)
    encoded = io.BytesIO()
    soundfile.write(encoded, samples, sample_rate, format="WAV", subtype="PCM_16")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(encoded.getbuffer())
        else:
            _replace(path.resolve(), encoded.getbuffer())
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that exists and is writable"
        ) from None


def _replace(path: Path, content: memoryview) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()

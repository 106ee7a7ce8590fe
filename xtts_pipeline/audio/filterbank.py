"""The mel filters, and warnings about filters that are always silent and windows too short for low voices.

NumPy only: a command that prints the warnings does not wait for the import of scipy.fft.
"""

import math
from functools import lru_cache

import numpy as np

from xtts_pipeline.config.schema import AudioConfig

SLANEY_LINEAR_HZ = 200 / 3  # one mel below the corner
SLANEY_CORNER_HZ = 1_000.0
SLANEY_LOG_STEP = math.log(6.4) / 27  # natural log of the growth per mel above the corner

# Where mels cannot tell pitches as low as this, low voices are read an octave too high.
NEEDED_PITCH_HZ = 80.0


@lru_cache(maxsize=8)
def mel_filterbank(audio: AudioConfig) -> np.ndarray:
    """Return triangular filters of unit area on Slaney's mel scale, float32 [mel_bins, 1 + fft_size // 2], read-only.

    Equal to `librosa.filters.mel`: linear to 1 kHz, logarithmic above (M. Slaney, Auditory Toolbox, 1998).
    """
    mels = np.linspace(_hz_to_mel(audio.min_hz), _hz_to_mel(audio.max_hz), audio.mel_bins + 2)
    corners_hz = _mel_to_hz(mels)
    bins_hz = np.fft.rfftfreq(audio.fft_size, 1 / audio.sample_rate)
    widths_hz = np.diff(corners_hz)
    slopes = corners_hz[:, None] - bins_hz[None, :]
    rising = -slopes[:-2] / widths_hz[:-1, None]
    falling = slopes[2:] / widths_hz[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    filters *= (2 / (corners_hz[2:] - corners_hz[:-2]))[:, None]
    result: np.ndarray = filters.astype(np.float32)
    result.flags.writeable = False
    return result


def hz_to_bin(hz: float, audio: AudioConfig) -> float:
    """Return the mel bin whose filter is centred on a frequency, as a fraction between two bins."""
    low, high = _hz_to_mel(audio.min_hz), _hz_to_mel(audio.max_hz)
    return (audio.mel_bins + 1) * (_hz_to_mel(hz) - low) / (high - low) - 1


def bin_to_hz(bins: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return the frequency on which the filters of mel bins are centred, in Hz."""
    low, high = _hz_to_mel(audio.min_hz), _hz_to_mel(audio.max_hz)
    return _mel_to_hz(low + (high - low) * (bins + 1) / (audio.mel_bins + 1))


def describe_silent_filters(audio: AudioConfig) -> str | None:
    """Return a line about filters that lie between two FFT bins and are always silent, or None if all are sound."""
    silent = np.flatnonzero(~mel_filterbank(audio).any(axis=1))
    if silent.size == 0:
        return None
    remedy = "use fewer mel_bins, a higher max_hz or a larger fft_size"
    which = f"number {silent[0]}" if silent.size == 1 else f"{silent.size} between {silent[0]} and {silent[-1]}"
    found = (
        f"audio.mel_bins={audio.mel_bins} from {audio.min_hz:g} to {audio.max_hz:g} Hz with fft_size={audio.fft_size}"
    )
    return f"{found}: {which} of the mel filters hold no FFT bin and are always silent; {remedy}"


def lowest_hz_of_window(audio: AudioConfig) -> float:
    """Return the pitch of two periods a window, the lowest whose harmonics a Hann window tells apart."""
    return 2 * audio.sample_rate / audio.window_samples


def describe_short_window(audio: AudioConfig) -> str | None:
    """Return a line about a window that is too short for low voices, or None."""
    lowest_hz = lowest_hz_of_window(audio)
    if lowest_hz <= NEEDED_PITCH_HZ:
        return None
    found = f"audio.window_samples={audio.window_samples} at {audio.sample_rate} Hz"
    remedy = "raise fft_size and window_samples"
    return f"{found}: the window is too short for low voices, under {lowest_hz:.0f} Hz; {remedy}"


def _hz_to_mel(hz: float) -> float:
    if hz < SLANEY_CORNER_HZ:
        return hz / SLANEY_LINEAR_HZ
    return SLANEY_CORNER_HZ / SLANEY_LINEAR_HZ + math.log(hz / SLANEY_CORNER_HZ) / SLANEY_LOG_STEP


def _mel_to_hz(mels: np.ndarray) -> np.ndarray:
    corner = SLANEY_CORNER_HZ / SLANEY_LINEAR_HZ
    return np.where(
        mels < corner, mels * SLANEY_LINEAR_HZ, SLANEY_CORNER_HZ * np.exp(SLANEY_LOG_STEP * (mels - corner))
    )

"""Whether the voice rises and falls where the true one does: fundamental frequency and voicing along a path of frames."""

import numpy as np

from xtts_pipeline.audio.lengths import mel_frame_count
from xtts_pipeline.config.schema import AudioConfig

LOWEST_HZ, HIGHEST_HZ = 60.0, 500.0
CENTS_PER_OCTAVE = 1200.0


def find_pitch(wave: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return the fundamental frequency in Hz, NaN where unvoiced: float64 [1 + samples // hop_samples], at the mel's frames.

    Probabilistic YIN (M. Mauch and S. Dixon, 2014), librosa's defaults but for the range of 60 to 500 Hz. A wave without samples has one
    unvoiced frame.
    """
    if not wave.any():
        return np.full(mel_frame_count(len(wave), audio.sample_rate, audio), np.nan)
    import librosa

    # Four periods of the lowest pitch: half a frame is compared with itself at up to one period's distance.
    shortest = 4 * audio.sample_rate / LOWEST_HZ
    frame_samples = 1 << int(np.ceil(np.log2(shortest)))
    pitch_hz, _, _ = librosa.pyin(
        wave.astype(np.float64),
        fmin=LOWEST_HZ,
        fmax=min(HIGHEST_HZ, audio.sample_rate / 4),
        sr=audio.sample_rate,
        frame_length=frame_samples,
        hop_length=audio.hop_samples,
    )
    result: np.ndarray = pitch_hz
    return result


def along(pitch_hz: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return the pitch at frames of the mel; a wave that ends before its last frame keeps its last value."""
    values: np.ndarray = pitch_hz[np.minimum(frames, len(pitch_hz) - 1)]
    return values


def pitch_error_cents(true_hz: np.ndarray, spoken_hz: np.ndarray, path: np.ndarray) -> float | None:
    """Return the root mean square difference in cents over the pairs of a path where both are voiced; None where no pair is.

    100 cents are a semitone, so the figure says the same of a low voice and of a high one.
    """
    true, spoken = along(true_hz, path[:, 0]), along(spoken_hz, path[:, 1])
    voiced = np.isfinite(true) & np.isfinite(spoken)
    if not voiced.any():
        return None
    cents = CENTS_PER_OCTAVE * np.log2(spoken[voiced] / true[voiced])
    return float(np.sqrt(np.mean(np.square(cents))))


def voicing_error(true_hz: np.ndarray, spoken_hz: np.ndarray, path: np.ndarray) -> float:
    """Return the share of a path's pairs where one is voiced and the other is not, 0 to 1."""
    true, spoken = along(true_hz, path[:, 0]), along(spoken_hz, path[:, 1])
    return float(np.mean(np.isfinite(true) != np.isfinite(spoken)))

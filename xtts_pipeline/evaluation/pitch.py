"""Compare fundamental frequency and voicing along a warping path of frames. No TensorFlow."""

import librosa
import numpy as np

from xtts_pipeline.config.schema import AudioConfig

LOWEST_HZ, HIGHEST_HZ = 60.0, 500.0
CENTS_PER_OCTAVE = 1200.0
MIDDLE_PERCENTILES = (10, 90)


def find_pitch(wave: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return the fundamental frequency at the mel's frames in Hz, NaN where unvoiced: float64 [1 + samples // hop].

    Probabilistic YIN (M. Mauch and S. Dixon, 2014) with librosa's defaults, but from 60 to 500 Hz. An empty wave has
    one unvoiced frame.
    """
    if not wave.any():
        return np.full(1 + len(wave) // audio.hop_samples, np.nan)
    # Four periods of the lowest pitch: YIN compares half a frame with itself, shifted by up to one period.
    shortest = 4 * audio.sample_rate / LOWEST_HZ
    frame_samples = 1 << int(np.ceil(np.log2(shortest)))
    pitch_hz, _, _ = librosa.pyin(
        wave.astype(np.float64),
        fmin=LOWEST_HZ,
        fmax=HIGHEST_HZ,
        sr=audio.sample_rate,
        frame_length=frame_samples,
        hop_length=audio.hop_samples,
    )
    result: np.ndarray = pitch_hz
    return result


def pitch_at(pitch_hz: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return the pitch at mel frames; frames after the last pitch value have that value."""
    values: np.ndarray = pitch_hz[np.minimum(frames, len(pitch_hz) - 1)]
    return values


def pitch_error_cents(true_hz: np.ndarray, spoken_hz: np.ndarray, path: np.ndarray) -> float | None:
    """Return the root mean square difference in cents (100 a semitone) over the pairs of a path where both are voiced.

    None without such a pair. Cents make low and high voices comparable.
    """
    true, spoken = pitch_at(true_hz, path[:, 0]), pitch_at(spoken_hz, path[:, 1])
    voiced = np.isfinite(true) & np.isfinite(spoken)
    if not voiced.any():
        return None
    cents = CENTS_PER_OCTAVE * np.log2(spoken[voiced] / true[voiced])
    return float(np.sqrt(np.mean(np.square(cents))))


def pitch_range_ratio(true_hz: np.ndarray, spoken_hz: np.ndarray) -> float | None:
    """Return the range of the speech's pitch over that of the truth: below 1 if the speech is monotonous.

    The range is that of the middle 80% of the voiced frames, in octaves, so that a few octave errors do not count. None
    if the truth has no range, or the speech no voiced frame.
    """
    true, spoken = (np.log2(pitch_hz[np.isfinite(pitch_hz)]) for pitch_hz in (true_hz, spoken_hz))
    if not len(true) or not len(spoken):
        return None
    true_range, spoken_range = (float(np.ptp(np.percentile(octaves, MIDDLE_PERCENTILES))) for octaves in (true, spoken))
    return spoken_range / true_range if true_range else None


def voicing_error(true_hz: np.ndarray, spoken_hz: np.ndarray, path: np.ndarray) -> float:
    """Return the share, 0 to 1, of a path's pairs where one is voiced and the other is not."""
    true, spoken = pitch_at(true_hz, path[:, 0]), pitch_at(spoken_hz, path[:, 1])
    return float(np.mean(np.isfinite(true) != np.isfinite(spoken)))


def voiced_share_difference(true_hz: np.ndarray, spoken_hz: np.ndarray) -> float:
    """Return the share of voiced frames of the speech less that of the truth: below 0 if the speech is hoarse."""
    return float(np.isfinite(spoken_hz).mean() - np.isfinite(true_hz).mean())

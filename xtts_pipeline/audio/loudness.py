"""Normalise the loudness of clips. NumPy only, except for LUFS, which pyloudnorm measures."""

import numpy as np

from xtts_pipeline.config.schema import AudioConfig

# ITU-R BS.1770-4 measures blocks of 0.4 s; a shorter clip has no block.
LUFS_MIN_SECONDS = 0.4


def normalize_loudness(wave: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return the wave scaled so that its level is `audio.normalize_to_db`: float32 [samples].

    The level is the largest magnitude (`peak`), the root mean square (`rms`, both in dB relative to full scale) or the
    integrated loudness of ITU-R BS.1770-4 (`lufs`; clips under 0.4 s are repeated until they are long enough). The gain
    stops at a peak of 1, so nothing is clipped. Silence is returned unchanged; for `lufs`, that is all below -70 LUFS.
    """
    if audio.normalize == "none":
        return wave
    peak = max(float(wave.max()), -float(wave.min()))
    level_db = _level_db(wave, peak, audio)
    if peak == 0.0 or not np.isfinite(level_db):
        return wave
    gain = 10 ** ((audio.normalize_to_db - level_db) / 20)
    return wave * np.float32(min(gain, 1 / peak))


def _level_db(wave: np.ndarray, peak: float, audio: AudioConfig) -> float:
    if audio.normalize == "peak":
        return 20 * float(np.log10(max(peak, 1e-12)))
    if audio.normalize == "rms":
        return 10 * float(np.log10(max(float(np.mean(np.square(wave, dtype=np.float64))), 1e-24)))
    # Imported here: its scipy.signal would add 0.5 s to the start of every worker.
    import pyloudnorm

    repeats = int(np.ceil(LUFS_MIN_SECONDS * audio.sample_rate / len(wave)))
    long_enough = np.tile(wave, repeats) if repeats > 1 else wave
    return float(pyloudnorm.Meter(audio.sample_rate).integrated_loudness(long_enough.astype(np.float64)))

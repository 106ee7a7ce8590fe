"""Measure the sound of one clip: level, clipping, noise, silence, spectrum.

NumPy and SciPy only; knows neither texts nor other clips.
"""

from dataclasses import dataclass

import numpy as np
import scipy.fft

from xtts_pipeline.audio.mel import frame_energies_db
from xtts_pipeline.config.schema import AudioConfig

# A frame is silent this far below the clip's speech, or near the clip's noise if that is louder.
SILENCE_BELOW_SPEECH_DB, SILENCE_ABOVE_NOISE_DB = 35.0, 6.0
# Noise that comes nearer to the speech than this hides every pause.
LEAST_SPEECH_ABOVE_SILENCE_DB = 12.0
SPEECH_PERCENTILE, NOISE_PERCENTILE = 95.0, 5.0
# Speech is at most this far below the loudest frame: in a clip that is nearly all silence, the percentile is noise.
SPEECH_BELOW_LOUDEST_DB = 20.0
# A sample this near to the clip's own peak counts as cut off: a clip may be made quieter after it was clipped.
CUT_OFF_SHARE_OF_PEAK = 0.99
CEPSTRA = 13
CEPSTRUM_SECONDS = 0.023
_NATURAL_LOG_TO_DB = 20 / np.log(10)
SMALLEST = 1e-6  # -120 dB


@dataclass(frozen=True)
class Clipping:
    """The peak of a clip in dBFS, and the share of its samples near this peak."""

    peak_db: float
    share: float


def measure_clipping(wave: np.ndarray) -> Clipping:
    """Return the clipping of a wave, float [samples], as its file holds it: resampling rounds what was cut off."""
    magnitudes = np.abs(wave)
    peak = float(magnitudes.max(initial=0.0))
    share = float(np.mean(magnitudes >= CUT_OFF_SHARE_OF_PEAK * peak)) if peak else 0.0
    return Clipping(20 * float(np.log10(max(peak, SMALLEST))), share)


@dataclass(frozen=True)
class SoundMeasures:
    """The measures of one clip's sound.

    leading_silence, trailing_silence, longest_pause: seconds. level_db: RMS of the frames that are not silent, in dBFS;
    this and `clipping` are None without a wave. spectrum: mean mel of these frames in dB, float32 [mel_bins].
    cepstra: float16 [steps, CEPSTRA], one step each `CEPSTRUM_SECONDS`.
    """

    seconds: float
    frames: int
    leading_silence: float
    trailing_silence: float
    longest_pause: float
    snr_db: float
    level_db: float | None
    clipping: Clipping | None
    spectrum: np.ndarray
    cepstra: np.ndarray


def measure_sound(
    mel: np.ndarray, wave: np.ndarray | None, audio: AudioConfig, clipping: Clipping | None = None
) -> SoundMeasures:
    """Return the measures of a natural-log mel, [frames, mel_bins], and of its wave, float [samples]."""
    mel = mel.astype(np.float32)
    frame_seconds = audio.frame_seconds
    energy_db = frame_energies_db(mel)
    noise_db, speech_db = np.percentile(energy_db, (NOISE_PERCENTILE, SPEECH_PERCENTILE))
    speech_db = max(speech_db, energy_db.max() - SPEECH_BELOW_LOUDEST_DB)
    is_silent = energy_db < _silence_db(noise_db, speech_db)
    leading, trailing, pause = _silent_runs(is_silent)
    is_loud = ~is_silent
    return SoundMeasures(
        seconds=len(mel) * frame_seconds if wave is None else len(wave) / audio.sample_rate,
        frames=len(mel),
        leading_silence=leading * frame_seconds,
        trailing_silence=trailing * frame_seconds,
        longest_pause=pause * frame_seconds,
        # As NIST's stnr: a high percentile of the frames' energies is speech, a low one is noise.
        snr_db=float(speech_db - noise_db),
        level_db=None if wave is None else _level_db(wave, is_loud, audio.hop_samples),
        clipping=clipping,
        spectrum=mel[is_loud].mean(axis=0) * np.float32(_NATURAL_LOG_TO_DB),
        cepstra=_cepstra(mel, max(1, round(CEPSTRUM_SECONDS / frame_seconds))),
    )


def _silence_db(noise_db: float, speech_db: float) -> float:
    threshold = max(speech_db - SILENCE_BELOW_SPEECH_DB, noise_db + SILENCE_ABOVE_NOISE_DB)
    return float(min(threshold, speech_db - LEAST_SPEECH_ABOVE_SILENCE_DB))


def _silent_runs(is_silent: np.ndarray) -> tuple[int, int, int]:
    """Return the silent frames before the first loud one, those after the last, and the longest run between."""
    loud = np.flatnonzero(~is_silent)
    return int(loud[0]), len(is_silent) - 1 - int(loud[-1]), int(np.diff(loud).max(initial=1)) - 1


def _level_db(wave: np.ndarray, is_loud: np.ndarray, hop_samples: int) -> float:
    hops = min(len(is_loud), len(wave) // hop_samples)
    squares = np.square(wave[: hops * hop_samples].reshape(hops, hop_samples), dtype=np.float32).mean(axis=1)
    loud = squares[is_loud[:hops]]
    return 10 * float(np.log10(max(float(loud.mean()) if len(loud) else 0.0, SMALLEST**2)))


def _cepstra(mel: np.ndarray, step: int) -> np.ndarray:
    """Return the mel's cepstra, averaged over `step` frames, float16 [steps, CEPSTRA]."""
    steps = max(1, len(mel) // step)
    means = mel[: steps * step].reshape(steps, -1, mel.shape[1]).mean(axis=1)
    cepstra: np.ndarray = scipy.fft.dct(means, axis=1, norm="ortho")[:, :CEPSTRA].astype(np.float16)
    return cepstra

"""Compute the log-mel of a WAV file with soundfile and librosa, as the baselines do."""

from pathlib import Path

import librosa
import numpy as np
import soundfile

from xtts_pipeline.config.schema import AudioConfig


def librosa_log_mel(path: Path | str, audio: AudioConfig) -> np.ndarray:
    """Return the natural-log mel, float32 [1 + samples // hop, mel_bins], of the mixed and resampled wave."""
    wave, rate = soundfile.read(path, dtype="float32")
    if wave.ndim > 1:
        wave = wave.mean(axis=1)
    if rate != audio.sample_rate:
        wave = librosa.resample(wave, orig_sr=rate, target_sr=audio.sample_rate, res_type="soxr_hq")
    return log_mel_of(wave, audio)


def log_mel_of(wave: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return the natural-log mel of a wave at the sample rate of `audio`, in the wave's precision."""
    mel = librosa.feature.melspectrogram(
        y=wave,
        sr=audio.sample_rate,
        n_fft=audio.fft_size,
        hop_length=audio.hop_samples,
        win_length=audio.window_samples,
        n_mels=audio.mel_bins,
        fmin=audio.min_hz,
        fmax=audio.max_hz,
        power=1.0,
    )
    log_mel: np.ndarray = np.log(np.maximum(mel.T, audio.floor))
    return log_mel

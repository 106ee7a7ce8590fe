"""A made-up voice, and audio settings for it."""

import numpy as np

from xtts_pipeline.config.schema import AudioConfig

AUDIO = AudioConfig()
LAYOUTS = [
    AUDIO,
    AudioConfig(hop_samples=200, window_samples=800),
    AudioConfig(sample_rate=16_000, fft_size=512, hop_samples=128, window_samples=512),
]


def voice(seconds: float = 1.5, audio: AudioConfig = AUDIO) -> np.ndarray:
    """Return harmonics of a gliding pitch under a moving envelope, with a little breath."""
    time = np.arange(round(seconds * audio.sample_rate)) / audio.sample_rate
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 0.7 * time)) / audio.sample_rate
    wave = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 30))
    breath = np.random.default_rng(0).normal(0, 0.02, len(time))
    return (0.1 * (1 + np.sin(2 * np.pi * 3 * time)) * wave + breath * 0.1).astype(np.float32)

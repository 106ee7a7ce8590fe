"""Count the samples and the mel frames of a clip from its header, before it is decoded.

Arithmetic only: `audio.mel` imports scipy.fft, which a rerun of preprocess that writes nothing does without.
"""

from xtts_pipeline.config.schema import AudioConfig


def resampled_length(samples: int, sample_rate: int, to_rate: int) -> int:
    """Return how many samples soxr makes of `samples` at `sample_rate`.

    In libsoxr's own double precision, in which a quotient that ends in one half may fall short of it.
    """
    return int(samples / (sample_rate / to_rate) + 0.5)


def mel_frame_count(samples: int, sample_rate: int, audio: AudioConfig) -> int:
    """Return how many frames `log_mel` makes of a clip of `samples` at `sample_rate`, without trimming."""
    return 1 + resampled_length(samples, sample_rate, audio.sample_rate) // audio.hop_samples

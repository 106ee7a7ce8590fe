"""Turn log-mel frames into sound, without a trained network.

Pure NumPy and scipy.fft; the same frames give the same wave on every run.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import sliding_window_view

from xtts_pipeline.audio.mel import hann_window, mel_filterbank
from xtts_pipeline.config import AudioConfig
from xtts_pipeline.errors import AudioError, Reason

# After 20 updates the magnitudes give the mel back to 0.1% of a natural logarithm.
MAGNITUDE_UPDATES = 20
# 32 frames, their spectra and what is kept of the last iteration fit in a core's second-level cache.
BLOCK_FRAMES = 32
TINY = np.float32(1e-12)


class Vocoder(Protocol):
    """Anything that turns frames into sound."""

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], of natural-log mel magnitudes, float [frames, mel_bins]."""


class GriffinLim:
    """Find the phases under which a spectrogram is that of a wave: fast Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013).

    Each iteration goes through blocks of frames once: spectrum of the last wave, new phases, frames of the next wave, all in cache.
    The first phases put each frame's energy under the middle of its window, so nothing is random.
    """

    def __init__(self, audio: AudioConfig, iterations: int, momentum: float) -> None:
        self.audio = audio
        self.iterations = iterations
        self.momentum = momentum

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], in the scale of the clips whose mels these are.

        Raises AudioError if the frames are not finite, or too loud for float32.
        """
        if len(log_mel) < 2:
            return np.zeros(0, np.float32)
        magnitudes = mel_to_magnitudes(log_mel, self.audio)
        return self._find_wave(magnitudes)

    def _find_wave(self, magnitudes: np.ndarray) -> np.ndarray:
        audio = self.audio
        frames, bins = magnitudes.shape
        overlap = -(-audio.fft_size // audio.hop_samples)
        gain = _overlap_gain(frames, overlap, audio)
        wave = np.zeros(gain.size, np.float32)
        last = np.zeros((frames, bins), np.complex64)
        spectrum = np.zeros((BLOCK_FRAMES, 1 + audio.fft_size // 2), np.complex64)
        middle = np.where(np.arange(bins) % 2, np.float32(-1), np.float32(1))
        for iteration in range(self.iterations + 1):
            following = np.zeros((frames + overlap - 1, audio.hop_samples), np.float32)
            for start in range(0, frames, BLOCK_FRAMES):
                block = slice(start, min(start + BLOCK_FRAMES, frames))
                size = block.stop - start
                if iteration == 0:
                    spectrum[:size, :bins] = magnitudes[block] * middle
                else:
                    _update_phases(wave, block, magnitudes, last, self.momentum, audio, spectrum[:size, :bins])
                _add_frames(spectrum[:size], following[start : block.stop + overlap - 1], overlap, audio)
            wave = (following * gain).reshape(-1)
        start = audio.fft_size // 2
        return wave[start : start + (frames - 1) * audio.hop_samples]


def mel_to_magnitudes(log_mel: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return non-negative magnitudes whose mel is the given one: float32 [frames, bins up to max_hz].

    They minimise the Kullback-Leibler divergence of the mel by multiplicative updates (Lee and Seung, 2001), begun from the filters'
    own interpolation, so they stay smooth where the filters say nothing. That comes nearer to the true spectrum than least squares.
    Raises AudioError if the frames are not finite, or too loud for float32.
    """
    with np.errstate(over="ignore"):
        mel = np.exp(log_mel.astype(np.float32))
    if not np.isfinite(mel).all():
        raise AudioError(Reason.AUDIO_NOT_FINITE, "the mel frames are not finite or above 88 in natural log; expected what log_mel returns")
    filters, spread = _inversion_plan(audio)
    magnitudes: np.ndarray = (mel / (filters.sum(axis=1) + TINY)) @ spread
    for _ in range(MAGNITUDE_UPDATES):
        magnitudes *= (mel / (magnitudes @ filters.T + TINY)) @ spread
    return magnitudes


@lru_cache(maxsize=8)
def _inversion_plan(audio: AudioConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return the filters up to the last bin in use, [mel_bins, bins], and the same with each bin's weights summing to 1."""
    filters = mel_filterbank(audio)
    in_use = np.flatnonzero(filters.any(axis=0))
    filters = filters[:, : int(in_use[-1]) + 1 if in_use.size else 1]
    return filters, filters / (filters.sum(axis=0) + TINY)


def _overlap_gain(frames: int, overlap: int, audio: AudioConfig) -> np.ndarray:
    """Return one over the summed squares of the windows at each sample; zero outside the wave: float32 [hops, hop_samples]."""
    squares = np.zeros((overlap, audio.hop_samples), np.float32)
    squares.reshape(-1)[: audio.fft_size] = np.square(hann_window(audio))
    summed = np.zeros((frames + overlap - 1, audio.hop_samples), np.float32)
    for shift in range(overlap):
        summed[shift : shift + frames] += squares[shift]
    gain = np.divide(1, summed, out=np.zeros_like(summed), where=summed > TINY)
    start = audio.fft_size // 2
    gain.reshape(-1)[:start] = 0
    gain.reshape(-1)[start + (frames - 1) * audio.hop_samples :] = 0
    return gain


def _update_phases(
    wave: np.ndarray,
    block: slice,
    magnitudes: np.ndarray,
    last: np.ndarray,
    momentum: float,
    audio: AudioConfig,
    out: np.ndarray,
) -> None:
    """Write the block's magnitudes with the phases of `wave`, moved on by the momentum, to `out`; keep its spectrum in `last`."""
    frames = sliding_window_view(wave, audio.fft_size)[:: audio.hop_samples][block]
    spectrum = scipy.fft.rfft(frames * hann_window(audio))[:, : out.shape[1]]
    # In this form, after librosa's, the momentum acts on the wanted phases alone.
    direction = last[block]
    direction *= np.float32(-momentum / (1 + momentum))
    direction += spectrum
    size = np.abs(direction)
    size += TINY
    np.multiply(direction, np.divide(magnitudes[block], size, out=size), out=out)
    last[block] = spectrum


def _add_frames(spectrum: np.ndarray, wave_hops: np.ndarray, overlap: int, audio: AudioConfig) -> None:
    """Add the block's windowed frames onto the wave, [frames + overlap - 1, hop_samples], each one hop after the last."""
    frames = scipy.fft.irfft(spectrum, audio.fft_size)
    frames *= hann_window(audio)
    rest = overlap * audio.hop_samples - audio.fft_size
    if rest:
        frames = np.pad(frames, ((0, 0), (0, rest)))
    hops = frames.reshape(len(frames), overlap, audio.hop_samples)
    for shift in range(overlap):
        wave_hops[shift : shift + len(frames)] += hops[:, shift]

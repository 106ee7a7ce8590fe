"""Turn log-mel frames into sound, without a trained network.

Pure NumPy and scipy.fft; the same frames give the same wave on every run.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import sliding_window_view

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError, Reason

# After 20 updates the magnitudes give the mel back to 0.1% of a natural logarithm.
MAGNITUDE_UPDATES = 20
# 32 frames, their spectra and what is kept of the last iteration fit in a core's second-level cache.
BLOCK_FRAMES = 32
# The first sound is there after so many frames: 0.37 s at 22,050 Hz and hops of 256. Fewer cost more, since the look-ahead is done twice.
STREAM_BLOCK_FRAMES = 32
TINY = np.float32(1e-12)


class Vocoder(Protocol):
    """Anything that turns frames into sound."""

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], of natural-log mel magnitudes, float [frames, mel_bins]."""


class GriffinLim:
    """Find the phases under which a spectrogram is that of a wave: fast Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013).

    The first phases put each frame's energy under the middle of its window, so nothing is random.
    """

    def __init__(self, audio: AudioConfig, iterations: int, momentum: float) -> None:
        """Search for `iterations` rounds, at least 1, with a momentum from 0 (plain Griffin-Lim) to below 1."""
        self.audio = audio
        self.iterations = iterations
        self.momentum = momentum

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], in the scale of the clips whose mels these are.

        Raises AudioError if the frames are not finite, or too loud for float32.
        """
        frames = len(log_mel)
        if frames < 2:
            return np.zeros(0, np.float32)
        span = _Span(self.audio)
        span.append(mel_to_magnitudes(log_mel, self.audio))
        wave = span.search(self.iterations, self.momentum, 0, is_last=True)
        start = self.audio.fft_size // 2
        return wave[start : start + (frames - 1) * self.audio.hop_samples]

    def stream(self) -> "GriffinLimStream":
        """Return a new stream, for one wave."""
        return GriffinLimStream(self)


class GriffinLimStream:
    """Griffin-Lim on frames that come one after the other, as in real-time iterative spectrogram inversion with look-ahead.

    After Zhu, Beauregard and Wyse (2007), but a block at a time: `STREAM_BLOCK_FRAMES` new frames are searched together with those
    looked ahead at before, over the tails of what is settled, which stays as it is. Then all but the last two windows' worth of frames
    are settled, and the sound that no later frame reaches is handed out. It is one overlap-add from end to end, so it has no seams,
    and since the blocks are the same however the frames are pushed, so is the wave.
    """

    def __init__(self, vocoder: GriffinLim) -> None:
        self._vocoder = vocoder
        self._waiting: list[np.ndarray] = []
        self._span = _Span(vocoder.audio)
        self._look_ahead = 2 * self._span.overlap
        self._samples_to_skip = vocoder.audio.fft_size // 2

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames, float [frames, mel_bins], and return the samples that are final now: float32, perhaps none.

        Raises AudioError if the frames are not finite, or too loud for float32.
        """
        self._waiting.extend(log_mel)
        waves = [np.zeros(0, np.float32)]
        while len(self._waiting) >= STREAM_BLOCK_FRAMES:
            self._append(STREAM_BLOCK_FRAMES)
            settled = max(0, self._span.frames - self._look_ahead)
            wave = self._span.search(self._vocoder.iterations, self._vocoder.momentum, settled, is_last=False)
            waves.append(self._without_start(wave[: settled * self._vocoder.audio.hop_samples]))
        return np.concatenate(waves)

    def finish(self) -> np.ndarray:
        """Return the rest, after which the stream is over; all waves together have (frames - 1) * hop_samples samples."""
        self._append(len(self._waiting))
        if self._span.first + self._span.frames < 2:
            return np.zeros(0, np.float32)
        wave = self._span.search(self._vocoder.iterations, self._vocoder.momentum, 0, is_last=True)
        audio = self._vocoder.audio
        return self._without_start(wave[: audio.fft_size // 2 + (self._span.frames - 1) * audio.hop_samples])

    def _append(self, frames: int) -> None:
        if frames:
            self._span.append(mel_to_magnitudes(np.stack(self._waiting[:frames]), self._vocoder.audio))
            del self._waiting[:frames]

    def _without_start(self, wave: np.ndarray) -> np.ndarray:
        """Drop the half window that lies before the first frame's middle."""
        skipped = min(self._samples_to_skip, len(wave))
        self._samples_to_skip -= skipped
        return wave[skipped:]


class _Span:
    """Neighbouring frames whose phases are sought, over the tails of those settled before them.

    A frame begins one hop after the last, so hop h of the span holds the windowed frames h - overlap + 1 to h.
    """

    def __init__(self, audio: AudioConfig) -> None:
        self.audio = audio
        self.overlap = -(-audio.fft_size // audio.hop_samples)
        self.first = 0  # how many frames are settled
        bins = _inversion_plan(audio)[0].shape[1]
        self._magnitudes = np.zeros((0, bins), np.float32)
        self._last = np.zeros((0, bins), np.complex64)
        self._settled = np.zeros((self.overlap - 1, audio.hop_samples), np.float32)
        self._sums = self._settled.copy()
        self._spectrum = np.zeros((BLOCK_FRAMES, 1 + audio.fft_size // 2), np.complex64)

    @property
    def frames(self) -> int:
        """How many frames are still sought."""
        return len(self._magnitudes)

    def append(self, magnitudes: np.ndarray) -> None:
        """Add frames, float32 [frames, bins], with first phases."""
        bins = magnitudes.shape[1]
        middle = np.where(np.arange(bins) % 2, np.float32(-1), np.float32(1))
        old, frames = self.frames, len(magnitudes)
        self._magnitudes = np.concatenate([self._magnitudes, magnitudes])
        self._last = np.concatenate([self._last, np.zeros((frames, bins), np.complex64)])
        self._sums = np.concatenate([self._sums, np.zeros((frames, self.audio.hop_samples), np.float32)])
        for block in _blocks(old, old + frames):
            spectrum = self._spectrum[: block.stop - block.start]
            np.multiply(self._magnitudes[block], middle, out=spectrum[:, :bins])
            _add_frames(spectrum, self._sums[block.start :], self.overlap, self.audio)

    def search(self, iterations: int, momentum: float, settled: int, *, is_last: bool) -> np.ndarray:
        """Iterate, then settle the first `settled` frames; return the wave of all, float32 [(frames + overlap - 1) * hop_samples].

        Each iteration goes through blocks of frames once: spectrum of the last wave, new phases, frames of the next wave, all in cache.
        """
        gain = _overlap_gain(self.first, self.frames, self.audio, is_last)
        bins = self._magnitudes.shape[1]
        tails = self._settled
        for _ in range(iterations):
            last_wave = (self._sums * gain).reshape(-1)
            self._sums = np.zeros_like(self._sums)
            self._sums[: self.overlap - 1] = self._settled
            for block in [*_blocks(0, settled), *_blocks(settled, self.frames)]:
                if block.start == settled:
                    tails = self._sums[settled : settled + self.overlap - 1].copy()
                spectrum = self._spectrum[: block.stop - block.start]
                _update_phases(last_wave, block, self._magnitudes, self._last, momentum, self.audio, spectrum[:, :bins])
                _add_frames(spectrum, self._sums[block.start :], self.overlap, self.audio)
        wave: np.ndarray = (self._sums * gain).reshape(-1)
        self.first += settled
        self._settled = tails
        self._magnitudes, self._last, self._sums = (
            self._magnitudes[settled:],
            self._last[settled:],
            self._sums[settled:],
        )
        return wave


def _blocks(start: int, stop: int) -> list[slice]:
    return [slice(begin, min(begin + BLOCK_FRAMES, stop)) for begin in range(start, stop, BLOCK_FRAMES)]


def mel_to_magnitudes(log_mel: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return non-negative magnitudes whose mel is the given one: float32 [frames, bins up to max_hz].

    They minimise the Kullback-Leibler divergence of the mel by multiplicative updates (Lee and Seung, 2001), begun from the filters'
    own interpolation, so they stay smooth where the filters say nothing. That comes nearer to the true spectrum than least squares.
    Raises AudioError if the frames are not finite, or too loud for float32.
    """
    with np.errstate(over="ignore"):
        mel = np.exp(log_mel.astype(np.float32))
    if not np.isfinite(mel).all():
        raise AudioError(
            Reason.AUDIO_NOT_FINITE,
            "the mel frames are not finite or above 88 in natural log; expected what log_mel returns",
        )
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


def _overlap_gain(first: int, frames: int, audio: AudioConfig, is_last: bool) -> np.ndarray:
    """Return one over the summed squares of the windows at each sample of the frames from `first` on, float32 [hops, hop_samples].

    Zero outside the wave: before the middle of frame 0 and, where the last frame is among these, after its middle.
    """
    overlap = -(-audio.fft_size // audio.hop_samples)
    squares = np.zeros((overlap, audio.hop_samples), np.float32)
    squares.reshape(-1)[: audio.fft_size] = np.square(hann_window(audio))
    before = min(first, overlap - 1)
    summed = np.zeros((before + frames + overlap - 1, audio.hop_samples), np.float32)
    for shift in range(overlap):
        summed[shift : shift + before + frames] += squares[shift]
    summed = summed[before:]
    gain = np.divide(1, summed, out=np.zeros_like(summed), where=summed > TINY)
    start = audio.fft_size // 2
    gain.reshape(-1)[: max(0, start - first * audio.hop_samples)] = 0
    if is_last:
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

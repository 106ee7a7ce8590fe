"""Invert log-mel frames to sound without a trained network. NumPy and scipy.fft only; the result is deterministic."""

from functools import lru_cache
from typing import Protocol

import numpy as np
import scipy.fft
from numpy.lib.stride_tricks import sliding_window_view

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig, SynthesisConfig
from xtts_pipeline.errors import AudioError, Reason

# After 20 updates the mel of the magnitudes is within 0.001 in natural log.
MAGNITUDE_UPDATES = 20
# 32 frames, their spectra and the last iteration's spectra fit in a core's L2 cache.
BLOCK_FRAMES = 32
# Latency in frames: 0.37 s at 22,050 Hz and hops of 256. Fewer cost more, since the look-ahead is computed twice.
STREAM_BLOCK_FRAMES = 32
TINY = np.float32(1e-12)
# Speech is below 3. Above 78, Griffin-Lim's spectra overflow float32.
LARGEST_LOG_MEL = 60.0


class Vocoder(Protocol):
    """Turns mel frames into sound."""

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], of natural-log mels, float [frames, mel_bins]."""


class GriffinLim:
    """Estimate phases by fast Griffin-Lim (Perraudin, Balazs and Sondergaard, 2013).

    The initial phases centre each frame's energy in its window, so nothing is random.
    """

    def __init__(self, audio: AudioConfig, iterations: int, momentum: float) -> None:
        """Take the number of iterations, at least 1, and a momentum from 0 (plain Griffin-Lim) to below 1."""
        self.audio = audio
        self.iterations = iterations
        self.momentum = momentum

    @classmethod
    def from_settings(cls, audio: AudioConfig, synthesis: SynthesisConfig) -> "GriffinLim":
        """Return the vocoder that `synthesis` describes."""
        return cls(audio, synthesis.griffin_lim_iterations, synthesis.griffin_lim_momentum)

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples], at the level of the analysed clip.

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
    """Streaming Griffin-Lim with look-ahead, after Zhu, Beauregard and Wyse (2007), but in blocks.

    Each `STREAM_BLOCK_FRAMES` new frames are estimated together with the look-ahead frames before them, over the tails
    of the settled frames, which stay fixed. Then all but the last two windows' worth of frames are settled, and the
    samples that no later frame reaches are returned. It is one overlap-add from end to end, so there are no seams.
    Blocks do not depend on the sizes of pushes, so neither does the wave.
    """

    def __init__(self, vocoder: GriffinLim) -> None:
        self._vocoder = vocoder
        self._waiting: list[np.ndarray] = []
        self._span = _Span(vocoder.audio)
        self._look_ahead = 2 * vocoder.audio.overlap
        self._samples_to_skip = vocoder.audio.fft_size // 2

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames, float [frames, mel_bins]; return the samples that are now final, float32 [n].

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
        """End the stream and return its rest; all pieces together have (frames - 1) * hop_samples samples."""
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
        """Drop the half window before the centre of frame 0."""
        skipped = min(self._samples_to_skip, len(wave))
        self._samples_to_skip -= skipped
        return wave[skipped:]


class _Span:
    """Consecutive frames under estimation, overlapped with the tails of the settled frames before them.

    Frames are one hop apart, so hop h of the span holds the windowed frames h - overlap + 1 to h.
    """

    def __init__(self, audio: AudioConfig) -> None:
        self.audio = audio
        self.first = 0  # number of settled frames
        bins = inversion_plan(audio)[0].shape[1]
        self._magnitudes = np.zeros((0, bins), np.float32)
        self._last = np.zeros((0, bins), np.complex64)
        self._settled = np.zeros((audio.overlap - 1, audio.hop_samples), np.float32)
        self._sums = self._settled.copy()
        self._spectrum = np.zeros((BLOCK_FRAMES, 1 + audio.fft_size // 2), np.complex64)

    @property
    def frames(self) -> int:
        """The number of frames that are not settled."""
        return len(self._magnitudes)

    def append(self, magnitudes: np.ndarray) -> None:
        """Add frames, float32 [frames, bins], with initial phases."""
        bins = magnitudes.shape[1]
        middle = np.where(np.arange(bins) % 2, np.float32(-1), np.float32(1))
        old, frames = self.frames, len(magnitudes)
        self._magnitudes = np.concatenate([self._magnitudes, magnitudes])
        self._last = np.concatenate([self._last, np.zeros((frames, bins), np.complex64)])
        self._sums = np.concatenate([self._sums, np.zeros((frames, self.audio.hop_samples), np.float32)])
        for block in _blocks(old, old + frames):
            np.multiply(self._magnitudes[block], middle, out=self._spectrum[: block.stop - block.start, :bins])
            self._add_frames(block)

    def search(self, iterations: int, momentum: float, settled: int, *, is_last: bool) -> np.ndarray:
        """Iterate, settle the first `settled` frames; return the wave, float32 [(frames + overlap - 1) * hop_samples].

        Each iteration visits each block once: spectrum of the last wave, new phases, frames of the next wave.
        """
        gain = overlap_gain(self.first, self.frames, self.audio, is_last)
        tails = self._settled
        for _ in range(iterations):
            last_wave = (self._sums * gain).reshape(-1)
            self._sums = np.zeros_like(self._sums)
            self._sums[: self.audio.overlap - 1] = self._settled
            for block in [*_blocks(0, settled), *_blocks(settled, self.frames)]:
                if block.start == settled:
                    tails = self._sums[settled : settled + self.audio.overlap - 1].copy()
                self._update_phases(last_wave, block, momentum)
                self._add_frames(block)
        wave: np.ndarray = (self._sums * gain).reshape(-1)
        self.first += settled
        self._settled = tails
        self._magnitudes, self._last, self._sums = (
            self._magnitudes[settled:],
            self._last[settled:],
            self._sums[settled:],
        )
        return wave

    def _update_phases(self, wave: np.ndarray, block: slice, momentum: float) -> None:
        """Set the block's spectrum to its magnitudes with the accelerated phases of `wave`, and keep that of `wave`."""
        magnitudes, direction = self._magnitudes[block], self._last[block]
        out = self._spectrum[: len(magnitudes), : magnitudes.shape[1]]
        frames = sliding_window_view(wave, self.audio.fft_size)[:: self.audio.hop_samples][block]
        spectrum = scipy.fft.rfft(frames * hann_window(self.audio))[:, : magnitudes.shape[1]]
        # In this form, as in librosa, the momentum acts on the target phases alone.
        direction *= np.float32(-momentum / (1 + momentum))
        direction += spectrum
        size = np.abs(direction)
        size += TINY
        np.multiply(direction, np.divide(magnitudes, size, out=size), out=out)
        self._last[block] = spectrum

    def _add_frames(self, block: slice) -> None:
        """Overlap-add the windowed frames of the block's spectrum to the next wave."""
        audio = self.audio
        frames = scipy.fft.irfft(self._spectrum[: block.stop - block.start], audio.fft_size)
        frames *= hann_window(audio)
        if rest := audio.overlap * audio.hop_samples - audio.fft_size:
            frames = np.pad(frames, ((0, 0), (0, rest)))
        hops = frames.reshape(len(frames), audio.overlap, audio.hop_samples)
        for shift in range(audio.overlap):
            self._sums[block.start + shift : block.stop + shift] += hops[:, shift]


def _blocks(start: int, stop: int) -> list[slice]:
    return [slice(begin, min(begin + BLOCK_FRAMES, stop)) for begin in range(start, stop, BLOCK_FRAMES)]


def check_frames(log_mel: np.ndarray) -> None:
    """Raise AudioError unless natural-log mel frames are finite, and quiet enough for spectra in float32."""
    if not np.isfinite(log_mel).all() or log_mel.max(initial=0.0) > LARGEST_LOG_MEL:
        found = f"the mel frames are not finite or above {LARGEST_LOG_MEL:g} in natural log"
        raise AudioError(Reason.AUDIO_NOT_FINITE, f"{found}; expected what log_mel returns")


def mel_to_magnitudes(log_mel: np.ndarray, audio: AudioConfig) -> np.ndarray:
    """Return non-negative magnitudes with the given mel: float32 [frames, bins up to max_hz].

    Multiplicative updates minimise the Kullback-Leibler divergence of the mel (Lee and Seung, 2001). They start from
    the filters' interpolation, so the result is smooth and nearer to the true spectrum than least squares. Raises
    AudioError if the frames are not finite, or too loud for float32.
    """
    check_frames(log_mel)
    mel = np.exp(log_mel.astype(np.float32))
    filters, spread = inversion_plan(audio)
    magnitudes: np.ndarray = (mel / (filters.sum(axis=1) + TINY)) @ spread
    for _ in range(MAGNITUDE_UPDATES):
        magnitudes *= (mel / (magnitudes @ filters.T + TINY)) @ spread
    return magnitudes


@lru_cache(maxsize=8)
def inversion_plan(audio: AudioConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return the filters up to the last used bin, [mel_bins, bins], and a copy whose columns sum to 1."""
    filters = mel_filterbank(audio)
    in_use = np.flatnonzero(filters.any(axis=0))
    filters = filters[:, : int(in_use[-1]) + 1 if in_use.size else 1]
    return filters, filters / (filters.sum(axis=0) + TINY)


def overlap_gain(first: int, frames: int, audio: AudioConfig, is_last: bool) -> np.ndarray:
    """Return the inverse of the summed squared windows of the frames from `first` on, float32 [hops, hop_samples].

    It is zero before the centre of frame 0 and, if `is_last`, after the centre of the last frame.
    """
    overlap = audio.overlap
    squares = window_squares(audio)
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


def window_squares(audio: AudioConfig) -> np.ndarray:
    """Return the squared window, cut into hops: float32 [overlap, hop_samples]."""
    squares = np.zeros((audio.overlap, audio.hop_samples), np.float32)
    squares.reshape(-1)[: audio.fft_size] = np.square(hann_window(audio))
    return squares

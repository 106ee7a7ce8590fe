"""Speak mels by a trained generator, whole or streamed, with one wave for both.

The generator runs on blocks of frames, each with as many frames of context as the network sees. The cycles of the pitch
are carried from block to block. So a streamed block equals its part of the whole.
"""

import numpy as np
import tensorflow as tf

from xtts_pipeline.vocoder.generator import Generator
from xtts_pipeline.vocoder.griffin_lim import TINY, check_frames, window_squares

# The most frames of a block: long ones spend little on context and keep all cores busy.
WHOLE_BLOCK_FRAMES, STREAM_BLOCK_FRAMES = 1024, 128
# A stream starts as soon as it can render this many frames.
FIRST_FRAMES = 4


class NeuralVocoder:
    """Mel frames to sound by a trained generator."""

    def __init__(self, generator: Generator, weights_sha256: str | None = None) -> None:
        self.generator, self.audio, self.weights_sha256 = generator, generator.audio, weights_sha256
        # Without XLA: it would compile each length for a second, and TensorFlow's own kernels are as fast.
        mel, mask = tf.TensorSpec([1, None, self.audio.mel_bins]), tf.TensorSpec([1, None], tf.bool)
        signature = [mel, mask, tf.TensorSpec([1], tf.float64)]
        self.frames_of_block = tf.function(self._frames_of_block, signature, autograph=False)

    def __call__(self, log_mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [(frames - 1) * hop_samples].

        Raises AudioError if the frames are not finite, or too loud for float32.
        """
        stream = NeuralStream(self, WHOLE_BLOCK_FRAMES, WHOLE_BLOCK_FRAMES)
        return np.concatenate([stream.push(log_mel), stream.finish()])

    def stream(self) -> "NeuralStream":
        """Return a new stream, for one wave."""
        return NeuralStream(self, FIRST_FRAMES, STREAM_BLOCK_FRAMES)

    def _frames_of_block(
        self, mel_BTM: tf.Tensor, mask_BT: tf.Tensor, cycles_before_B: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the windowed samples of each frame between the contexts, float32 [B, T, overlap, hop_samples].

        Also return the cycles of the pitch up to the last frame, float64 [B].
        """
        spectrum = self.generator.spectrum(
            mel_BTM, mask_BT, cycles_before_B=cycles_before_B, has_context=True, is_compiled=False
        )
        return self.generator.inverse.windowed_frames(spectrum.bins), spectrum.cycles[:, -1]


class NeuralStream:
    """One wave, computed while its frames arrive; the look-ahead is exact.

    The first block may have `first_frames` frames only, so that sound starts soon. Each next one, up to `block_frames`,
    is at least as long as all before it, which are heard until it comes.
    """

    def __init__(self, vocoder: NeuralVocoder, first_frames: int, block_frames: int) -> None:
        self._vocoder, self._reach = vocoder, vocoder.generator.reach
        self._least, self._most = first_frames, block_frames
        audio = vocoder.audio
        self._squares = window_squares(audio)
        # Frames that are still needed: the context before the next block, and all later ones.
        self._mel = np.zeros((0, audio.mel_bins), np.float32)
        self._first = 0  # the number of the first of them
        self._done = 0  # frames that are rendered
        self._cycles = tf.zeros([1], tf.float64)  # of the pitch, up to the last of them
        self._sums = np.zeros((audio.overlap - 1, audio.hop_samples), np.float32)
        self._weights = self._sums.copy()
        self._samples_to_skip = audio.fft_size // 2

    def push(self, log_mel: np.ndarray) -> np.ndarray:
        """Take the next frames, float [frames, mel_bins]; return the samples that are now final, float32 [n].

        Raises AudioError if the frames are not finite, or too loud for float32.
        """
        check_frames(log_mel)
        self._mel = np.concatenate([self._mel, log_mel.astype(np.float32)])
        waves = [np.zeros(0, np.float32)]
        while (ready := self._first + len(self._mel) - self._reach - self._done) >= self._least:
            waves.append(self._render(min(ready, self._most)))
            self._least = min(max(self._least, self._done), self._most)
        return np.concatenate(waves)

    def finish(self) -> np.ndarray:
        """End the stream and return its rest; all pieces together have (frames - 1) * hop_samples samples."""
        frames = self._first + len(self._mel)
        waves = [np.zeros(0, np.float32)]
        while self._done < frames:
            waves.append(self._render(min(frames - self._done, self._most)))
        waves.append(self._without_start((self._sums / np.maximum(self._weights, TINY)).reshape(-1)))
        wave, audio = np.concatenate(waves), self._vocoder.audio
        # Nothing after the centre of the last frame.
        return wave[: max(0, len(wave) - (audio.overlap * audio.hop_samples - audio.fft_size // 2))]

    def _render(self, frames: int) -> np.ndarray:
        """Render the next frames; return the samples that no later frame reaches."""
        size, first = frames + 2 * self._reach, self._done - self._reach
        number = np.arange(first, first + size)
        is_real = (number >= 0) & (number < self._first + len(self._mel))
        mel = np.zeros((size, self._mel.shape[1]), np.float32)
        mel[is_real] = self._mel[number[is_real] - self._first]
        windowed, self._cycles = self._vocoder.frames_of_block(mel[None], is_real[None], self._cycles)
        windowed = windowed[0].numpy()
        sums, weights = (
            np.concatenate([tail, np.zeros((frames, tail.shape[1]), np.float32)])
            for tail in (self._sums, self._weights)
        )
        for shift in range(len(self._squares)):
            sums[shift : shift + frames] += windowed[:, shift]
            weights[shift : shift + frames] += self._squares[shift]
        self._sums, self._weights = sums[frames:], weights[frames:]
        self._done += frames
        unneeded = max(0, self._done - self._reach - self._first)
        self._mel, self._first = self._mel[unneeded:], self._first + unneeded
        return self._without_start((sums[:frames] / np.maximum(weights[:frames], TINY)).reshape(-1))

    def _without_start(self, wave: np.ndarray) -> np.ndarray:
        """Drop the half window before the centre of frame 0."""
        skipped = min(self._samples_to_skip, len(wave))
        self._samples_to_skip -= skipped
        return wave[skipped:]

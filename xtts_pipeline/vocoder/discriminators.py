"""The discriminators that train the vocoder: of spectra at several resolutions, and of periods of the wave.

All layers are matrix products of strided frames: gradients of 2-D convolutions are slow under XLA on a CPU.
"""

from collections.abc import Sequence
from itertools import pairwise

import tensorflow as tf

from xtts_pipeline.audio.mel import periodic_hann
from xtts_pipeline.model.layers import Dense, Initializer
from xtts_pipeline.vocoder.fourier import Stft

SLOPE = 0.1
# The judgement of each place, and the features of each layer.
Judgement = tuple[tf.Tensor, list[tf.Tensor]]


class StridedConvolution(tf.Module):
    """A convolution along the second axis of [B, T, ...], one product of concatenated, shifted and strided slices."""

    def __init__(self, initializer: Initializer, inputs: int, outputs: int, taps: int, stride: int, name: str) -> None:
        super().__init__(name=name)
        self.taps, self.stride = taps, stride
        self.map = Dense(initializer, taps * inputs, outputs, "map")

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Return [B, ceil(T / stride), ..., outputs]."""
        length = x.shape[1]
        outputs = -(-length // self.stride)
        before = (self.taps - 1) // 2
        needed = (outputs - 1) * self.stride + self.taps
        edges = [[0, 0], [before, max(0, needed - before - length)], *[[0, 0]] * (x.shape.rank - 2)]
        padded = tf.pad(x, edges)
        last = (outputs - 1) * self.stride + 1
        slices = [padded[:, tap : tap + last : self.stride] for tap in range(self.taps)]
        return self.map(tf.concat(slices, axis=-1))


class SpectrumDiscriminator(tf.Module):
    """Judges bands of the spectrum, frame by frame with neighbours; real and imaginary parts are channels.

    The bins are cut into bands, each of which has its own first layer.
    """

    def __init__(self, initializer: Initializer, fft_size: int, bands: int, width: int, name: str) -> None:
        super().__init__(name=name)
        self.bands, self.bins = bands, fft_size // 2 // bands
        self.transform = Stft(periodic_hann(fft_size), fft_size // 4)
        self.first = [
            StridedConvolution(initializer, 2 * self.bins, width, 3, 1, f"band_{band}") for band in range(bands)
        ]
        self.layers = [StridedConvolution(initializer, width, width, 3, 2, f"layer_{layer}") for layer in range(3)]
        self.judge = StridedConvolution(initializer, width, 1, 3, 1, "judge")

    def __call__(self, wave_BN: tf.Tensor) -> Judgement:
        """Return the judgement of each place in time of each band, and the features of all layers."""
        spectrum_BTK = self.transform(wave_BN)
        real_BTK, imaginary_BTK = tf.math.real(spectrum_BTK), tf.math.imag(spectrum_BTK)
        features, judgements = [], []
        for band, first in enumerate(self.first):
            # The lowest bin, a constant, is left out.
            used = slice(1 + band * self.bins, 1 + (band + 1) * self.bins)
            x_BTD = first(_compress(real_BTK[..., used], imaginary_BTK[..., used]))
            x_BTD = tf.nn.leaky_relu(x_BTD, SLOPE)
            features.append(x_BTD)
            for layer in self.layers:
                x_BTD = tf.nn.leaky_relu(layer(x_BTD), SLOPE)
                features.append(x_BTD)
            judgements.append(self.judge(x_BTD))
        return tf.concat(judgements, axis=1), features


def _compress(real: tf.Tensor, imaginary: tf.Tensor) -> tf.Tensor:
    """Return both parts with magnitudes to the power 0.3, as loudness is heard."""
    power = tf.square(real) + tf.square(imaginary) + 1e-8
    factor = tf.pow(power, -0.35)
    return tf.concat([real * factor, imaginary * factor], axis=-1)


class PeriodDiscriminator(tf.Module):
    """Judges every `period`-th sample of the wave (Kong et al. 2020)."""

    def __init__(self, initializer: Initializer, period: int, width: int, name: str) -> None:
        super().__init__(name=name)
        self.period = period
        widths = [1, width // 4, width // 2, width, width]
        self.layers = [
            StridedConvolution(initializer, inputs, outputs, 5, 3, f"layer_{index}")
            for index, (inputs, outputs) in enumerate(pairwise(widths))
        ]
        self.judge = StridedConvolution(initializer, width, 1, 3, 1, "judge")

    def __call__(self, wave_BN: tf.Tensor) -> Judgement:
        """Return the judgement of each place in time of each phase, and the features of all layers."""
        rows, samples = wave_BN.shape
        length = samples // self.period
        x = tf.reshape(wave_BN[:, : length * self.period], [rows, length, self.period, 1])
        features = []
        for layer in self.layers:
            x = tf.nn.leaky_relu(layer(x), SLOPE)
            features.append(x)
        return self.judge(x), features


class Discriminators(tf.Module):
    """All discriminators of a vocoder."""

    def __init__(self, fft_sizes: Sequence[int], periods: Sequence[int], width: int, seed: int = 0) -> None:
        super().__init__(name="discriminators")
        initializer = Initializer(seed)
        self.members: list[SpectrumDiscriminator | PeriodDiscriminator] = [
            *(SpectrumDiscriminator(initializer, size, 4, width, f"spectrum_{size}") for size in fft_sizes),
            *(PeriodDiscriminator(initializer, period, width, f"period_{period}") for period in periods),
        ]

    def __call__(self, wave_BN: tf.Tensor) -> list[Judgement]:
        """Return the judgement of each discriminator."""
        return [member(wave_BN) for member in self.members]

"""Resample waves with TensorFlow's Fourier transform and soxr's frequency response, as preprocessing uses soxr.

A clip is transformed whole, so each ratio of rates is exact and needs only one table.
"""

from collections.abc import Sequence

import numpy as np
import soxr
import tensorflow as tf

from xtts_pipeline.audio.load import RESAMPLING_QUALITY

_GRID = 1 << 15  # points of a response; half of them lie below the Nyquist frequency
# Samples of either rate on each side of the impulse by which a response is measured: far beyond where it ends.
_HALF_SAMPLES = 8_192
_SILENT = 1e-7  # relative to an impulse response's peak: below the resolution of soxr's 20 bits
# The Fourier transform is quick at lengths of small primes, and these are dense enough: at most 2% apart from 10,000
# on, 0.8% from 100,000.
_PRIMES = (2, 3, 5, 7, 11)
_MAX_LENGTH = 1 << 30
_TAPER_FROM = 0.95  # share of the lower Nyquist frequency at which `change_speed` begins to fade out


def quick_lengths() -> np.ndarray:
    """Return the even lengths with small prime factors, whose Fourier transform is fast, ascending: int32."""
    lengths = np.array([2], np.int64)
    for prime in _PRIMES:
        longest = lengths
        while len(longest := longest[longest <= _MAX_LENGTH // prime] * prime):
            lengths = np.union1d(lengths, longest)
    return lengths.astype(np.int32)


class Resampler:
    """Resample waves from a few known rates to one rate, equal to soxr up to rounding."""

    def __init__(self, rates: Sequence[int], to_rate: int) -> None:
        """Measure soxr's response for each of the clips' rates."""
        self._to_rate = to_rate
        self._rates = np.array(sorted(set(rates)), np.int32)
        self._only_as_is = self._rates.tolist() == [to_rate]
        shared = np.gcd(self._rates.astype(np.int64), to_rate)
        self._up, self._down = to_rate // shared, self._rates // shared
        self._ratios = self._rates / to_rate
        measured = [_measure(int(up), int(down)) for up, down in zip(self._up, self._down, strict=True)]
        self._responses = np.stack([response for response, _ in measured])
        self._margins = np.array([margin for _, margin in measured], np.int64)

    def __call__(self, wave: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        """Return the wave, float32 [samples] at `rate` (int32 []), at `to_rate`: [resampled_length].

        Raises InvalidArgumentError for an unknown rate.
        """
        place = tf.minimum(tf.searchsorted(self._rates, [rate])[0], len(self._rates) - 1)
        known = tf.debugging.assert_equal(
            tf.gather(self._rates, place), rate, "the clip has another sample rate than when it was judged"
        )
        with tf.control_dependencies([known]):
            wave = tf.identity(wave)
        if self._only_as_is:
            return wave
        return tf.cond(rate == self._to_rate, lambda: wave, lambda: self._resample(wave, place))

    def _resample(self, wave: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        tables = (self._up, self._down, self._margins, self._ratios)
        up, down, margin, ratio = (tf.gather(table, place) for table in tables)
        samples = tf.size(wave, tf.int64)
        blocks = tf.cast(_next_quick_length((samples + margin + down - 1) // down), tf.int64)
        length, new_length = blocks * down, blocks * up
        spectrum = _spectrum(wave, length, new_length)
        # Bin k of the new length lies at k / new_length of the new rate, between two points of the grid.
        at = tf.cast(tf.range(new_length // 2 + 1), tf.float32) * (_GRID / tf.cast(new_length, tf.float32))
        below = tf.minimum(tf.cast(at, tf.int32), _GRID // 2 - 1)
        response = tf.gather(self._responses, place)
        low, high = tf.gather(response, below), tf.gather(response, below + 1)
        gain = low + (at - tf.cast(below, tf.float32)) * (high - low)
        # As `audio.lengths.resampled_length`, with the same rounding.
        new_samples = tf.cast(tf.cast(samples, tf.float64) / ratio + 0.5, tf.int64)
        return _inverse(spectrum, gain, length, new_length)[:new_samples]


def change_speed(wave: tf.Tensor, speed: tf.Tensor) -> tf.Tensor:
    """Return the wave played `speed` times as fast, with its pitch: float32 [at most samples / speed].

    It is up to 2% faster than asked, to reach a length with a fast transform.
    """
    samples = tf.size(wave, tf.int64)
    length = tf.cast(_next_quick_length(samples), tf.int64)
    new_length = tf.cast(
        _last_quick_length(tf.cast(tf.cast(length, tf.float64) / tf.cast(speed, tf.float64), tf.int64)), tf.int64
    )
    bins = new_length // 2 + 1
    nyquist = tf.minimum(length, new_length) // 2
    share = tf.cast(tf.range(bins), tf.float32) / tf.cast(nyquist, tf.float32)
    faded = tf.clip_by_value((share - _TAPER_FROM) / (1 - _TAPER_FROM), 0.0, 1.0)
    gain = 0.5 + 0.5 * tf.cos(np.float32(np.pi) * faded)
    return _inverse(_spectrum(wave, length, new_length), gain, length, new_length)[: samples * new_length // length]


def _spectrum(wave: tf.Tensor, length: tf.Tensor, new_length: tf.Tensor) -> tf.Tensor:
    """Return the spectrum of the wave padded to `length`, cut or padded to the bins of `new_length`: complex64."""
    spectrum = tf.signal.rfft(wave, [tf.cast(length, tf.int32)])
    bins = new_length // 2 + 1
    return tf.pad(spectrum[:bins], [[0, tf.maximum(bins - length // 2 - 1, 0)]])


def _inverse(spectrum: tf.Tensor, gain: tf.Tensor, length: tf.Tensor, new_length: tf.Tensor) -> tf.Tensor:
    gain *= tf.cast(new_length, tf.float32) / tf.cast(length, tf.float32)
    return tf.signal.irfft(spectrum * tf.cast(gain, tf.complex64), [tf.cast(new_length, tf.int32)])


def _next_quick_length(length: tf.Tensor) -> tf.Tensor:
    return tf.gather(_LENGTHS, tf.searchsorted(_LENGTHS, [tf.cast(length, tf.int32)], side="left")[0])


def _last_quick_length(length: tf.Tensor) -> tf.Tensor:
    return tf.gather(_LENGTHS, tf.searchsorted(_LENGTHS, [tf.cast(length, tf.int32)], side="right")[0] - 1)


_LENGTHS = quick_lengths()


def _measure(up: int, down: int) -> tuple[np.ndarray, int]:
    """Return soxr's gain from 0 Hz to the new Nyquist frequency, float32 [_GRID // 2 + 1], and its reach in samples.

    Its impulse response is symmetric, so the gain is real and there is no delay.
    """
    if up == down:
        return np.ones(_GRID // 2 + 1, np.float32), 0
    blocks = -(-_HALF_SAMPLES // min(up, down))
    impulse = np.zeros(2 * blocks * down + 1)
    impulse[blocks * down] = 1.0
    answer = soxr.resample(impulse, down, up, quality=RESAMPLING_QUALITY)
    middle = blocks * up
    reach = int(np.flatnonzero(np.abs(answer) > _SILENT * np.abs(answer).max())[-1]) - middle
    reach = min(reach, _GRID // 2 - 1)
    centred = np.zeros(_GRID)
    centred[: reach + 1], centred[-reach:] = answer[middle : middle + reach + 1], answer[middle - reach : middle]
    return (np.fft.rfft(centred).real * down / up).astype(np.float32), -(-(reach + 1) * down // up)

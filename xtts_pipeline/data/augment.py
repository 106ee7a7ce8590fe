"""Augment clips anew in each epoch: waves on the online path, mels on the cached path.

All changes are drawn from a seed alone, so a resumed run equals an uninterrupted one.
"""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig, AugmentationConfig
from xtts_pipeline.data.resample import change_speed

# Random streams, one for each change, so that switching one change on does not alter the others.
_SHARE, _GAIN, _SNR, _SPEED, _NOISE, _TIME_MASKS, _FREQUENCY_MASKS = range(7)
_MAX_MASKED_SHARE = 0.25  # largest share of a clip's frames or bins that one mask covers
_LOG_GAIN = math.log(10) / 20  # natural log of a decibel
_TINY = 1e-12
_MEL_NOISE_DEVIATION = 0.52  # of a bin's magnitude, over its mean: Rayleigh's distribution, for a Gaussian spectrum


@dataclass(frozen=True)
class DrawnChanges:
    """The changes drawn for each row, [B] each. An unchanged row has speed 1, gain 0 and `is_noisy` False."""

    is_changed: tf.Tensor
    gain_db: tf.Tensor
    snr_db: tf.Tensor
    is_noisy: tf.Tensor
    speed: tf.Tensor


def draw_changes(settings: AugmentationConfig, number: tf.Tensor, rows: int) -> DrawnChanges:
    """Return the changes of `rows` rows for a seed number from `hash_of`."""

    def draw(stream: int, low: float, high: float) -> tf.Tensor:
        return tf.random.stateless_uniform([rows], tf.stack([number, stream]), low, high)

    is_changed = draw(_SHARE, 0.0, 1.0) < settings.share
    gain_db = draw(_GAIN, -settings.gain_db, settings.gain_db) if settings.gain_db else tf.zeros([rows])
    lowest = settings.noise_min_snr_db
    snr_db = tf.zeros([rows]) if lowest is None else draw(_SNR, lowest, settings.noise_max_snr_db)
    speed = (
        draw(_SPEED, 1 - settings.speed_change, 1 + settings.speed_change) if settings.speed_change else tf.ones([rows])
    )
    return DrawnChanges(
        is_changed,
        tf.where(is_changed, gain_db, 0.0),
        snr_db,
        is_changed & (lowest is not None),
        tf.where(is_changed, speed, 1.0),
    )


def change_wave(wave: tf.Tensor, settings: AugmentationConfig, number: tf.Tensor, max_samples: int) -> tf.Tensor:
    """Return the wave faster or slower, then louder or softer, then noisy: float32 [samples].

    The speed keeps it within `max_samples`, since nothing is cut to fit; the gain keeps it below full scale.
    """
    changes = draw_changes(settings, number, 1)
    if settings.speed_change:
        slowest = tf.minimum(1.0, tf.cast(tf.size(wave), tf.float32) / max_samples)
        speed = tf.maximum(changes.speed[0], slowest)
        wave = tf.cond(changes.is_changed[0] & (speed != 1.0), lambda: change_speed(wave, speed), lambda: wave)
    if settings.gain_db:
        peak = tf.reduce_max(tf.abs(wave))
        wave *= tf.minimum(tf.exp(_LOG_GAIN * changes.gain_db[0]), 1.0 / tf.maximum(peak, _TINY))
    if settings.noise_min_snr_db is not None:
        wave = tf.cond(changes.is_noisy[0], lambda: _noisy_wave(wave, changes.snr_db[0], number), lambda: wave)
    return wave


def _noisy_wave(wave: tf.Tensor, snr_db: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Add white Gaussian noise `snr_db` decibels below the clip's mean power."""
    level = tf.sqrt(tf.reduce_mean(tf.square(wave))) * tf.exp(-_LOG_GAIN * snr_db)
    return wave + level * tf.random.stateless_normal(tf.shape(wave), tf.stack([number, _NOISE]))


def mask_mels(mel_BTM: tf.Tensor, length_B: tf.Tensor, settings: AugmentationConfig, number: tf.Tensor) -> tf.Tensor:
    """Return log-mel frames with bands of time and frequency set to each bin's mean over the clip (SpecAugment).

    After Park et al. (2019). A mask covers at most a quarter of the clip or of the bins.
    """
    if not settings.time_masks and not settings.frequency_masks:
        return mel_BTM
    rows, frames, bins = mel_BTM.shape[0], tf.shape(mel_BTM)[1], mel_BTM.shape[2]
    is_real_BT = tf.sequence_mask(length_B, frames)
    frames_B = tf.cast(length_B, tf.float32)
    sum_BM = tf.reduce_sum(tf.where(is_real_BT[..., None], mel_BTM, 0.0), axis=1)
    mean_B1M = (sum_BM / tf.maximum(frames_B, 1.0)[:, None])[:, None]
    bins_B = tf.fill([rows], float(bins))
    time_seed, bin_seed = tf.stack([number, _TIME_MASKS]), tf.stack([number, _FREQUENCY_MASKS])
    time_BT = _bands(frames_B, frames, settings.time_masks, settings.time_mask_frames, time_seed)
    bin_BM = _bands(bins_B, bins, settings.frequency_masks, settings.frequency_mask_bins, bin_seed)
    is_masked_BTM = (time_BT[:, :, None] | bin_BM[:, None, :]) & is_real_BT[..., None]
    is_changed_B = draw_changes(settings, number, rows).is_changed
    return tf.where(is_masked_BTM & is_changed_B[:, None, None], mean_B1M, mel_BTM)


def _bands(length_B: tf.Tensor, size: tf.Tensor | int, count: int, widest: int, seed: tf.Tensor) -> tf.Tensor:
    """Return bool [B, size], True inside any of `count` bands, each up to `widest` wide and within the row's length."""
    drawn_2BN = tf.random.stateless_uniform([2, length_B.shape[0], count], seed)
    limit_B = tf.minimum(float(widest) + 1.0, tf.floor(_MAX_MASKED_SHARE * length_B) + 1.0)
    width_BN = tf.floor(drawn_2BN[0] * limit_B[:, None])
    start_BN = tf.floor(drawn_2BN[1] * (length_B[:, None] - width_BN + 1.0))
    place = tf.range(tf.cast(size, tf.float32))[None, :, None]
    return tf.reduce_any((place >= start_BN[:, None]) & (place < (start_BN + width_BN)[:, None]), axis=2)


class MelAugmentation:
    """The changes of `change_wave`, approximated on the mels of a cache.

    Speed stretches the frames in time, and the pitch stays. Gain shifts the logarithm. Noise adds the mel that white
    noise has, its level so many decibels below the clip's within the filters' range. Masks are the same.
    """

    def __init__(self, settings: AugmentationConfig, audio: AudioConfig, spec: RecordSpec) -> None:
        self._settings, self._spec = settings, spec
        filters = mel_filterbank(audio).astype(np.float64)
        area, square = filters.sum(axis=1), np.square(filters).sum(axis=1)
        heard = area > 0
        self._area = area.astype(np.float32)  # mel of a flat spectrum of 1
        self._inverse_area = np.where(heard, 1 / np.where(heard, area, 1.0), 0.0).astype(np.float32)
        # How many frequencies a filter averages.
        bins_each = np.where(heard, area**2 / np.where(heard, square, 1.0), 0.0)
        self._share = (bins_each / max(bins_each.sum(), 1.0)).astype(np.float32)
        self._jitter = (_MEL_NOISE_DEVIATION / np.sqrt(np.maximum(bins_each, 1.0))).astype(np.float32)

    def __call__(self, fields: dict[str, tf.Tensor], number: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return a batch's fields with `mel` and `mel_length` changed, for a seed number from `hash_of`."""
        settings, spec = self._settings, self._spec
        mel_BTM, length_B = tf.cast(fields["mel"], tf.float32), fields["mel_length"]
        changes = draw_changes(settings, number, mel_BTM.shape[0])
        if settings.speed_change:
            mel_BTM, length_B = _stretch(mel_BTM, length_B, changes.speed)
        if settings.gain_db:
            mel_BTM += _LOG_GAIN * changes.gain_db[:, None, None]
        if settings.noise_min_snr_db is not None:
            noisy_BTM = self._add_noise(mel_BTM, length_B, changes.snr_db, number)
            mel_BTM = tf.where(changes.is_noisy[:, None, None], noisy_BTM, mel_BTM)
        mel_BTM = mask_mels(mel_BTM, length_B, settings, number)
        is_real_BT1 = tf.sequence_mask(length_B, spec.max_mel_frames)[..., None]
        mel_BTM = tf.where(is_real_BT1, tf.maximum(mel_BTM, spec.pad_value), spec.pad_value)
        return {**fields, "mel": tf.cast(mel_BTM, tf.float16), "mel_length": length_B}

    def _add_noise(self, mel_BTM: tf.Tensor, length_B: tf.Tensor, snr_db_B: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        magnitude_BTM = tf.exp(mel_BTM)
        is_real_BT1 = tf.cast(tf.sequence_mask(length_B, mel_BTM.shape[1]), tf.float32)[..., None]
        power_BTM = tf.square(magnitude_BTM * self._inverse_area) * self._share * is_real_BT1
        power_B = tf.reduce_sum(power_BTM, axis=[1, 2]) / tf.maximum(tf.cast(length_B, tf.float32), 1.0)
        level_B = tf.sqrt(power_B) * tf.exp(-_LOG_GAIN * snr_db_B)
        jitter_BTM = 1.0 + self._jitter * tf.random.stateless_normal(mel_BTM.shape, tf.stack([number, _NOISE]))
        noise_BTM = level_B[:, None, None] * self._area * jitter_BTM
        return 0.5 * tf.math.log(tf.square(magnitude_BTM) + tf.square(noise_BTM) + _TINY**2)


def _stretch(mel_BTM: tf.Tensor, length_B: tf.Tensor, speed_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the frames at `speed` times the tempo, and their lengths, which never exceed the padded size."""
    frames = mel_BTM.shape[1]
    old_B = tf.cast(length_B, tf.float32)
    new_B = tf.clip_by_value(tf.round(old_B / speed_B), tf.minimum(old_B, 1.0), float(frames))
    # At speed 1 each frame stays exactly the same.
    step_B = tf.where(new_B > 1.0, (old_B - 1.0) / tf.maximum(new_B - 1.0, 1.0), 0.0)
    at_BT = tf.clip_by_value(
        tf.range(float(frames))[None] * step_B[:, None], 0.0, tf.maximum(old_B - 1.0, 0.0)[:, None]
    )
    below_BT = tf.cast(at_BT, tf.int32)
    above_BT = tf.minimum(below_BT + 1, tf.maximum(length_B - 1, 0)[:, None])
    low_BTM, high_BTM = (tf.gather(mel_BTM, place_BT, batch_dims=1) for place_BT in (below_BT, above_BT))
    return low_BTM + (at_BT - tf.cast(below_BT, tf.float32))[..., None] * (high_BTM - low_BTM), tf.cast(new_B, tf.int32)

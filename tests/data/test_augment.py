import numpy as np
import pytest
import tensorflow as tf

from tests.data.sounds import tone
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import AudioConfig, AugmentationConfig
from xtts_pipeline.data.augment import MelAugmentation, change_wave, draw_changes, mask_mels
from xtts_pipeline.data.order import hash_of
from xtts_pipeline.errors import ConfigError

AUDIO = AudioConfig()
SPEC = RecordSpec(max_text_length=6, max_mel_frames=120, mel_bins=80, pad_value=float(np.log(1e-5)))
WAVE = tone(1.0, 22_050).astype(np.float32)
ROOM = 10**6


def number(value: int = 1) -> tf.Tensor:
    return hash_of(7, "clip", tf.constant(value))


def fields(waves: list[np.ndarray]) -> dict[str, tf.Tensor]:
    """Return a cache's batch of waves."""
    mels = [log_mel(wave, AUDIO) for wave in waves]
    padded = [
        np.pad(mel, ((0, SPEC.max_mel_frames - len(mel)), (0, 0)), constant_values=SPEC.pad_value) for mel in mels
    ]
    lengths = tf.constant([len(mel) for mel in mels], tf.int32)
    return {
        "mel": tf.constant(np.stack(padded), tf.float16),
        "mel_length": lengths,
        "tokens": tf.zeros([len(waves), 6], tf.int32),
    }


def test_a_seed_depends_on_each_of_its_parts() -> None:
    seeds = {int(hash_of(seed, name, tf.constant(epoch))) for name in ("a", "b") for epoch in (0, 1) for seed in (0, 1)}
    assert len(seeds) == 8
    assert int(hash_of(0, "a", tf.constant(1))) == int(hash_of(0, tf.constant("a"), tf.constant(1, tf.int64)))
    # A resumed run needs the same order in every version of this package and of TensorFlow.
    assert int(hash_of("order", 7, tf.constant(2, tf.int64))) == 2066868331204447777


def test_nothing_is_changed_by_default() -> None:
    assert not AugmentationConfig().is_on
    assert AugmentationConfig(time_masks=1).is_on
    np.testing.assert_array_equal(change_wave(tf.constant(WAVE), AugmentationConfig(), number(), ROOM), WAVE)


def test_gain_is_drawn_between_its_bounds_and_never_clips() -> None:
    settings = AugmentationConfig(gain_db=6.0)
    gains = [
        20 * np.log10(np.abs(change_wave(tf.constant(WAVE), settings, number(n), ROOM)).max() / np.abs(WAVE).max())
        for n in range(40)
    ]
    assert -6.01 < min(gains) < -4
    assert 4 < max(gains) < 6.01
    loud = WAVE / np.abs(WAVE).max()
    assert all(np.abs(change_wave(tf.constant(loud), settings, number(n), ROOM)).max() <= 1.0 + 1e-6 for n in range(10))


def test_noise_has_the_power_of_its_signal_to_noise_ratio() -> None:
    settings = AugmentationConfig(noise_min_snr_db=20.0, noise_max_snr_db=20.0)
    noise = change_wave(tf.constant(WAVE), settings, number(), ROOM).numpy() - WAVE
    assert 10 * np.log10(np.mean(WAVE**2) / np.mean(noise**2)) == pytest.approx(20.0, abs=0.3)
    other = change_wave(tf.constant(WAVE), settings, number(2), ROOM).numpy() - WAVE
    assert abs(np.corrcoef(noise, other)[0, 1]) < 0.05


def test_speed_keeps_a_clip_within_its_longest_length() -> None:
    settings = AugmentationConfig(speed_change=0.3)
    lengths = [len(change_wave(tf.constant(WAVE), settings, number(n), 24_000)) for n in range(30)]
    assert max(lengths) <= 24_000
    assert max(lengths) > 23_500
    assert min(lengths) < 0.85 * len(WAVE)
    assert all(len(change_wave(tf.constant(WAVE), settings, number(n), 100)) <= len(WAVE) for n in range(5))


def test_a_share_of_the_clips_is_not_changed() -> None:
    changes = draw_changes(AugmentationConfig(share=0.3, gain_db=6.0, speed_change=0.1), number(), 2_000)
    is_changed = changes.is_changed.numpy()
    assert 0.25 < is_changed.mean() < 0.35
    assert (changes.gain_db.numpy()[~is_changed] == 0).all()
    assert (changes.speed.numpy()[~is_changed] == 1).all()


def test_one_change_does_not_alter_what_another_draws() -> None:
    alone = draw_changes(AugmentationConfig(gain_db=6.0), number(), 8).gain_db
    together = draw_changes(
        AugmentationConfig(gain_db=6.0, speed_change=0.1, noise_min_snr_db=10.0), number(), 8
    ).gain_db
    np.testing.assert_array_equal(alone, together)


def test_masks_are_bands_of_the_mean_within_the_clip() -> None:
    mel = np.random.default_rng(1).normal(-4.0, 1.0, (3, 60, 20)).astype(np.float32)
    lengths = np.array([60, 30, 8], np.int32)
    settings = AugmentationConfig(time_masks=1, time_mask_frames=10, frequency_masks=1, frequency_mask_bins=4)
    widest = [0, 0]
    for n in range(30):
        masked = mask_mels(tf.constant(mel), tf.constant(lengths), settings, number(n)).numpy()
        for row, length in enumerate(lengths):
            is_changed = masked[row] != mel[row]
            assert not is_changed[length:].any()
            frames, bins = is_changed[:length].all(axis=1), is_changed[:length].all(axis=0)
            for at in (frames, bins):
                assert np.count_nonzero(np.diff(np.flatnonzero(at)) > 1) == 0
            assert (is_changed[:length] == (frames[:, None] | bins[None, :])).all()
            mean = mel[row, :length].mean(axis=0)
            np.testing.assert_allclose(
                masked[row, :length][frames], np.broadcast_to(mean, (frames.sum(), 20)), rtol=1e-4
            )
            assert frames.sum() <= min(10, length // 4)
            widest = [max(widest[0], int(frames.sum())), max(widest[1], int(bins.sum()))]
    assert widest == [10, 4]


def test_rows_without_a_drawn_change_keep_their_mels() -> None:
    batch = fields([WAVE, WAVE[:9_000]])
    settings = AugmentationConfig(
        share=1e-9, gain_db=6.0, speed_change=0.2, noise_min_snr_db=10.0, time_masks=2, frequency_masks=2
    )
    changed = MelAugmentation(settings, AUDIO, SPEC)(batch, number())
    for name in batch:
        np.testing.assert_array_equal(changed[name], batch[name])


def test_gain_on_mels_is_gain_on_waves() -> None:
    settings = AugmentationConfig(gain_db=6.0)
    for n in range(5):
        gain_db = float(draw_changes(settings, number(n), 1).gain_db[0])
        mel = MelAugmentation(settings, AUDIO, SPEC)(fields([WAVE]), number(n))["mel"][0, :87].numpy()
        np.testing.assert_allclose(mel, log_mel(WAVE * np.float32(10 ** (gain_db / 20)), AUDIO), atol=0.02)


def test_noise_on_mels_is_near_noise_on_waves() -> None:
    settings = AugmentationConfig(noise_min_snr_db=10.0, noise_max_snr_db=10.0)
    flat = np.random.default_rng(3).normal(0.0, 0.1, 22_050).astype(np.float32)  # white, so both ratios mean the same
    by_wave = log_mel(change_wave(tf.constant(flat), settings, number(), ROOM).numpy(), AUDIO)
    by_mel = (
        MelAugmentation(settings, AUDIO, SPEC)(fields([flat]), number())["mel"][0, : len(by_wave)]
        .numpy()
        .astype(np.float32)
    )
    np.testing.assert_allclose(by_mel.mean(axis=0), by_wave.mean(axis=0), atol=0.15)
    quiet = fields([np.concatenate([WAVE, np.zeros(4_000, np.float32)])])
    louder = MelAugmentation(settings, AUDIO, SPEC)(quiet, number())["mel"][0].numpy()
    assert louder[95].mean() > quiet["mel"][0, 95].numpy().mean() + 3


def test_speed_on_mels_stretches_the_frames_within_the_longest_mel() -> None:
    settings = AugmentationConfig(speed_change=0.5)
    batch = fields([WAVE, WAVE[:12_000]])
    augmentation = MelAugmentation(settings, AUDIO, SPEC)
    lengths = np.array([augmentation(batch, number(n))["mel_length"].numpy() for n in range(30)])
    assert lengths.max() <= SPEC.max_mel_frames
    assert lengths[:, 0].min() < 70
    assert lengths[:, 1].max() > 60
    changed = augmentation(batch, number(3))
    for row in range(2):
        length = int(changed["mel_length"][row])
        assert (changed["mel"][row, length:].numpy() == np.float16(SPEC.pad_value)).all()
        np.testing.assert_array_equal(changed["mel"][row, 0], batch["mel"][row, 0])
        np.testing.assert_array_equal(
            changed["mel"][row, length - 1], batch["mel"][row, int(batch["mel_length"][row]) - 1]
        )


def test_rows_of_length_0_stay_empty() -> None:
    batch = fields([WAVE])
    empty = {
        **batch,
        "mel_length": tf.zeros([1], tf.int32),
        "mel": tf.fill(batch["mel"].shape, np.float16(SPEC.pad_value)),
    }
    settings = AugmentationConfig(gain_db=6.0, speed_change=0.2, noise_min_snr_db=10.0, time_masks=2, frequency_masks=2)
    changed = MelAugmentation(settings, AUDIO, SPEC)(empty, number())
    assert int(changed["mel_length"][0]) == 0
    np.testing.assert_array_equal(changed["mel"], empty["mel"])


def test_bounds_in_the_wrong_order_are_an_error() -> None:
    with pytest.raises(ConfigError, match="noise_min_snr_db=50 is over noise_max_snr_db=40"):
        load_config(overrides=["augmentation.noise_min_snr_db=50.0"])

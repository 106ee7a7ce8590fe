import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import MODEL, SYMBOL_COUNT
from xtts_pipeline.audio.mel import PCM_SCALE, log_mel
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.evaluation.pitch import find_pitch
from xtts_pipeline.model.architecture import NetworkSizes
from xtts_pipeline.model.batch import Batch, References, to_network_scale
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network, mean_voice
from xtts_pipeline.model.pitch import REFERENCE_HZ, Pitch, PitchFinder, harmonics, stretched_octaves

AUDIO = AudioConfig()
# A longer window and narrower bins than the default, for low voices.
FINE_AUDIO = AudioConfig(mel_bins=128, fft_size=2048, window_samples=1536)
FRAMES_PER_TOKEN = 10


def find(
    wave: np.ndarray, audio: AudioConfig = AUDIO, frames_per_token: int = FRAMES_PER_TOKEN
) -> tuple[np.ndarray, np.ndarray]:
    """Return voicing and pitch in Hz of tokens of so many frames each, without those at both ends."""
    mel = log_mel(wave.astype(np.float32), audio)
    mel = mel[: len(mel) // frames_per_token * frames_per_token]
    posterior = np.repeat(np.eye(len(mel) // frames_per_token, dtype=np.float32), frames_per_token, axis=0)
    pitch = PitchFinder(audio)(to_network_scale(tf.constant(mel[None])), tf.constant(posterior[None]))
    voicing, octaves = pitch.voicing.numpy()[0, 1:-1], pitch.octaves.numpy()[0, 1:-1]
    return voicing, REFERENCE_HZ * 2.0**octaves


def buzz(hz: float, seconds: float = 1.0, odd_level: float = 1.0) -> np.ndarray:
    """Return a tone of harmonics that fall by 6 dB an octave, of which the odd ones have this level."""
    time = np.arange(int(seconds * AUDIO.sample_rate)) / AUDIO.sample_rate
    harmonics = np.arange(1, int(8_000 / hz))
    levels = np.where(harmonics % 2, odd_level, 1.0) / harmonics
    return 0.1 * (levels[:, None] * np.sin(2 * np.pi * hz * harmonics[:, None] * time)).sum(axis=0)


@pytest.mark.parametrize("hz", [90.0, 120.0, 173.0, 240.0, 390.0])
def test_the_pitch_of_harmonics_is_found_within_three_percent(hz: float) -> None:
    voicing, found_hz = find(buzz(hz))
    assert voicing.min() > 0.9
    assert found_hz == pytest.approx(np.full(len(found_hz), hz), rel=0.03)


@pytest.mark.parametrize("hz", [60.0, 90.0, 150.0, 240.0, 380.0, 430.0])
def test_no_multiple_and_no_part_of_a_pitch_is_taken_for_it(hz: float) -> None:
    _, found_hz = find(buzz(hz), FINE_AUDIO)
    assert found_hz == pytest.approx(np.full(len(found_hz), hz), rel=0.03)


def test_a_token_whose_odd_harmonics_are_hardly_there_has_the_pitch_of_its_clip() -> None:
    weak = buzz(100.0, odd_level=0.05)
    assert find(weak, FINE_AUDIO)[1] == pytest.approx(200.0, rel=0.03)
    _, found_hz = find(np.concatenate([buzz(100.0, 3.0), weak]), FINE_AUDIO)
    assert found_hz == pytest.approx(100.0, rel=0.03)


@pytest.mark.parametrize("hz", [100.0, 400.0])
def test_a_clear_pitch_an_octave_from_that_of_its_clip_is_found(hz: float) -> None:
    voicing, found_hz = find(np.concatenate([buzz(200.0, 3.0), buzz(hz)]), FINE_AUDIO)
    assert found_hz[-5:] == pytest.approx(hz, rel=0.03)
    assert voicing[-5:] == pytest.approx(find(buzz(hz), FINE_AUDIO)[0][-5:], abs=0.05)


def clip_octaves(waves: list[np.ndarray], frames: list[int]) -> np.ndarray:
    """Return the pitch of the first frames of clips, in octaves above 150 Hz."""
    mels = [log_mel(wave.astype(np.float32), FINE_AUDIO) for wave in waves]
    mel = to_network_scale(tf.stack([mel[: len(mels[0])] for mel in mels]))
    return PitchFinder(FINE_AUDIO).of_clips(mel, tf.sequence_mask(frames, mel.shape[1])).numpy()


@pytest.mark.parametrize("hz", [60.0, 90.0, 150.0, 240.0, 380.0])
def test_the_pitch_of_a_clip_is_that_of_its_voiced_frames(hz: float) -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal(FINE_AUDIO.sample_rate)
    octaves = clip_octaves([np.concatenate([buzz(hz), noise])], [180])
    assert REFERENCE_HZ * 2.0**octaves == pytest.approx(hz, rel=0.03)


def test_frames_after_the_end_of_a_clip_do_not_change_its_pitch() -> None:
    low, high = buzz(100.0), buzz(300.0, 3.0)
    both = np.concatenate([low, high])
    octaves = clip_octaves([both, both], [70, 350])
    assert REFERENCE_HZ * 2.0**octaves == pytest.approx([100.0, 300.0], rel=0.03)


def test_noise_silence_and_no_frames_have_no_pitch_as_clips() -> None:
    noise = 0.1 * np.random.default_rng(1).standard_normal(FINE_AUDIO.sample_rate // 4)
    waves = [noise, np.zeros_like(noise), buzz(100.0, 0.25)]
    assert clip_octaves(waves, [20, 20, 0]).tolist() == [0.0, 0.0, 0.0]


def test_a_voice_holds_the_pitch_of_its_reference_and_in_training_that_of_the_clip() -> None:
    spec = RecordSpec(max_text_length=4, max_mel_frames=40, mel_bins=AUDIO.mel_bins, pad_value=-11.5)
    network, dropout = Network(MODEL, AUDIO, NetworkSizes(spec, SYMBOL_COUNT)), Dropout.fixed(0)
    mel = tf.stack([log_mel(buzz(hz).astype(np.float32), AUDIO)[:40] for hz in (100.0, 240.0, 300.0)])
    heard = References(tf.reverse(mel, [0])[:, :30], tf.constant([30, 20, 0]))
    voice = network.embed_voice(heard.mel[:, None], heard.length[:, None], dropout).numpy()
    assert REFERENCE_HZ * 2.0 ** voice[:2, :, 0] == pytest.approx(np.repeat([[300.0], [240.0]], 4, axis=1), rel=0.03)
    lengths = tf.constant([4, 4, 4])
    batch = Batch(tf.ones([3, 4], tf.int32), tf.cast(mel, tf.float16), lengths, tf.constant([40, 35, 40]))
    trained = network.encode_clips(batch, heard, dropout).voice.numpy()
    # The last clip has no reference.
    expected = np.repeat([[100.0], [240.0], [REFERENCE_HZ]], 4, axis=1)
    assert REFERENCE_HZ * 2.0 ** trained[..., 0] == pytest.approx(expected, rel=0.03)
    np.testing.assert_array_equal(trained[:2, :, 1:], voice[:2, :, 1:])


def test_a_window_without_voice_leaves_the_pitch_of_the_reference_alone() -> None:
    spec = RecordSpec(max_text_length=4, max_mel_frames=40, mel_bins=AUDIO.mel_bins, pad_value=-11.5)
    network = Network(MODEL, AUDIO, NetworkSizes(spec, SYMBOL_COUNT))
    noise = 0.1 * np.random.default_rng(1).standard_normal(AUDIO.sample_rate // 2)
    windows = tf.stack([log_mel(wave.astype(np.float32), AUDIO)[:40] for wave in (buzz(300.0), noise)])[None]
    voice = network.embed_voice(windows, tf.constant([[40, 40]]), Dropout.fixed(0)).numpy()
    assert REFERENCE_HZ * 2.0 ** voice[..., 0] == pytest.approx(np.full([1, 4], 300.0), rel=0.03)


@pytest.mark.parametrize(("octaves", "mean"), [([0.5, 0.0, -0.1], 0.2), ([0.0, 0.0], 0.0), ([0.3], 0.3)])
def test_a_clip_without_voice_leaves_the_pitch_of_the_other_references_alone(octaves: list[float], mean: float) -> None:
    voices = np.random.default_rng(1).standard_normal([len(octaves), 4, 3]).astype(np.float32)
    voices[..., 0] = np.array(octaves)[:, None]
    found = mean_voice(voices).numpy()
    assert found[:, 0] == pytest.approx(np.full(4, mean))
    np.testing.assert_allclose(found[:, 1:], voices[..., 1:].mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(("voice", "audio"), [("ian", FINE_AUDIO), ("linda", FINE_AUDIO), ("linda", AUDIO)])
def test_the_pitch_of_a_clip_is_near_its_median_by_probabilistic_yin(voice: str, audio: AudioConfig) -> None:
    with EspeakVoice(f"en-us+{voice}") as speaker:
        wave = speaker.speak("How many years ago did you learn to row a boat on a lake near a mill?") / PCM_SCALE
    mel = to_network_scale(log_mel(wave.astype(np.float32), audio))[None]
    octaves = PitchFinder(audio).of_clips(mel, tf.ones(mel.shape[:2], tf.bool))
    assert REFERENCE_HZ * 2.0 ** octaves.numpy() == pytest.approx(np.nanmedian(find_pitch(wave, audio)), rel=0.05)


def test_mels_without_a_bin_below_1000_hz_have_a_pitch_that_is_a_number() -> None:
    audio = AudioConfig(min_hz=1_500.0)
    posterior = tf.ones([1, 10, 1])
    assert np.isfinite(PitchFinder(audio)(tf.zeros([1, 10, audio.mel_bins]), posterior).octaves).all()


@pytest.mark.parametrize(("voice", "audio"), [("ian", FINE_AUDIO), ("linda", FINE_AUDIO), ("linda", AUDIO)])
def test_the_pitch_of_a_low_and_of_a_high_voice_is_that_of_probabilistic_yin(voice: str, audio: AudioConfig) -> None:
    with EspeakVoice(f"en-us+{voice}") as speaker:
        wave = speaker.speak("How many years ago did you learn to row a boat on a lake near a mill?") / PCM_SCALE
    _, found_hz = find(wave, audio, frames_per_token=4)
    true_hz = find_pitch(wave, audio)[4 : 4 + 4 * len(found_hz)].reshape(-1, 4).mean(axis=1)
    is_voiced = np.isfinite(true_hz)
    assert is_voiced.sum() > 20
    assert np.mean(np.abs(found_hz[is_voiced] / true_hz[is_voiced] - 1.0) < 0.06) > 0.9


def test_harmonics_have_peaks_at_the_multiples_of_the_pitch() -> None:
    # Frequencies are 31.25 Hz apart, so 250 Hz is the eighth.
    octaves = np.log2(250.0 / REFERENCE_HZ)
    comb = harmonics(Pitch(tf.constant([[1.0, 0.5]]), tf.constant([[octaves, octaves]], tf.float32))).numpy()[0]
    assert comb[0, 7::8] == pytest.approx(np.ones(8), abs=1e-4)
    assert comb[0, 3::8] == pytest.approx(-np.ones(8), abs=1e-4)
    np.testing.assert_allclose(comb[1], 0.5 * comb[0], atol=1e-4)


@pytest.mark.parametrize("voicing", [0.0, -0.2, 1e-6])
def test_a_token_without_pitch_has_no_harmonics(voicing: float) -> None:
    comb = harmonics(Pitch(tf.constant([[voicing]]), tf.constant([[3.0]])))
    assert np.abs(comb).max() <= 1e-6


@pytest.mark.parametrize(("factor", "expected"), [(1.0, [0.5, 1.5, -9.0]), (2.0, [0.25, 2.25, -18.75]), (0.0, 0.75)])
def test_octaves_are_stretched_around_their_mean_over_the_voiced_time(
    factor: float, expected: float | list[float]
) -> None:
    pitch = Pitch(tf.constant([[0.9, 0.6, -0.2]]), tf.constant([[0.5, 1.5, -9.0]]))
    stretched = stretched_octaves(pitch, tf.constant([[4.0, 2.0, 7.0]]), factor)
    np.testing.assert_allclose(stretched[0], np.broadcast_to(expected, 3), rtol=1e-6)


def test_the_octaves_of_an_unvoiced_text_are_numbers() -> None:
    pitch = Pitch(tf.zeros([1, 2]), tf.constant([[0.5, -1.0]]))
    assert np.isfinite(stretched_octaves(pitch, tf.ones([1, 2]), 2.0)).all()


def test_noise_is_not_voiced() -> None:
    voicing, _ = find(0.1 * np.random.default_rng(1).standard_normal(AUDIO.sample_rate))
    assert voicing.max() < 0.5
    assert np.median(voicing) < 0.2


def test_a_token_without_frames_has_a_pitch_that_is_a_number(network: Network) -> None:
    bins = network.mel_bins
    pitch = network.pitch_finder(tf.zeros([1, 4, bins]), tf.zeros([1, 4, 2]))
    assert np.isfinite(pitch.voicing).all()
    assert np.isfinite(pitch.octaves).all()

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.network import Batch, Network

from .conftest import MODEL, SPEC, SYMBOL_COUNT, random_batch


def test_mel_scale_has_an_inverse() -> None:
    mel = tf.constant([-11.5, 0.0, 2.0])
    np.testing.assert_allclose(Network.from_network_scale(Network.to_network_scale(mel)), mel, atol=1e-6)


def test_prediction_has_the_target_s_frames_in_whole_steps(network: Network, batch: Batch, dropout: Dropout) -> None:
    prediction = network(batch, dropout)
    assert prediction.coarse.shape == prediction.fine.shape == (3, 21, 5)  # 20 frames, rounded up to whole steps of 3
    assert prediction.stop_logit.shape == (3, 7)
    assert prediction.attention.shape == (2, 3, 2, 7, 9)


@pytest.mark.parametrize("frame", [0, 1, 5, 6, 13, 19])
def test_teacher_forcing_is_causal(network: Network, batch: Batch, dropout: Dropout, frame: int) -> None:
    mel = batch.mel.numpy()
    mel[:, frame:] += 3.0
    before, after = network(batch, dropout), network(batch._replace(mel=tf.constant(mel)), dropout)
    for name in ("coarse", "fine"):
        np.testing.assert_array_equal(getattr(before, name)[:, :frame], getattr(after, name)[:, :frame])
    steps = -(-frame // MODEL.frames_per_step)
    np.testing.assert_array_equal(before.stop_logit[:, :steps], after.stop_logit[:, :steps])


def test_later_frames_do_depend_on_earlier_ones(network: Network, batch: Batch, dropout: Dropout) -> None:
    mel = batch.mel.numpy()
    mel[:, 2] += 3.0
    before, after = network(batch, dropout), network(batch._replace(mel=tf.constant(mel)), dropout)
    assert np.abs(before.coarse[0, 3:] - after.coarse[0, 3:]).max() > 1e-3


def test_attention_looks_at_real_tokens_only(network: Network, batch: Batch, dropout: Dropout) -> None:
    attention = network(batch, dropout).attention.numpy()
    is_real = length_mask(batch.text_length, SPEC.max_text_length).numpy()
    assert np.all(attention[:, ~is_real[:, None, None].repeat(2, 1).repeat(7, 2)] == 0.0)
    np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-5)


def test_the_text_reaches_the_mel(network: Network, batch: Batch, dropout: Dropout) -> None:
    other = batch._replace(tokens=tf.where(batch.tokens > 2, SYMBOL_COUNT + 2 - batch.tokens, batch.tokens))
    assert np.abs(network(batch, dropout).fine - network(other, dropout).fine).max() > 1e-3


def test_one_row_does_not_depend_on_the_others(network: Network) -> None:
    alone, together = random_batch(SPEC, (9,), (20,)), random_batch(SPEC, (9, 4), (20, 7))
    dropout = Dropout(tf.constant(3, tf.uint32), is_training=False)
    np.testing.assert_allclose(network(together, dropout).fine[:1], network(alone, dropout).fine, atol=1e-5)


@pytest.mark.parametrize("is_training", [True, False])
def test_cached_decoding_equals_uncached(network: Network, batch: Batch, is_training: bool) -> None:
    dropout = Dropout(tf.constant(3, tf.uint32), is_training)
    decoder = network.mel_decoder
    text = network.text_encoder(batch.tokens, batch.text_length, dropout)
    mask = length_mask(batch.text_length, SPEC.max_text_length)
    previous = tf.random.stateless_normal([3, network.max_steps, SPEC.mel_bins], [1, 2])
    frames, stop, attention = decoder.decode_all(previous, text, mask, dropout)
    cache = decoder.start_cache(text)
    for step in range(network.max_steps):
        one_frames, one_stop, one_attention, cache = decoder.decode_step(previous[:, step], tf.constant(step), cache, mask, dropout)
        start = step * MODEL.frames_per_step
        np.testing.assert_allclose(one_frames, frames[:, start : start + MODEL.frames_per_step], atol=1e-4)
        np.testing.assert_allclose(one_stop, stop[:, step], atol=1e-4)
        np.testing.assert_allclose(one_attention, attention[..., step, :], atol=1e-4)


def test_speaking_agrees_with_teacher_forcing_on_its_own_frames(network: Network, batch: Batch) -> None:
    dropout = Dropout(tf.constant(3, tf.uint32), is_training=False)
    speech = network.speak(batch, dropout, tf.fill([3], SPEC.max_mel_frames), stop_threshold=0.999)
    # The decoder hears its coarse frames; without a postnet fine and coarse are the same.
    network.postnet.layers = []
    coarse = network.speak(batch, dropout, tf.fill([3], SPEC.max_mel_frames), stop_threshold=0.999)
    forced = network(batch._replace(mel=coarse.mel[:, : SPEC.max_mel_frames]), dropout)
    frames = slice(0, SPEC.max_mel_frames)
    np.testing.assert_allclose(network.from_network_scale(forced.fine)[:, frames], coarse.mel[:, frames], atol=1e-3)
    assert speech.mel.shape == coarse.mel.shape == (3, 21, 5)


def test_the_stop_is_honoured(network: Network, batch: Batch) -> None:
    dropout = Dropout(tf.constant(3, tf.uint32), is_training=False)
    network.mel_decoder.to_stop.bias.assign([30.0])
    speech = network.speak(batch, dropout, tf.fill([3], SPEC.max_mel_frames), stop_threshold=0.5)
    assert speech.mel_length.numpy().tolist() == [3, 3, 3]
    assert speech.has_stopped.numpy().all()
    np.testing.assert_array_equal(speech.mel[:, 3:], tf.fill([3, 18, 5], SPEC.pad_value))


def test_a_cap_ends_speech_that_does_not_stop(network: Network, batch: Batch) -> None:
    dropout = Dropout(tf.constant(3, tf.uint32), is_training=False)
    network.mel_decoder.to_stop.bias.assign([-30.0])
    speech = network.speak(batch, dropout, tf.constant([4, 9, 20]), stop_threshold=0.5)
    assert speech.mel_length.numpy().tolist() == [4, 9, 20]
    np.testing.assert_array_equal(speech.mel[0, 4:], tf.fill([17, 5], SPEC.pad_value))
    assert not speech.has_stopped.numpy().any()


def test_speakers_and_languages_change_the_voice(batch: Batch, dropout: Dropout) -> None:
    network = Network(MODEL, SPEC, SYMBOL_COUNT, speakers=3, languages=2, seed=1)
    first = batch._replace(speaker=tf.constant([0, 0, 0]), language=tf.constant([0, 0, 0]))
    for other in (first._replace(speaker=tf.constant([1, 1, 1])), first._replace(language=tf.constant([1, 1, 1]))):
        assert np.abs(network(first, dropout).fine - network(other, dropout).fine).max() > 1e-4

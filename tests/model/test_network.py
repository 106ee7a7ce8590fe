import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, SYMBOL_COUNT, make_network, no_reference, predict, random_batch
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.model.batch import Batch, Crop, from_network_scale, to_network_scale
from xtts_pipeline.model.durations import cut_durations
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Memory, Network, Speech

LIMIT = 1_000
DROPOUT = Dropout.fixed(3)


def encode(network: Network, batch: Batch) -> Memory:
    return network.encode(batch, network.null_voice[None], tf.zeros([batch.tokens.shape[0]], tf.bool), DROPOUT)


def test_mel_scale_has_an_inverse() -> None:
    mel = tf.constant([-11.5, 0.0, 2.0])
    np.testing.assert_allclose(from_network_scale(to_network_scale(mel)), mel, atol=1e-6)


def test_the_mel_depends_on_the_text(network: Network, batch: Batch, crop: Crop, dropout: Dropout) -> None:
    other = batch._replace(tokens=tf.where(batch.tokens > 2, SYMBOL_COUNT + 2 - batch.tokens, batch.tokens))
    assert np.abs(predict(network, batch, crop, dropout) - predict(network, other, crop, dropout)).max() > 1e-3


def test_one_row_does_not_depend_on_the_others(network: Network) -> None:
    alone, together = random_batch(SPEC, (9,), (20,)), random_batch(SPEC, (9, 4), (20, 7))
    both, one = (
        predict(network, batch, network.choose_crops(batch.mel_length, DROPOUT, 0.0), DROPOUT)
        for batch in (together, alone)
    )
    np.testing.assert_allclose(both[:1], one, atol=1e-5)


def test_a_reference_lies_within_its_clip(network: Network) -> None:
    lengths = tf.constant([0, 1, 2, 7, 15, 16, 20])
    for key in range(20):
        dropout = Dropout(tf.constant(key, tf.uint32), is_training=True)
        crop = network.choose_crops(lengths, dropout, reference_dropout=0.0)
        assert crop.length.numpy().tolist() == [0, 0, 1, 3, 7, 8, 8]
        assert (crop.first_frame >= 0).numpy().all()
        assert (crop.first_frame + crop.length <= tf.maximum(lengths, 1)).numpy().all()


def test_a_share_of_the_rows_has_no_reference(network: Network) -> None:
    dropout = Dropout(tf.constant(5, tf.uint32), is_training=True)
    crop = network.choose_crops(tf.fill([2_000], 20), dropout, reference_dropout=0.3)
    assert np.mean(crop.length.numpy() == 0) == pytest.approx(0.3, abs=0.04)
    assert set(crop.first_frame.numpy()) == set(range(13))  # each of 13 places for 8 frames of 20


def test_the_voice_depends_on_the_real_frames_of_the_reference_only(
    network: Network, batch: Batch, dropout: Dropout
) -> None:
    window = tf.random.stateless_normal([3, 1, 8, 5], [1, 2], -5.0, 2.0)
    changed = tf.concat([window[:, :, :4], window[:, :, 4:] + 9.0], axis=2)
    lengths = tf.constant([[4], [4], [4]])
    voice = network.embed_voice(window, lengths, dropout)
    assert voice.shape == (3, 4, 16)
    np.testing.assert_array_equal(voice, network.embed_voice(changed, lengths, dropout))
    assert np.abs(voice - network.embed_voice(changed, tf.constant([[6], [6], [6]]), dropout)).max() > 1e-3


def test_the_voice_is_the_mean_over_the_heard_windows_of_the_reference(network: Network) -> None:
    window = tf.random.stateless_normal([1, 3, 8, 5], [1, 2], -5.0, 2.0)
    voice = network.embed_voice(window, tf.constant([[8, 0, 6]]), DROPOUT)
    first = network.embed_voice(window[:, :1], tf.constant([[8]]), DROPOUT)
    last = network.embed_voice(window[:, 2:], tf.constant([[6]]), DROPOUT)
    np.testing.assert_allclose(voice[..., 1:], (first + last)[..., 1:] / 2.0, atol=1e-5)


def test_the_mel_depends_on_the_reference(network: Network, batch: Batch, dropout: Dropout) -> None:
    crop = Crop(tf.constant([12, 0, 7]), tf.constant([4, 0, 4]))
    reference = network.own_references(batch, crop)
    assert reference is not None
    louder = reference._replace(mel=reference.mel + 3.0)
    before, after = (network(batch, heard, dropout).decoded.coarse.numpy() for heard in (reference, louder))
    # The second row has no reference.
    assert (np.abs(before - after).max(axis=(1, 2)) > 1e-4).tolist() == [True, False, True]


def test_a_network_without_voice_latents_has_no_voice_encoder(batch: Batch, dropout: Dropout) -> None:
    network = make_network(voice_latents=0)
    assert not any("voice" in variable.name for variable in network.trainable_variables)
    crop = network.choose_crops(batch.mel_length, dropout, reference_dropout=0.0)
    assert crop.length.numpy().tolist() == [0, 0, 0]
    # 20 frames of 5 bins, in whole steps of 3.
    assert predict(network, batch, crop, dropout).shape == (3, 7, 15)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_lower_precision_is_near_float32(
    network: Network, batch: Batch, crop: Crop, dropout: Dropout, dtype: tf.DType
) -> None:
    low = make_network(dtype=dtype)
    prediction = low(batch, low.own_references(batch, crop), dropout)
    assert prediction.decoded.coarse.dtype == tf.float32
    assert {tensor.dtype for tensor in (*prediction.prosody, *prediction.measured)} == {tf.float32}
    difference = np.abs(prediction.decoded.coarse - predict(network, batch, crop, dropout))
    assert difference.mean() < 0.05


def test_speakers_and_languages_change_the_voice(batch: Batch, crop: Crop, dropout: Dropout) -> None:
    network = make_network(speakers=3, languages=2)
    first = batch._replace(speaker=tf.constant([0, 0, 0]), language=tf.constant([0, 0, 0]))

    def is_different(other: Batch) -> list[bool]:
        difference = predict(network, first, crop, dropout) - predict(network, other, crop, dropout)
        different: list[bool] = (np.abs(difference).max(axis=(1, 2)) > 1e-4).tolist()
        return different

    # Only rows without a reference get the speaker's vector; all rows get the language's.
    assert is_different(first._replace(speaker=tf.constant([1, 1, 1]))) == [False, False, True]
    assert is_different(first._replace(language=tf.constant([1, 1, 1]))) == [True, True, True]


def test_a_language_changes_each_token_in_its_own_way(batch: Batch, dropout: Dropout) -> None:
    network = make_network(languages=2)
    has_reference = no_reference(batch).length > 0
    texts = [
        network.encode(
            batch._replace(language=tf.fill([3], language)), network.null_voice[None], has_reference, dropout
        ).text
        for language in (0, 1)
    ]
    difference = (texts[1] - texts[0])[0]
    assert float(tf.reduce_min(tf.reduce_max(tf.abs(difference - tf.reduce_mean(difference, axis=0)), axis=-1))) > 0.05


@pytest.mark.parametrize("chunk_frames", [5, 64])
@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_chunks_equal_whole_speech(network: Network, chunk_frames: int, speed: float) -> None:
    # Random durations, about three frames a token.
    projection = network.predictor.projection
    projection.weight.assign(0.1 * projection.weight)
    projection.bias.assign([1.1, 0.0, 0.0, 0.0])
    settings = SynthesisConfig()
    memory = encode(network, random_batch(SPEC, (5, 4, 2), (20, 7, 12)))
    limit = tf.fill([3], LIMIT)
    plan, step = network.begin_speech(memory, settings, speed), tf.constant(0)
    mels, is_speaking = [], True
    while is_speaking:
        step, chunk = network.continue_speech(plan, step, DROPOUT, limit, chunk_frames, settings)
        mels.append(chunk.mel)
        is_speaking = bool(tf.reduce_any(chunk.is_speaking))
    mel, lengths = np.concatenate(mels, axis=1), plan.length.numpy()
    assert chunk.length.numpy().tolist() == lengths.tolist()
    assert chunk.has_stopped.numpy().all()
    _, expected = network.continue_speech(plan, tf.constant(0), DROPOUT, limit, mel.shape[1], settings)
    for row, frames in enumerate(lengths):
        np.testing.assert_allclose(mel[row, :frames], expected.mel[row, :frames], atol=1e-4)
    if speed == 1.0:
        speech = network.speak(memory, DROPOUT, limit, settings)
        assert speech.mel_length.numpy().tolist() == lengths.tolist()
        np.testing.assert_allclose(speech.duration, plan.timing.duration)
        for row, frames in enumerate(lengths):
            np.testing.assert_allclose(speech.mel[row, :frames], expected.mel[row, :frames], atol=1e-4)
            assert (speech.mel[row, frames:].numpy() == np.float32(SPEC.pad_value)).all()


def test_a_frame_limit_cuts_and_says_so(network: Network) -> None:
    memory = encode(network, random_batch(SPEC, (6, 2), (20, 7)))
    plan = network.begin_speech(memory, SynthesisConfig())
    limit = tf.stack([plan.length[0] - 1, plan.length[1]])
    _, chunk = network.continue_speech(plan, tf.constant(0), DROPOUT, limit, 64, SynthesisConfig())
    assert chunk.length.numpy().tolist() == limit.numpy().tolist()
    assert chunk.has_stopped.numpy().tolist() == [False, True]
    speech = network.speak(memory, DROPOUT, limit, SynthesisConfig())
    assert speech.has_stopped.numpy().tolist() == [False, True]
    cut = cut_durations(speech.duration[0].numpy(), int(limit[0]))
    assert cut.sum() == pytest.approx(float(limit[0]))
    is_before = np.cumsum(speech.duration[0]) <= float(limit[0])
    assert is_before.sum() >= 4
    np.testing.assert_allclose(cut[is_before], speech.duration[0][is_before], rtol=1e-6)


def test_compiled_speech_equals_eager_speech(network: Network, batch: Batch) -> None:
    memory = encode(network, batch)

    def say(*parts: tf.Tensor) -> Speech:
        return network.speak(Memory(*parts), DROPOUT, tf.fill([3], LIMIT), SynthesisConfig())

    eager, compiled = say(*memory), tf.function(say, jit_compile=True, autograph=False)(*memory)
    np.testing.assert_allclose(compiled.mel, eager.mel, atol=1e-3)
    np.testing.assert_array_equal(compiled.mel_length, eager.mel_length)


@pytest.mark.parametrize("places", [(1,), (2, 0), (2, 1, 0)])
def test_speech_does_not_depend_on_the_other_rows_or_its_place(
    network: Network, batch: Batch, places: tuple[int, ...]
) -> None:
    limit = tf.constant([20, 7, 12])
    whole = network.speak(encode(network, batch), DROPOUT, limit, SynthesisConfig())
    chosen = Batch(*(None if part is None else tf.gather(part, places) for part in batch))
    some = network.speak(encode(network, chosen), DROPOUT, tf.gather(limit, places), SynthesisConfig())
    np.testing.assert_allclose(some.mel, tf.gather(whole.mel, places), atol=1e-3)
    assert some.mel_length.numpy().tolist() == tf.gather(whole.mel_length, places).numpy().tolist()


def test_an_octave_up_is_what_a_predicted_pitch_an_octave_higher_is(network: Network) -> None:
    memory = encode(network, random_batch(SPEC, (5, 4), (20, 7)))
    plain = network.begin_speech(memory, SynthesisConfig()).tokens
    higher = network.begin_speech(memory, SynthesisConfig(), semitones=12.0).tokens
    bias = network.predictor.projection.bias
    bias.assign_add([0.0, 0.0, 0.0, 1.0])  # the octaves
    np.testing.assert_allclose(higher, network.begin_speech(memory, SynthesisConfig()).tokens, atol=1e-5)
    assert np.abs(higher - plain).max() > 1e-2


def test_the_predicted_pitch_is_a_distance_from_that_of_the_reference(network: Network) -> None:
    batch, has_reference = random_batch(SPEC, (5, 4), (20, 7)), tf.constant([True, True])
    voice = network.embed_voice(tf.cast(batch.mel[:, None, :8], tf.float32), tf.constant([[8], [6]]), DROPOUT)
    higher_voice = tf.concat([voice[..., :1] + 0.5, voice[..., 1:]], axis=-1)
    # The pitch of the reference reaches the tokens by no other way.
    weight = network.voice_to_tokens.weight
    weight.assign(tf.concat([tf.zeros_like(weight[:1]), weight[1:]], axis=0))
    plain, higher = (network.encode(batch, latents, has_reference, DROPOUT) for latents in (voice, higher_voice))
    expected = network.begin_speech(plain, SynthesisConfig(), semitones=6.0).tokens
    np.testing.assert_allclose(network.begin_speech(higher, SynthesisConfig()).tokens, expected, atol=1e-5)
    assert np.abs(network.begin_speech(plain, SynthesisConfig()).tokens - expected).max() > 1e-2


def test_the_null_voice_has_no_pitch(network: Network) -> None:
    memory = encode(network, random_batch(SPEC, (5, 4), (20, 7)))
    assert not np.any(memory.voice[..., 0])
    assert np.all(memory.voice[..., 1:])


def test_pitch_range_moves_the_pitch_further_from_its_mean_and_changes_no_duration(network: Network) -> None:
    memory = encode(network, random_batch(SPEC, (5, 4), (20, 7)))
    plain = network.begin_speech(memory, SynthesisConfig())
    wide = network.begin_speech(memory, SynthesisConfig(pitch_range=2.0))
    np.testing.assert_array_equal(wide.timing.duration, plain.timing.duration)
    assert np.abs(wide.tokens - plain.tokens).max() > 1e-3


def test_the_decoder_is_trained_on_the_prosody_of_the_recording(
    network: Network, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    before = predict(network, batch, crop, dropout)
    bias = network.predictor.projection.bias
    bias.assign_add(tf.ones_like(bias))  # all that is predicted
    np.testing.assert_array_equal(predict(network, batch, crop, dropout), before)

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, hold_alignment, random_batch
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.model.autoregressive.decoding import CHUNK_STEPS, begin_speech, continue_speech, speak
from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork
from xtts_pipeline.model.decoding import Speech, sharpening_matrix
from xtts_pipeline.model.layers import Attention, Dropout, Initializer
from xtts_pipeline.model.network import Batch, Crop, Memory

SETTINGS = SynthesisConfig(attention_back=1, attention_ahead=3)
DROPOUT = Dropout.fixed(3)


@pytest.fixture
def memory(network: AutoregressiveNetwork, batch: Batch) -> Memory:
    return encode(network, batch)


def encode(network: AutoregressiveNetwork, batch: Batch) -> Memory:
    rows = batch.tokens.shape[0]
    return network.encode(batch, network.null_voice[None], tf.zeros([rows], tf.bool), DROPOUT)


def never_stop(network: AutoregressiveNetwork) -> None:
    network.mel_decoder.to_stop.bias.assign([-30.0])


def full(rows: int) -> tf.Tensor:
    return tf.fill([rows], SPEC.max_mel_frames)


def speak_in_chunks(
    network: AutoregressiveNetwork, memory: Memory, max_frames: tf.Tensor, steps: int
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return mel, attention and lengths of speech decoded chunk by chunk."""
    projected, state = begin_speech(network, memory, steps)
    chunks = []
    for _ in range(-(-network.max_steps // steps)):
        state, chunk = continue_speech(network, projected, state, DROPOUT, max_frames, SETTINGS)
        chunks.append(chunk)
    mel, attention = (
        np.concatenate([getattr(chunk, name) for chunk in chunks], axis=1) for name in ("mel", "attention")
    )
    return mel, attention, state.progress.length.numpy().tolist()


def test_attention_to_parts_equals_attention_to_their_concatenation() -> None:
    attention = Attention(Initializer(1), 8, 2, "attention")
    x, others = tf.random.stateless_normal([2, 3, 8], [1, 2]), tf.random.stateless_normal([2, 7, 8], [3, 4])
    keys, values = attention.project_memory(others)
    mask = tf.constant([True, True, False, True, True, False, True])
    parts = [(keys[:, start:end], values[:, start:end], mask[start:end]) for start, end in ((0, 2), (2, 6), (6, 7))]
    for whole, in_parts in zip(attention(x, keys, values, mask), attention.attend_to_parts(x, parts), strict=True):
        np.testing.assert_allclose(whole, in_parts, atol=1e-6)


@pytest.mark.parametrize(("is_training", "chunk_steps"), [(True, 7), (False, 3)])
def test_cached_decoding_equals_uncached(
    network: AutoregressiveNetwork, batch: Batch, is_training: bool, chunk_steps: int
) -> None:
    dropout = Dropout(tf.constant(3, tf.uint32), is_training)
    decoder = network.mel_decoder
    memory = network.encode(batch, network.null_voice[None], tf.zeros([3], tf.bool), dropout)
    previous = tf.random.stateless_normal([3, network.max_steps, SPEC.mel_bins], [1, 2])
    attention = tf.nn.softmax(tf.random.stateless_normal([3, network.max_steps, SPEC.max_text_length], [3, 4]))
    whole = decoder.decode_all(previous, attention, memory, dropout)
    cache, projected = decoder.start_cache(3, chunk_steps), decoder.project_memory(memory)
    everywhere = tf.ones([3, SPEC.max_text_length], tf.bool)
    for step in range(network.max_steps):
        said, recent = decoder.decode_step(
            previous[:, step], attention[:, step], tf.constant(step), cache, projected, everywhere, dropout
        )
        cache = cache._replace(recent=recent)
        if (step + 1) % chunk_steps == 0:
            cache = decoder.settle_cache(cache)
        start = step * MODEL.frames_per_step
        np.testing.assert_allclose(said.frames, whole.frames[:, start : start + MODEL.frames_per_step], atol=1e-4)
        np.testing.assert_allclose(said.stop_logit[:, 0], whole.stop_logit[:, step], atol=1e-4)
        np.testing.assert_allclose(said.attention[:, :, 0], whole.attention[..., step, :], atol=1e-4)


def test_speaking_agrees_with_teacher_forcing_on_its_own_frames(
    network: AutoregressiveNetwork, batch: Batch, memory: Memory
) -> None:
    never_stop(network)
    everywhere = SETTINGS.model_copy(update={"attention_back": 9, "attention_ahead": 9})
    fine = speak(network, memory, DROPOUT, full(3), everywhere)
    refine, network.postnet.layers = network.postnet.layers, []
    # The decoder gets its frames as they are before the postnet.
    coarse = speak(network, memory, DROPOUT, full(3), everywhere)
    network.postnet.layers = refine
    none = tf.zeros([3], tf.int32)
    hold_alignment(network, tf.repeat(coarse.attention, MODEL.frames_per_step, axis=1)[:, : SPEC.max_mel_frames])
    forced = network(batch._replace(mel=coarse.mel[:, : SPEC.max_mel_frames]), Crop(none, none), DROPOUT)
    frames = slice(0, SPEC.max_mel_frames)
    np.testing.assert_allclose(network.from_network_scale(forced.coarse)[:, frames], coarse.mel[:, frames], atol=1e-3)
    np.testing.assert_allclose(network.from_network_scale(forced.fine)[:, frames], fine.mel[:, frames], atol=1e-3)
    np.testing.assert_allclose(tf.reduce_mean(forced.attention, axis=1), fine.attention, atol=1e-4)
    assert fine.mel.shape == coarse.mel.shape == (3, 21, 5)


@pytest.mark.parametrize("steps", [2, 7])
def test_chunked_decoding_equals_whole_decoding(network: AutoregressiveNetwork, memory: Memory, steps: int) -> None:
    never_stop(network)
    max_frames = tf.constant([20, 4, 11])
    whole = speak(network, memory, DROPOUT, max_frames, SETTINGS)
    mel, attention, lengths = speak_in_chunks(network, memory, max_frames, steps)
    assert lengths == whole.mel_length.numpy().tolist() == [20, 4, 11]
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(mel[row, :length], whole.mel[row, :length], atol=1e-4)
    np.testing.assert_allclose(attention[:, :7], whole.attention, atol=1e-5)


def test_sharpening_changes_the_output_and_not_the_feedback(network: AutoregressiveNetwork, memory: Memory) -> None:
    never_stop(network)
    plain, sharp = (
        speak(network, memory, DROPOUT, full(3), SETTINGS.model_copy(update={"sharpness": sharpness}))
        for sharpness in (1.0, 2.0)
    )
    np.testing.assert_allclose(sharp.mel, plain.mel @ sharpening_matrix(SPEC.mel_bins, 2.0), atol=1e-4)
    np.testing.assert_array_equal(sharp.attention, plain.attention)


def test_speech_may_be_longer_than_one_chunk(batch: Batch) -> None:
    # 20 frames one by one are three chunks, of which the last is not full.
    network = AutoregressiveNetwork(MODEL.model_copy(update={"frames_per_step": 1}), SPEC, SYMBOL_COUNT, seed=1)
    assert network.max_steps % CHUNK_STEPS
    never_stop(network)
    memory = encode(network, batch)
    whole = speak(network, memory, DROPOUT, full(3), SETTINGS)
    mel, attention, _ = speak_in_chunks(network, memory, full(3), steps=network.max_steps)
    assert whole.mel.shape == (3, 20, 5)
    np.testing.assert_allclose(whole.mel, mel, atol=1e-4)
    np.testing.assert_allclose(whole.attention, attention, atol=1e-5)


def test_compiled_speech_equals_eager_speech(network: AutoregressiveNetwork, memory: Memory) -> None:
    never_stop(network)
    arguments = (memory.text, memory.text_mask, memory.voice)

    def say(*parts: tf.Tensor) -> Speech:
        return speak(network, Memory(*parts), DROPOUT, full(3), SETTINGS)

    eager = say(*arguments)
    for is_compiled in (True, False):
        said = tf.function(say, jit_compile=is_compiled, autograph=False)(*arguments)
        np.testing.assert_allclose(said.mel, eager.mel, atol=1e-3)
        np.testing.assert_allclose(said.attention, eager.attention, atol=1e-4)


@settings(max_examples=3)
@given(order=st.permutations([0, 1, 2]), rows=st.integers(1, 3))
def test_a_row_does_not_depend_on_the_other_rows_or_its_place(order: list[int], rows: int) -> None:
    network = AutoregressiveNetwork(MODEL, SPEC, SYMBOL_COUNT, seed=1)
    together = random_batch(SPEC, text_length=(9, 4, 6), mel_length=(20, 7, 12))
    max_frames = tf.constant([20, 7, 12])
    whole = speak(network, encode(network, together), DROPOUT, max_frames, SETTINGS)
    places = order[:rows]
    chosen = Batch(*(None if part is None else tf.gather(part, places) for part in together))
    some = speak(network, encode(network, chosen), DROPOUT, tf.gather(max_frames, places), SETTINGS)
    np.testing.assert_allclose(some.mel, tf.gather(whole.mel, places), atol=1e-3)
    assert some.mel_length.numpy().tolist() == tf.gather(whole.mel_length, places).numpy().tolist()


def test_a_row_stops_at_its_stop_probability(network: AutoregressiveNetwork, memory: Memory) -> None:
    network.mel_decoder.to_stop.bias.assign([30.0])
    speech = speak(network, memory, DROPOUT, full(3), SETTINGS)
    assert speech.mel_length.numpy().tolist() == [3, 3, 3]
    assert speech.has_stopped.numpy().all()
    np.testing.assert_array_equal(speech.mel[:, 3:], tf.fill([3, 18, 5], SPEC.pad_value))


def test_the_frame_limit_ends_speech_that_does_not_stop(network: AutoregressiveNetwork, memory: Memory) -> None:
    never_stop(network)
    speech = speak(network, memory, DROPOUT, tf.constant([4, 0, 20]), SETTINGS)
    assert speech.mel_length.numpy().tolist() == [4, 0, 20]
    np.testing.assert_array_equal(speech.mel[0, 4:], tf.fill([17, 5], SPEC.pad_value))
    assert not speech.has_stopped.numpy().any()


def test_a_frame_limit_over_the_longest_mel_is_that_mel(network: AutoregressiveNetwork, memory: Memory) -> None:
    never_stop(network)
    assert speak(network, memory, DROPOUT, tf.fill([3], 10_000), SETTINGS).mel_length.numpy().tolist() == [21, 21, 21]


@settings(max_examples=3)
@given(back=st.integers(0, 4), ahead=st.integers(1, 4), seed=st.integers(0, 99))
def test_the_attention_window_moves_forward_only_and_has_no_weight_outside(back: int, ahead: int, seed: int) -> None:
    # With two heads all are guided; one layer, so that each row's attention is that of its window.
    network = AutoregressiveNetwork(MODEL.model_copy(update={"decoder_layers": 1}), SPEC, SYMBOL_COUNT, seed=seed)
    never_stop(network)
    batch = random_batch(SPEC, text_length=(9, 4, 1), mel_length=(20, 20, 20), seed=seed)
    speech = speak(
        network, encode(network, batch), DROPOUT, full(3), SynthesisConfig(attention_back=back, attention_ahead=ahead)
    )
    for row, length in enumerate((9, 4, 1)):
        furthest = 0
        for weights in speech.attention[row].numpy():
            attended = np.flatnonzero(weights)
            assert attended.min() >= furthest - back
            assert attended.max() <= min(furthest + ahead, length - 1)
            furthest = max(furthest, int(weights.argmax()))


def test_attention_that_never_moves_ends_at_the_frame_limit(network: AutoregressiveNetwork, memory: Memory) -> None:
    never_stop(network)
    speech = speak(
        network, memory, DROPOUT, full(3), SETTINGS.model_copy(update={"attention_back": 0, "attention_ahead": 0})
    )
    np.testing.assert_array_equal(speech.attention[..., 0], 1.0)
    assert speech.mel_length.numpy().tolist() == [20, 20, 20]

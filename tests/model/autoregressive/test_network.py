import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, hold_alignment, no_reference, random_batch
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import load_config
from xtts_pipeline.model.autoregressive.losses import Prediction
from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork
from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.network import Batch, Crop, Memory


def test_mel_scale_has_an_inverse() -> None:
    mel = tf.constant([-11.5, 0.0, 2.0])
    np.testing.assert_allclose(
        AutoregressiveNetwork.from_network_scale(AutoregressiveNetwork.to_network_scale(mel)), mel, atol=1e-6
    )


def test_a_prediction_covers_the_target_in_whole_steps(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    prediction = network(batch, crop, dropout)
    assert prediction.coarse.shape == prediction.fine.shape == (3, 21, 5)  # 20 frames, rounded up to whole steps of 3
    assert prediction.stop_logit.shape == (3, 7)
    assert prediction.attention.shape == (3, 4, 7, 9)  # two guided heads of each of two layers


def before_and_after(
    network: AutoregressiveNetwork, batch: Batch, dropout: Dropout, frames: slice
) -> tuple[Prediction, Prediction]:
    """Return the predictions without a reference, before and after these frames of the ground truth change."""
    mel = batch.mel.numpy()
    mel[:, frames] += 3.0
    changed = batch._replace(mel=tf.constant(mel))
    return network(batch, no_reference(batch), dropout), network(changed, no_reference(batch), dropout)


@pytest.mark.parametrize("frame", [0, 1, 5, 6, 13, 19])
def test_teacher_forcing_is_causal(network: AutoregressiveNetwork, batch: Batch, dropout: Dropout, frame: int) -> None:
    # The aligner sees the whole clip; with its posterior fixed, no frame depends on a later one.
    hold_alignment(network)
    before, after = before_and_after(network, batch, dropout, slice(frame, None))
    for name in ("coarse", "fine"):
        np.testing.assert_array_equal(getattr(before, name)[:, :frame], getattr(after, name)[:, :frame])
    steps = -(-frame // MODEL.frames_per_step)
    np.testing.assert_array_equal(before.stop_logit[:, :steps], after.stop_logit[:, :steps])


def test_later_frames_depend_on_earlier_ones(network: AutoregressiveNetwork, batch: Batch, dropout: Dropout) -> None:
    hold_alignment(network)
    before, after = before_and_after(network, batch, dropout, slice(2, 3))
    assert np.abs(before.coarse[0, 3:] - after.coarse[0, 3:]).max() > 1e-3


def test_a_step_receives_the_attention_of_the_step_before(
    network: AutoregressiveNetwork, batch: Batch, dropout: Dropout
) -> None:
    posterior = tf.one_hot(tf.zeros([3, SPEC.max_mel_frames], tf.int32), SPEC.max_text_length).numpy()
    hold_alignment(network, tf.constant(posterior))
    before = network(batch, no_reference(batch), dropout)
    posterior[:, 6:9] = np.eye(SPEC.max_text_length)[2]
    hold_alignment(network, tf.constant(posterior))
    after = network(batch, no_reference(batch), dropout)
    # Frames 6 to 8 are the third step, so the fourth is the first to change.
    np.testing.assert_array_equal(before.coarse[:, :9], after.coarse[:, :9])
    assert np.abs(before.coarse[0, 9:12] - after.coarse[0, 9:12]).max() > 1e-3


def test_attention_weighs_real_tokens_only(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    attention = network(batch, crop, dropout).attention.numpy()
    is_real = length_mask(batch.text_length, SPEC.max_text_length).numpy()
    assert np.all(attention[~is_real[:, None, None].repeat(4, 1).repeat(7, 2)] == 0.0)
    np.testing.assert_allclose(attention.sum(-1), 1.0, atol=1e-5)


def test_the_mel_depends_on_the_text(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    other = batch._replace(tokens=tf.where(batch.tokens > 2, SYMBOL_COUNT + 2 - batch.tokens, batch.tokens))
    assert np.abs(network(batch, crop, dropout).fine - network(other, crop, dropout).fine).max() > 1e-3


def test_one_row_does_not_depend_on_the_others(network: AutoregressiveNetwork) -> None:
    alone, together = random_batch(SPEC, (9,), (20,)), random_batch(SPEC, (9, 4), (20, 7))
    dropout = Dropout(tf.constant(3, tf.uint32), is_training=False)
    both, one = (
        network(batch, network.choose_reference(batch.mel_length, dropout, 0.0), dropout).fine
        for batch in (together, alone)
    )
    np.testing.assert_allclose(both[:1], one, atol=1e-5)


def test_guided_heads_attend_inside_their_window_only(
    network: AutoregressiveNetwork, batch: Batch, dropout: Dropout
) -> None:
    decoder = network.mel_decoder
    memory = network.encode(batch, None, tf.zeros([3], tf.bool), dropout)
    memory = Memory(memory.text, memory.text_mask, tf.zeros([3, 4, 16]))
    window = tf.range(SPEC.max_text_length)[None, :] == tf.constant([[2], [0], [3]])
    said, _ = decoder.decode_step(
        tf.zeros([3, 5]),
        tf.zeros([3, 9]),
        tf.constant(0),
        decoder.start_cache(3, chunk_steps=2),
        decoder.project_memory(memory),
        window,
        dropout,
    )
    np.testing.assert_allclose(
        said.attention[:, :, 0], np.repeat(tf.cast(window, tf.float32)[:, None], 4, axis=1), atol=1e-6
    )


def test_a_reference_lies_within_its_clip(network: AutoregressiveNetwork) -> None:
    lengths = tf.constant([0, 1, 2, 7, 15, 16, 20])
    for key in range(20):
        crop = network.choose_reference(
            lengths, Dropout(tf.constant(key, tf.uint32), is_training=True), reference_dropout=0.0
        )
        assert crop.length.numpy().tolist() == [0, 0, 1, 3, 7, 8, 8]
        assert (crop.first_frame >= 0).numpy().all()
        assert (crop.first_frame + crop.length <= tf.maximum(lengths, 1)).numpy().all()


def test_a_share_of_the_rows_has_no_reference(network: AutoregressiveNetwork) -> None:
    lengths = tf.fill([2_000], 20)
    crop = network.choose_reference(
        lengths, Dropout(tf.constant(5, tf.uint32), is_training=True), reference_dropout=0.3
    )
    assert np.mean(crop.length.numpy() == 0) == pytest.approx(0.3, abs=0.04)
    starts = crop.first_frame.numpy()
    assert set(starts) == set(range(13))  # each of 13 places for 8 frames of 20


def test_the_voice_depends_on_the_real_frames_of_the_reference_only(
    network: AutoregressiveNetwork, batch: Batch, dropout: Dropout
) -> None:
    reference = tf.random.stateless_normal([3, 8, 5], [1, 2], -5.0, 2.0)
    changed = tf.concat([reference[:, :4], reference[:, 4:] + 9.0], axis=1)
    lengths = tf.constant([4, 4, 4])
    voice = network.embed_voice(reference, lengths, dropout)
    assert voice.shape == (3, 4, 16)
    np.testing.assert_array_equal(voice, network.embed_voice(changed, lengths, dropout))
    assert np.abs(voice - network.embed_voice(changed, tf.constant([6, 6, 6]), dropout)).max() > 1e-3

    hold_alignment(network)
    other = batch._replace(mel=tf.concat([batch.mel[:, :6], batch.mel[:, 6:, ::-1]], axis=1))
    crop = Crop(tf.constant([12, 12, 7]), tf.constant([4, 0, 4]))
    before, after = (network(given, crop, dropout).coarse.numpy() for given in (batch, other))
    is_different = np.abs(before - after)[:, :6].max(axis=(1, 2)) > 1e-4
    assert is_different.tolist() == [True, False, True]  # a row without a reference ignores later frames


def test_a_network_without_voice_latents_has_no_voice_encoder(batch: Batch, dropout: Dropout) -> None:
    network = AutoregressiveNetwork(MODEL.model_copy(update={"voice_latents": 0}), SPEC, SYMBOL_COUNT, seed=1)
    assert not any("voice" in variable.name for variable in network.trainable_variables)
    crop = network.choose_reference(batch.mel_length, dropout, reference_dropout=0.0)
    assert crop.length.numpy().tolist() == [0, 0, 0]
    assert network(batch, crop, dropout).fine.shape == (3, 21, 5)


def test_scheduled_sampling_replaces_ground_truth_by_predicted_frames(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    true, none = network(batch, crop, dropout), network(batch, crop, dropout, tf.constant(0.0))
    np.testing.assert_array_equal(true.coarse, none.coarse)
    sampled = network(batch, crop, dropout, tf.constant(1.0))
    # The first step gets silence in both cases; all others get the output of the first pass.
    np.testing.assert_array_equal(true.coarse[:, :3], sampled.coarse[:, :3])
    previous = network._previous_frames(true.coarse)
    attention = tf.pad(tf.reduce_mean(true.attention, axis=1), [[0, 0], [1, 0], [0, 0]])[:, :-1]
    memory = network.encode_clips(batch, crop, dropout)
    expected = network.mel_decoder.decode_all(previous, attention, memory, dropout)
    np.testing.assert_allclose(sampled.coarse, expected.frames, atol=1e-6)


def test_no_gradient_flows_through_sampled_frames(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    # The second step gets the first step's output only as its previous frame.
    with tf.GradientTape() as tape:
        second = tf.reduce_sum(network(batch, crop, dropout, tf.constant(1.0)).coarse[:, 3:6])
    gradient = tape.gradient(second, network.mel_decoder.to_frames.bias)
    # One for each of three rows, from the second step itself.
    np.testing.assert_allclose(gradient, np.full(15, 3.0), atol=1e-5)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_lower_precision_is_near_float32(
    network: AutoregressiveNetwork, batch: Batch, crop: Crop, dropout: Dropout, dtype: tf.DType
) -> None:
    low = AutoregressiveNetwork(MODEL, SPEC, SYMBOL_COUNT, seed=1, dtype=dtype)
    prediction = low(batch, crop, dropout)
    assert {tensor.dtype for tensor in tf.nest.flatten(prediction)} == {tf.float32}
    assert float(tf.reduce_mean(tf.abs(prediction.fine - network(batch, crop, dropout).fine))) < 0.05


def test_speakers_and_languages_change_the_voice(batch: Batch, crop: Crop, dropout: Dropout) -> None:
    network = AutoregressiveNetwork(MODEL, SPEC, SYMBOL_COUNT, speakers=3, languages=2, seed=1)
    first = batch._replace(speaker=tf.constant([0, 0, 0]), language=tf.constant([0, 0, 0]))

    def difference(other: Batch) -> np.ndarray:
        return np.abs(network(first, crop, dropout).fine - network(other, crop, dropout).fine).max(axis=(1, 2)) > 1e-4

    # Only rows without a reference get the speaker's vector; all rows get the language's.
    assert difference(first._replace(speaker=tf.constant([1, 1, 1]))).tolist() == [False, False, True]
    assert difference(first._replace(language=tf.constant([1, 1, 1]))).tolist() == [True, True, True]


def test_a_language_changes_each_token_in_its_own_way(batch: Batch, dropout: Dropout) -> None:
    network = AutoregressiveNetwork(MODEL, SPEC, SYMBOL_COUNT, languages=2, seed=1)
    crop = no_reference(batch)
    texts = [
        network.encode(
            batch._replace(language=tf.fill([3], language)), network.null_voice[None], crop.length > 0, dropout
        ).text
        for language in (0, 1)
    ]
    # Attention ignores a difference that is equal at all tokens.
    difference = (texts[1] - texts[0])[0]
    assert float(tf.reduce_min(tf.reduce_max(tf.abs(difference - tf.reduce_mean(difference, axis=0)), axis=-1))) > 0.05


@pytest.mark.parametrize(("preset", "millions"), [("tiny", 2), ("small", 9), ("base", 30), ("large", 120)])
def test_presets_have_about_the_parameters_that_they_name(preset: str, millions: int) -> None:
    config = load_config(["ljspeech", preset])
    spec = RecordSpec(config.limits.max_text_length, config.limits.max_mel_frames, config.audio.mel_bins, -11.5)
    assert AutoregressiveNetwork(config.model, spec, symbol_count=60).parameter_count == pytest.approx(
        millions * 1e6, rel=0.1
    )

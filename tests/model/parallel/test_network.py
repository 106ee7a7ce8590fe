import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT, random_batch
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import SynthesisConfig, TrainingConfig
from xtts_pipeline.inference.timings import token_durations
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Batch, Crop, Memory
from xtts_pipeline.model.parallel.network import ParallelNetwork

LIMIT = 1_000
DROPOUT = Dropout.fixed(3)


def losses_of(network: ParallelNetwork, batch: Batch, crop: Crop, dropout: Dropout) -> dict[str, float]:
    totals = network.batch_totals(batch, crop, TrainingConfig())
    losses = network.losses(batch, crop, dropout, TrainingConfig(), totals)
    assert tuple(sorted(losses)) == tuple(sorted(network.LOSS_METRICS))
    return {name: float(value) for name, value in losses.items()}


def encode(network: ParallelNetwork, batch: Batch) -> Memory:
    return network.encode(batch, network.null_voice[None], tf.zeros([batch.tokens.shape[0]], tf.bool), DROPOUT)


def test_padding_does_not_change_the_loss(parallel_network: ParallelNetwork, crop: Crop, dropout: Dropout) -> None:
    longer = RecordSpec(SPEC.max_text_length + 7, SPEC.max_mel_frames + 16, SPEC.mel_bins, SPEC.pad_value)
    lengths = ((9, 4, 6), (20, 7, 12))
    expected = losses_of(parallel_network, random_batch(SPEC, *lengths), crop, dropout)
    wide = ParallelNetwork(MODEL, longer, SYMBOL_COUNT, seed=1)
    padded = random_batch(longer, *lengths)
    tokens, mel = padded.tokens.numpy(), padded.mel.numpy()
    for row in range(3):
        tokens[row, lengths[0][row] :] = SYMBOL_COUNT - 1
        mel[row, lengths[1][row] :] = 40.0
    changed = padded._replace(tokens=tf.constant(tokens), mel=tf.constant(mel))
    assert losses_of(wide, changed, crop, dropout) == pytest.approx(expected, abs=1e-5)


def test_the_parts_of_a_batch_add_up_to_the_whole(parallel_network: ParallelNetwork, batch: Batch, crop: Crop) -> None:
    key, config = tf.constant(7, tf.uint32), TrainingConfig()
    totals = parallel_network.batch_totals(batch, crop, config)
    whole = parallel_network.losses(batch, crop, Dropout(key, True), config, totals)
    parts = dict.fromkeys(whole, 0.0)
    for row in range(3):
        one = Batch(*(None if tensor is None else tensor[row : row + 1] for tensor in batch))
        one_crop = Crop(*(tensor[row : row + 1] for tensor in crop))
        dropout = Dropout(key, True, first_example=row)
        for name, value in parallel_network.losses(one, one_crop, dropout, config, totals).items():
            parts[name] += float(value)
    assert parts == pytest.approx({name: float(value) for name, value in whole.items()}, abs=1e-5)


def test_a_row_without_a_path_has_no_duration_loss(parallel_network: ParallelNetwork, dropout: Dropout) -> None:
    crop = Crop(tf.constant([0]), tf.constant([0]))
    losses = losses_of(parallel_network, random_batch(SPEC, (9,), (5,)), crop, dropout)
    assert losses["duration_loss"] == losses["energy_loss"] == losses["pitch_loss"] == 0.0
    assert np.isfinite(list(losses.values())).all()


def test_each_variable_gets_a_gradient_and_the_predictor_bends_no_text(
    parallel_network: ParallelNetwork, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    totals = parallel_network.batch_totals(batch, crop, TrainingConfig())
    with tf.GradientTape(persistent=True) as tape:
        losses = parallel_network.losses(batch, crop, dropout, TrainingConfig(), totals)
        prosody = losses["duration_loss"] + losses["energy_loss"] + losses["pitch_loss"]
    variables = parallel_network.trainable_variables
    assert not [gradient for gradient in tape.gradient(losses["objective"], variables) if gradient is None]
    reached = tape.gradient(prosody, variables)
    moved = [variable for variable, gradient in zip(variables, reached, strict=True) if gradient is not None]
    own = {variable.ref() for variable in parallel_network.predictor.trainable_variables}
    assert {variable.ref() for variable in moved} == own


@pytest.mark.parametrize("chunk_frames", [5, 64])
@pytest.mark.parametrize("speed", [1.0, 0.5])
def test_chunks_equal_whole_speech(parallel_network: ParallelNetwork, chunk_frames: int, speed: float) -> None:
    # Random durations, about three frames a token.
    to_prosody = parallel_network.predictor.to_prosody
    to_prosody.weight.assign(0.1 * to_prosody.weight)
    to_prosody.bias.assign([1.1, 0.0, 0.0, 0.0])
    settings = SynthesisConfig(chunk_frames=chunk_frames)
    memory = encode(parallel_network, random_batch(SPEC, (5, 4, 2), (20, 7, 12)))
    limit = tf.fill([3], LIMIT)
    plan, state = parallel_network.begin_speech(memory, settings, speed)
    mels, shares, is_speaking = [], [], True
    while is_speaking:
        state, chunk = parallel_network.continue_speech(plan, state, DROPOUT, limit, settings)
        mels.append(chunk.mel)
        shares.append(chunk.attention)
        is_speaking = bool(tf.reduce_any(chunk.is_speaking))
    mel, attention = np.concatenate(mels, axis=1), np.concatenate(shares, axis=1)
    wide = plan.length.numpy()
    steps = tf.range(mel.shape[1] // parallel_network.frames_per_step)
    whole = parallel_network.frame_decoder(plan.tokens, plan.timing, plan.length, DROPOUT, steps)
    expected = parallel_network.finish_steps(whole, DROPOUT, 0, settings).numpy()
    assert chunk.length.numpy().tolist() == wide.tolist()
    assert chunk.has_stopped.numpy().all()
    for row, frames in enumerate(wide):
        np.testing.assert_allclose(mel[row, :frames], expected[row, :frames], atol=1e-4)
        steps = -(-frames // parallel_network.frames_per_step)
        durations = token_durations(attention[row, :steps], frames, parallel_network.frames_per_step)
        np.testing.assert_allclose(durations, plan.timing.duration[row], atol=1e-4)
    if speed == 1.0:
        speech = parallel_network.speak(memory, DROPOUT, limit, settings)
        assert speech.mel_length.numpy().tolist() == wide.tolist()
        for row, frames in enumerate(wide):
            np.testing.assert_allclose(speech.mel[row, :frames], expected[row, :frames], atol=1e-4)
            assert (speech.mel[row, frames:].numpy() == np.float32(SPEC.pad_value)).all()


def test_a_frame_limit_cuts_and_says_so(parallel_network: ParallelNetwork) -> None:
    memory = encode(parallel_network, random_batch(SPEC, (6, 2), (20, 7)))
    plan, state = parallel_network.begin_speech(memory, SynthesisConfig())
    limit = tf.stack([plan.length[0] - 1, plan.length[1]])
    _, chunk = parallel_network.continue_speech(plan, state, DROPOUT, limit, SynthesisConfig(chunk_frames=64))
    assert chunk.length.numpy().tolist() == limit.numpy().tolist()
    assert chunk.has_stopped.numpy().tolist() == [False, True]
    speech = parallel_network.speak(memory, DROPOUT, limit, SynthesisConfig())
    assert speech.has_stopped.numpy().tolist() == [False, True]

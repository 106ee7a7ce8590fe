from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tests.model.conftest import SPEC, make_network, random_batch
from tests.training.conftest import SETTINGS, networks
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.data.batching import batch_signature, to_batch
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.acoustic.step import AcousticStep, EvaluateStep
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.compiled import RetraceError


def numbers(step: AcousticStep | EvaluateStep, batch: Batch) -> dict[str, float]:
    """Run the step and return its metrics by name."""
    return dict(zip(step.METRICS, step(batch).numpy().tolist(), strict=True))


def tracing_counts(step: AcousticStep | EvaluateStep) -> list[int]:
    """Return how often each of the step's functions was traced."""
    return [function.experimental_get_tracing_count() for function in step.compiled.functions]


def test_signature_is_static_and_names_only_what_the_cache_has() -> None:
    signature = batch_signature(SPEC, 4, with_language=True)
    assert signature.tokens == tf.TensorSpec([4, 9], tf.int32, "tokens")
    assert signature.mel == tf.TensorSpec([4, 20, 5], tf.float16, "mel")
    assert signature.mel_length == tf.TensorSpec([4], tf.int32, "mel_length")
    assert signature.speaker is None
    assert signature.language == tf.TensorSpec([4], tf.int32, "language")


def test_batches_follow_the_signature(batch: Batch) -> None:
    signature = batch_signature(SPEC, 3, with_speaker=True)
    fields = {**batch._asdict(), "speaker": tf.constant([1, 2, 3]), "language": tf.constant([0, 0, 0])}
    taken = to_batch(fields, signature)
    assert taken.language is None
    np.testing.assert_array_equal(taken.speaker, [1, 2, 3])


def test_one_batch_overfits_in_one_trace(train_step: AcousticStep, batch: Batch) -> None:
    first = numbers(train_step, batch)
    for _ in range(SETTINGS.steps - 2):
        train_step(batch)
    last = numbers(train_step, batch)
    assert last["mel_l1"] < first["mel_l1"] / 3
    assert last["flow_loss"] < 0.7 * first["flow_loss"]
    assert last["mel_frames"] == 20 + 7 + 12
    assert tracing_counts(train_step) == [1]
    assert int(train_step.step) == SETTINGS.steps


def test_without_compilation_the_step_does_the_same(train_step: AcousticStep, batch: Batch) -> None:
    signature = batch_signature(SPEC, SETTINGS.batch_size)
    eager = AcousticStep(*networks(), SETTINGS.model_copy(update={"debug_eager": True}), [signature])
    for _ in range(2):
        assert numbers(eager, batch) == pytest.approx(numbers(train_step, batch), rel=1e-3, abs=1e-5)
    assert tracing_counts(eager) == []
    with pytest.raises(RetraceError, match=r"a batch of 2 rows instead of 3"):
        eager(random_batch(SPEC, (9, 4), (20, 7)))


def test_a_batch_of_another_shape_is_refused(train_step: AcousticStep) -> None:
    with pytest.raises(RetraceError, match=r"a batch of 2 rows instead of 3"):
        train_step(random_batch(SPEC, (9, 4), (20, 7)))


def test_the_losses_of_a_clip_do_not_depend_on_its_bucket() -> None:
    # The batches differ in rows, tokens and frames; padding must not change the losses.
    large = RecordSpec(SPEC.max_text_length + 3, SPEC.max_mel_frames + 7, SPEC.mel_bins, SPEC.pad_value)
    signatures = [batch_signature(spec, rows) for spec, rows in ((SPEC, 3), (large, 2))]
    network = make_network(large)
    step = EvaluateStep(network, SETTINGS.model_copy(update={"jit_compile": False}), signatures)
    in_small = numbers(step, random_batch(SPEC, (9, 4, 0), (20, 7, 0)))
    in_large = numbers(step, random_batch(large, (9, 4), (20, 7)))
    assert in_small == pytest.approx(in_large, rel=1e-4)
    assert tracing_counts(step) == [1, 1]


def test_no_variable_is_kept_on_the_host(train_step: AcousticStep) -> None:
    # TensorFlow places int32 variables on the host even on a GPU, and an XLA program cannot reach them there.
    assert [name for name, variable in named_variables(train_step).items() if variable.dtype == tf.int32] == []


def test_every_variable_is_trained(train_step: AcousticStep, batch: Batch) -> None:
    before = {name: variable.numpy() for name, variable in named_variables(train_step.network).items()}
    for _ in range(3):
        train_step(batch)
    still = [
        name
        for name, variable in named_variables(train_step.network).items()
        if np.array_equal(variable.numpy(), before[name])
    ]
    # Softmax cancels a key's bias, which adds the same to every score of a query: its gradient is rounding only.
    assert [name for name in still if not name.endswith("key.bias")] == []


def test_the_same_weights_and_batch_give_the_same_update_bit_for_bit(train_step: AcousticStep, batch: Batch) -> None:
    first = {name: variable.numpy() for name, variable in named_variables(train_step).items()}
    ends = []
    for _ in range(2):
        for name, variable in named_variables(train_step).items():
            variable.assign(first[name])
        for _ in range(3):
            train_step(batch)
        ends.append(np.concatenate([variable.numpy().ravel() for variable in train_step.network.trainable_variables]))
    np.testing.assert_array_equal(*ends)


def test_no_sum_of_a_plain_graph_depends_on_the_order_of_threads(batch: Batch) -> None:
    signature = batch_signature(SPEC, SETTINGS.batch_size)
    plain = AcousticStep(*networks(), SETTINGS.model_copy(update={"jit_compile": False}), [signature])
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    context.context().enable_graph_collection()
    try:
        plain(batch)
        graphs = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    nodes = [node for graph in graphs for node in graph.post_optimization_graph.node]
    read = Counter(name.removesuffix(":0") for node in nodes for name in node.input)
    # AddN of more than two begins with the first input that no other operation reads or has still to read.
    sums = [[name.removesuffix(":0") for name in node.input] for node in nodes if node.op == "AddN"]
    assert max(map(len, sums)) > 2
    assert [inputs for inputs in sums if len(inputs) > 2 and read[inputs[0]] > 1] == []


def test_speaker_and_language_reach_the_compiled_step(batch: Batch) -> None:
    signature = batch_signature(SPEC, 3, with_speaker=True, with_language=True)
    network, average = networks(speakers=4, languages=2)
    # Without XLA, because only the ids matter here. Every row has its reference dropped.
    settings = SETTINGS.model_copy(update={"jit_compile": False, "reference_dropout": 0.999})
    step = AcousticStep(network, average, settings, [signature])
    before = network.speaker_embedding.numpy(), network.language_embedding.numpy()
    step(batch._replace(speaker=tf.constant([3, 3, 1]), language=tf.constant([1, 1, 1])))
    # A step of Adam moves each number by the rate, 3e-4; weight decay, by a hundredth of that at most.
    assert np.flatnonzero(np.abs(network.speaker_embedding - before[0]).mean(1) > 1e-4).tolist() == [1, 3]
    assert np.flatnonzero(np.abs(network.language_embedding - before[1]).mean(1) > 1e-4).tolist() == [1]


def test_evaluation_is_deterministic_and_weighted_by_decoder_steps(train_step: AcousticStep, batch: Batch) -> None:
    signature = batch_signature(SPEC, 3)
    evaluate_step = EvaluateStep(train_step.network, SETTINGS, [signature])
    first, second = numbers(evaluate_step, batch), numbers(evaluate_step, batch)
    assert first == second
    assert first["weight"] == 7 + 3 + 4  # 20, 7 and 12 frames, 3 a step
    # A clip of more symbols than frames is in no loss.
    assert numbers(evaluate_step, random_batch(SPEC, (9, 4, 9), (20, 7, 8)))["weight"] == 7 + 3
    assert 0.0 < first["null_voice_loss"] != first["loss"]
    assert tracing_counts(evaluate_step) == [1]


def test_the_average_is_the_ema_of_the_weights(train_step: AcousticStep, batch: Batch) -> None:
    trained, averaged = named_variables(train_step.network), named_variables(train_step.average)
    expected = {name: variable.numpy() for name, variable in trained.items()}
    for step in range(4):
        train_step(batch)
        decay = min(SETTINGS.ema_decay, (1 + step) / (10 + step))
        expected = {name: decay * value + (1 - decay) * trained[name].numpy() for name, value in expected.items()}
    for name, value in expected.items():
        np.testing.assert_allclose(averaged[name], value, atol=1e-6)


def test_an_update_that_is_not_finite_changes_no_weight(train_step: AcousticStep, batch: Batch) -> None:
    assert numbers(train_step, batch)["is_skipped"] == 0.0
    before = {name: variable.numpy() for name, variable in named_variables(train_step).items()}
    mel = batch.mel.numpy()
    mel[1, 3, 2] = np.nan
    found = numbers(train_step, batch._replace(mel=tf.constant(mel)))
    assert (found["is_skipped"], np.isfinite(found["loss"])) == (1.0, False)
    for name, variable in named_variables(train_step).items():
        # The EMA still moves towards the unchanged weights.
        if name != "step" and not name.startswith("average."):
            np.testing.assert_array_equal(variable.numpy(), before[name], err_msg=name)
        assert np.isfinite(variable.numpy()).all()
    assert train_step.step.numpy() == 2
    assert numbers(train_step, batch)["is_skipped"] == 0.0
    assert tracing_counts(train_step) == [1]


def test_changing_the_rate_factor_does_not_retrace(train_step: AcousticStep, batch: Batch) -> None:
    rates = [numbers(train_step, batch)["learning_rate"]]
    train_step.rate_factor.assign(0.5)
    rates.append(numbers(train_step, batch)["learning_rate"])
    assert rates == pytest.approx([3e-4, 3e-4])  # the second step of a warm-up of ten has twice the first's rate
    assert tracing_counts(train_step) == [1]


def run_steps(batch: Batch, steps: int, **changes: object) -> tuple[list[dict[str, float]], dict[str, np.ndarray]]:
    """Return each step's metrics and the weights after the last, without XLA."""
    settings = SETTINGS.model_copy(update={"jit_compile": False, "batch_size": batch.tokens.shape[0], **changes})
    signature = batch_signature(SPEC, settings.batch_size)
    step = AcousticStep(*networks(), settings, [signature])
    metrics = [numbers(step, batch) for _ in range(steps)]
    return metrics, {name: variable.numpy() for name, variable in named_variables(step).items()}


def test_a_batch_in_parts_equals_the_batch_at_once() -> None:
    random = np.random.default_rng(0)
    batch = random_batch(SPEC, tuple(random.integers(3, 10, 32).tolist()), tuple(random.integers(4, 21, 32).tolist()))
    # The moments, not the weights: Adam's division blows up rounding where a gradient is nearly 0.
    (whole_metrics, whole), (parts_metrics, parts) = (run_steps(batch, 1, accumulation_steps=steps) for steps in (1, 4))
    assert parts_metrics[0] == pytest.approx(whole_metrics[0], rel=1e-4)
    for name, value in whole.items():
        if "first_moment" in name:
            np.testing.assert_allclose(parts[name], value, atol=1e-4 * max(np.abs(value).max(), 1e-3), err_msg=name)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_training_in_lower_precision_keeps_float32_weights_and_learns(batch: Batch, precision: str) -> None:
    metrics, weights = run_steps(batch, 25, precision=precision)
    assert metrics[-1]["loss"] < 0.8 * metrics[0]["loss"]
    assert {value.dtype.name for value in weights.values()} <= {"float32", "int64"}


def test_each_step_draws_anew_what_it_drops_and_hears(train_step: AcousticStep, batch: Batch) -> None:
    train_step.rate_factor.assign(0.0)  # the weights stay
    losses = {float(train_step(batch)[train_step.METRICS.index("mel_l1")]) for _ in range(4)}
    assert len(losses) == 4

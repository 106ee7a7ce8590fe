import math
from types import SimpleNamespace

import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.data.batching import rows_of, with_rows
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.acoustic import validation
from xtts_pipeline.training.acoustic.validation import AcousticValidation, finite_mean, mean_losses


def losses_of(*results: tuple[float, float]) -> dict[str, float]:
    """Return the mean of batches with these losses and weights."""
    coming = iter(results)

    class Step:
        METRICS = ("loss", "mel_l1", "weight")

        def __call__(self, _: Batch) -> tf.Tensor:
            loss, weight = next(coming)
            return tf.constant([loss, loss, weight])

    return mean_losses(Step(), [random_batch(SPEC, (4,), (7,))] * len(results))  # type: ignore[arg-type]


def test_a_batch_weighs_as_many_decoder_steps_as_it_holds() -> None:
    losses = losses_of((1.0, 30.0), (4.0, 10.0))
    assert losses.pop("skipped_batches") == 0.0
    assert set(losses.values()) == {1.75}
    assert "weight" not in losses


def test_a_batch_that_is_not_finite_is_left_out_and_counted() -> None:
    losses = losses_of((1.0, 30.0), (math.nan, 20.0), (4.0, 10.0))
    assert losses.pop("skipped_batches") == 1.0
    assert set(losses.values()) == {1.75}
    assert math.isnan(losses_of((math.inf, 3.0))["loss"])


def test_clips_that_cannot_be_aligned_have_no_loss() -> None:
    assert losses_of((0.0, 0.0), (2.0, 10.0))["loss"] == 2.0
    assert math.isnan(losses_of((0.0, 0.0))["loss"])


def test_as_many_rows_are_evaluated_at_once_as_a_part_of_a_batch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def evaluate_step(_network: object, _config: object, signatures: list[Batch]) -> SimpleNamespace:
        rows.extend(rows_of(signature) for signature in signatures)
        return SimpleNamespace(compiled=SimpleNamespace(functions=[]))

    monkeypatch.setattr(validation, "EvaluateStep", evaluate_step)
    config = Config(training=TrainingConfig(batch_size=8, accumulation_steps=4, sample_every_evaluations=None))
    source = SimpleNamespace(
        validation_clips=5,
        validation_sentences=lambda signature: signature,
        manifest=SimpleNamespace(audio=config.audio, symbols=("a", "b")),
    )
    monitor = SimpleNamespace(watch=lambda *_, **__: None)
    signatures = [with_rows(random_batch(SPEC, (4,), (7,)), count) for count in (12, 8)]
    AcousticValidation(source, config, None, signatures, monitor)  # type: ignore[arg-type]
    assert rows == [3, 2]


def test_one_bad_clip_does_not_hide_the_distortion_of_the_others() -> None:
    assert float(finite_mean(tf.constant([2.0, math.nan, 4.0]))) == 3.0
    assert math.isnan(float(finite_mean(tf.constant([math.nan, math.inf]))))

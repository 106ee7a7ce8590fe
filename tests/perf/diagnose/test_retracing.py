"""`xtts diagnose retracing` and the monitor of `xtts train`, each with a fault planted in the real command."""

from pathlib import Path

import pytest
import tensorflow as tf

from tests.calling import xtts
from tests.perf.commands import run_command
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.load import load_config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.order import TrainingOrder
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.perf.diagnose import retracing

WITHOUT_XLA = ("training.jit_compile=false",)
FAULTS = [
    ("varying_shape", "varying shape", "mel", "pad all mels to limits.max_mel_frames"),
    ("int64_tokens", "wrong dtype", "tokens", "cast tokens to int32"),
    ("python_scalar", "Python argument", "mel_length", "tf.constant(value, tf.int32)"),
    ("incomplete_batch", "incomplete batch", "tokens", "drop_remainder=True"),
]


def test_the_healthy_step_has_one_trace_and_one_compilation_and_no_alarm(cache: Path) -> None:
    done = run_command("none", "diagnose", "retracing", "--cache", cache, "--steps", 9)
    assert (done.exit_code, done.result["verdict"], done.result["remedy"]) == (0, "healthy", "")
    assert (done.result["traces"], done.result["compilations"], done.result["change"]) == (1, 1, None)
    assert done.result["events"] == [
        {"step": 1, "function": "train_step", "traces": 1, "compilations": 1, "is_expected": True}
    ]
    assert [check["name"] for check in done.result["checks"] if check["good"]] == [
        "lengths",
        "rows",
        "batches",
        "source",
        "step",
    ]
    assert done.result["strict_shapes"] is True
    assert done.result["step_ms"]["mean"] > 0
    assert done.stderr == "compiling the training step\n"


@pytest.mark.parametrize(("fault", "verdict", "argument", "remedy"), FAULTS)
def test_a_planted_fault_is_named_with_its_remedy(
    cache: Path, fault: str, verdict: str, argument: str, remedy: str
) -> None:
    done = run_command(fault, "diagnose", "retracing", "--cache", cache, "--steps", 5, settings=WITHOUT_XLA)
    assert (done.exit_code, done.result["verdict"]) == (1, verdict)
    assert remedy in done.result["remedy"]
    assert done.result["change"]["arguments"][0]["name"] == argument
    assert "3 of 5 batches" in done.result["finding"]
    assert [check["name"] for check in done.result["checks"] if not check["good"]] == ["batches"]


@pytest.mark.parametrize("command", ["retracing", "input", "gpu"])
def test_a_step_that_is_not_compiled_is_refused_rather_than_found_healthy(cache: Path, command: str) -> None:
    done = xtts("diagnose", command, "--cache", cache, "--set=training.debug_eager=true")
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).startswith("training.debug_eager: found true, expected the compiled step")
    assert str(done.exception).endswith("; set training.debug_eager=false")


def test_a_strict_run_ends_with_the_argument_its_shapes_and_the_cause(cache: Path, tmp_path: Path) -> None:
    done = run_command(
        "varying_shape", "train", "--cache", cache, "--output", tmp_path / "run", "--steps", 6, settings=WITHOUT_XLA
    )
    assert (done.exit_code, done.result) == (1, {})
    line = done.stderr.splitlines()[-1]
    assert line.startswith("xtts: step 3: train_step was called with what it was not compiled for: mel (")
    assert "mel (static float16 [4, 24, 4], dynamic " in line
    assert (
        "float16 [4, 21, 4]); likely cause: mels are padded to the longest of their batch; remedy: pad all mels to"
        in line
    )


@pytest.mark.slow
def test_a_run_that_is_not_strict_counts_new_shapes_warns_and_goes_on(cache: Path, tmp_path: Path) -> None:
    settings = (*WITHOUT_XLA, "training.strict_shapes=false", "training.sample_every_evaluations=null")
    done = run_command(
        "varying_shape", "train", "--cache", cache, "--output", tmp_path / "run", "--steps", 7, settings=settings
    )
    assert done.exit_code == 0
    assert (done.result["steps"], done.result["unexpected_shapes"]) == (7, 3)
    assert [event["step"] for event in done.result["compilation_events"] if not event["is_expected"]] == [3, 4, 5]
    assert sum("likely cause: mels are padded" in warning for warning in done.result["warnings"]) == 3
    assert done.stderr.count("warning: train_step has") == 3


@pytest.mark.slow
def test_the_demonstration_shows_what_varying_shapes_cost() -> None:
    done = run_command("none", "diagnose", "retracing", "--demonstrate", network=())
    fixed, varying = done.result["fixed"], done.result["varying"]
    assert (done.exit_code, fixed["traces"], fixed["compilations"]) == (0, 1, 1)
    assert (varying["traces"], varying["compilations"]) == (3, 3)
    assert varying["seconds"] > 2 * fixed["seconds"]


class Unfixed(CachedSource):
    """A cache whose pipeline leaves open what its batches look like."""

    def training_dataset(self, order: TrainingOrder) -> tf.data.Dataset:
        whole = super().training_dataset(order)
        if order.config.training.seed == 1:
            return whole.unbatch().batch(order.batch_size)
        return whole.map(
            lambda fields: {
                **fields,
                "mel": tf.ragged.boolean_mask(fields["mel"], fields["mel"][:, :, 0] > 0.0).to_tensor(),
            }
        )


@pytest.mark.parametrize(
    ("seed", "bad", "found"), [(0, "lengths", "mel (4, None, 4)"), (1, "rows", "mel (None, 24, 4)")]
)
def test_a_pipeline_that_fixes_no_shape_is_found_before_a_batch_is_read(
    cache: Path, seed: int, bad: str, found: str
) -> None:
    config = load_config(overrides=["training.batch_size=4", f"training.seed={seed}"])
    source = CachedSource(cache, load_manifest(cache))
    signatures = bucket_signatures(source.identity(), source.specs, config.training)
    checks = retracing.check_pipeline(Unfixed(cache, source.manifest), config, signatures)
    assert [check.name for check in checks if not check.is_good] == [bad]
    assert found in next(check.found for check in checks if not check.is_good)
    healthy = retracing.check_pipeline(source, config, signatures)
    assert all(check.is_good for check in healthy)
    assert healthy[1].found == "29 clips are 7 batches of 4, 1 left out, others in each epoch"


@pytest.mark.parametrize("option", ["--cache=cache", "--config=tiny", "--set=training.batch_size=4", "--steps=10"])
def test_a_demonstration_of_settings_that_it_does_not_take_is_refused(option: str) -> None:
    done = xtts("diagnose", "retracing", "--demonstrate", option)
    assert done.exit_code == 2
    assert "expected none but --json" in done.output


def test_a_shape_that_is_read_at_run_time_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert retracing.dynamic_shape_reads() == []
    (tmp_path / "layer.py").write_text("def call(x):\n    return tf.reshape(x, tf.shape(x))\n")
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(retracing.model, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(retracing.voice_change, "__file__", str(tmp_path / "layer.py"))
    assert retracing.dynamic_shape_reads() == [f"{tmp_path.name}/layer.py:2"] * 2

"""What is said of a call that a compiled function was not made for."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, random_batch
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.compiled import (
    CompiledByShape,
    RetraceError,
    SignatureMismatch,
    describe_arguments,
    find_mismatch,
)
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor

LARGE = RecordSpec(SPEC.max_text_length + 5, SPEC.max_mel_frames + 10, SPEC.mel_bins, SPEC.pad_value)
SIGNATURES = [batch_signature(spec, rows) for spec, rows in ((SPEC, 3), (LARGE, 2))]
BATCH = random_batch(SPEC, (9, 4, 6), (20, 7, 12))


def changed(**fields: Any) -> Batch:
    return BATCH._replace(**fields)


def explain(batch: Batch) -> SignatureMismatch:
    found = find_mismatch(describe_arguments(batch), [describe_arguments(signature) for signature in SIGNATURES])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("batch", "kind", "shown"),
    [
        (
            changed(mel=BATCH.mel[:, :15]),
            "shape",
            "mel (static float16 [3, 20, 5], dynamic float16 [3, 15, 5]); likely cause: mels",
        ),
        (changed(tokens=BATCH.tokens[:, :8]), "shape", "remedy: pad all texts to limits.max_text_length"),
        (
            changed(tokens=tf.cast(BATCH.tokens, tf.int64)),
            "dtype",
            "tokens (static int32 [3, 9], dynamic int64 [3, 9])",
        ),
        (
            changed(text_length=7),
            "python_argument",
            "text_length (static int32 [3], dynamic Python int); likely cause: the value of",
        ),
        (changed(mel_length=np.zeros(3, np.int32)), "type", "dynamic NumPy int32 [3]"),
        (
            Batch(*(None if part is None else part[:1] for part in BATCH)),
            "incomplete_batch",
            "a batch of 1 rows instead of",
        ),
        (changed(text_length=None), "type", "text_length was left out"),
        (changed(speaker=tf.zeros(3, tf.int32)), "type", "speaker (static nothing, dynamic int32 [3])"),
    ],
)
def test_the_argument_that_changed_is_named_with_its_cause(batch: Batch, kind: str, shown: str) -> None:
    change = explain(batch)
    assert (change.kind, len(change.arguments)) == (kind, 4 if kind == "incomplete_batch" else 1)
    assert shown in str(change)
    assert "\n" not in str(change)


def test_a_call_is_held_against_the_nearest_bucket() -> None:
    nearly_large = random_batch(LARGE, (9, 4), (20, 7))._replace(tokens=tf.zeros([2, 13], tf.int32))
    assert explain(nearly_large).to_json()["arguments"] == [
        {"name": "tokens", "static": "int32 [2, 14]", "dynamic": "int32 [2, 13]"}
    ]


def test_what_fits_a_signature_is_no_mismatch_and_has_its_description() -> None:
    signatures = [describe_arguments(signature) for signature in SIGNATURES]
    assert find_mismatch(describe_arguments(BATCH), signatures) is None
    assert describe_arguments(BATCH) == signatures[0]
    others = (changed(text_length=7), changed(tokens=tf.cast(BATCH.tokens, tf.int64)))
    assert len({*map(describe_arguments, others), *signatures}) == 4


class NoLog:
    """Stands for TensorFlow's log of a run without XLA."""

    def compilations(self) -> dict[str, int]:
        return {}


def _frames(batch: Batch) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(batch.mel, tf.float32))


def watched(*, is_strict: bool) -> tuple[CompiledByShape, CompilationMonitor]:
    function = CompiledByShape(_frames, SIGNATURES, TrainingConfig(jit_compile=False, strict_shapes=is_strict))
    monitor = CompilationMonitor(NoLog(), is_strict=is_strict, is_compiled=False)  # type: ignore[arg-type]
    monitor.watch(*function.functions, calls=function)
    return function, monitor


def test_a_strict_function_refuses_before_it_traces() -> None:
    function, monitor = watched(is_strict=True)
    function(BATCH)
    with pytest.raises(
        RetraceError, match=r"frames was called with .*dynamic float16 \[3, 15, 5\].*strict_shapes=false"
    ) as raised:
        function(changed(mel=BATCH.mel[:, :15]))
    assert isinstance(raised.value, TrainingError)
    assert monitor.counts() == {"frames": {"traces": 1, "compilations": 0}}
    assert monitor.check(1) == []


def test_without_strictness_each_new_shape_is_counted_once_and_warned_of() -> None:
    function, monitor = watched(is_strict=False)
    said = []
    for step, batch in enumerate(
        [BATCH, *(changed(mel=BATCH.mel[:, :frames]) for frames in (15, 15, 14, 13, 12, 11, 10)), BATCH], start=1
    ):
        function(batch)
        said.append(monitor.check(step))
    assert [len(lines) for lines in said] == [0, 1, 0, 1, 1, 1, 1, 0, 0]
    assert "frames has 2 traces and 0 compilations, expected 1 and 0: mel (static" in said[1][0]
    assert said[6][0].endswith("only counted (unexpected_shapes in summary.json)")
    assert monitor.unexpected_shapes == 6
    assert [(event.step, event.traces, event.is_expected) for event in monitor.events][:3] == [
        (1, 1, True),
        (2, 1, False),
        (4, 1, False),
    ]


def test_a_shape_of_another_bucket_is_expected_without_strictness_too() -> None:
    function, monitor = watched(is_strict=False)
    for step, batch in enumerate([BATCH, random_batch(LARGE, (9, 4), (20, 7)), BATCH], start=1):
        function(batch)
        assert monitor.check(step) == []
    assert monitor.counts() == {"frames": {"traces": 2, "compilations": 0}}


def test_only_the_first_call_of_a_shape_is_shown_as_a_compilation() -> None:
    shown: list[str] = []

    @contextmanager
    def compiling(function: str) -> Iterator[None]:
        shown.append(function)
        yield

    function = CompiledByShape(_frames, SIGNATURES, TrainingConfig(jit_compile=False))
    monitor = CompilationMonitor(NoLog(), is_strict=True, is_compiled=False, compiling=compiling)  # type: ignore[arg-type]
    monitor.watch(*function.functions, calls=function)
    counts = []
    for batch in (BATCH, BATCH, random_batch(LARGE, (9, 4), (20, 7)), BATCH):
        function(batch)
        counts.append(len(shown))
    assert counts == [1, 1, 2, 2]
    assert {*shown} == {"_frames"}


COMPILE_TWO_SHAPES = """
import sys
from typing import NamedTuple
import tensorflow as tf
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.training.compiled import CompiledByShape

class Batch(NamedTuple):
    mel: tf.Tensor

def _sum_step(batch):
    mel = batch.mel
    return tf.while_loop(lambda number, total: number < 3, lambda number, total: (number + 1, total + mel), (0, mel))

loaded = [tf.constant(number) for number in range(int(sys.argv[1]))]
shapes = [[int(length)] for length in sys.argv[2:]]
step = CompiledByShape(_sum_step, [Batch(tf.TensorSpec(shape)) for shape in ([3], [5])], TrainingConfig())
for shape in shapes:
    step(Batch(tf.ones(shape)))
"""


def test_the_compile_cache_has_the_programs_of_a_process_that_did_other_things_before(tmp_path: Path) -> None:
    def programs_after(*arguments: str) -> set[str]:
        environment = {**os.environ, "TF_XLA_FLAGS": f"--tf_xla_persistent_cache_directory={tmp_path}"}
        command = [sys.executable, "-c", COMPILE_TWO_SHAPES, *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return {path.name for path in tmp_path.iterdir()}

    first = programs_after("0", "3", "5")
    assert len(first) == 2
    # As a resumed run, which loads weights and may see the shapes in another order.
    assert programs_after("1000", "5", "3") == first

"""The variants of the step: what each traces and compiles, what it is fed with, and how much arithmetic it has."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import MODEL
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.schema import Example, RecordSpec
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.perf.benchmark.device import MatrixPeak, matrix_operations
from xtts_pipeline.perf.benchmark.step import Variant
from xtts_pipeline.perf.benchmark.streams import choose_buckets, shaped_stream, varying_stream
from xtts_pipeline.system.runtime import NativeLog

WriteCache = Callable[..., Manifest]


def operations_of(function: Callable[..., tf.Tensor], *shapes: list[int]) -> int | None:
    traced = tf.function(function, autograph=False).get_concrete_function(*(tf.TensorSpec(shape) for shape in shapes))
    return matrix_operations(traced.graph)


def test_a_product_has_two_operations_for_each_multiplication():
    assert operations_of(tf.matmul, [3, 5], [5, 7]) == 2 * 3 * 5 * 7
    assert operations_of(lambda x, y: tf.matmul(x, y, transpose_a=True), [5, 3], [5, 7]) == 2 * 3 * 5 * 7
    assert (
        operations_of(lambda x, y: tf.einsum("BFHK,BSHK->BHFS", x, y), [2, 3, 4, 5], [2, 7, 4, 5])
        == 2 * 2 * 3 * 4 * 5 * 7
    )
    assert operations_of(lambda x: x + 1.0, [3, 5]) == 0


def test_a_convolutions_gradients_cost_what_it_costs():
    def gradients(x: tf.Tensor, weight: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, weight])
            y = tf.nn.conv1d(x, weight, 1, "SAME")
        return tape.gradient(y, [x, weight])

    forward = 2 * 2 * 9 * 5 * 3 * 4
    assert operations_of(lambda x, weight: tf.nn.conv1d(x, weight, 1, "SAME"), [2, 9, 3], [5, 3, 4]) == forward
    # The forward pass itself is pruned: nobody asks for its value.
    assert operations_of(gradients, [2, 9, 3], [5, 3, 4]) in {2 * forward, 3 * forward}


def test_products_in_a_loop_are_not_guessed():
    def repeat(change: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
        return lambda x: tf.while_loop(lambda y: y[0, 0] < 9.0, lambda y: [change(y)], [x @ x])[0]

    assert operations_of(repeat(lambda y: y @ y), [3, 3]) is None
    assert operations_of(repeat(lambda y: y + 1.0), [3, 3]) == 2 * 3 * 3 * 3


@pytest.mark.parametrize(
    ("dtype", "libraries"), [(tf.float32, ["XLA", "TensorFlow", "NumPy"]), (tf.bfloat16, ["XLA", "TensorFlow"])]
)
def test_the_peak_is_that_of_the_fastest_library_measured_anew_each_time(dtype: tf.DType, libraries: list[str]):
    peak = MatrixPeak(dtype, size=64)
    found = [peak.measure(), peak.measure()]

    assert list(peak.rates) == libraries
    assert found == [max(rates[turn] for rates in peak.rates.values()) for turn in range(2)]
    assert found[0] > 0.0
    assert peak.fastest in libraries


def examples_of(lengths: list[tuple[int, int]]) -> list[Example]:
    return [
        Example(f"{number}", np.full(tokens, 3 + number % 5, np.int32), np.full((frames, 4), float(number), np.float16))
        for number, (tokens, frames) in enumerate(lengths)
    ]


def test_streams_hold_every_clip_whole(tmp_path: Path):
    spec = RecordSpec(16, 24, 4, -11.5)
    examples = examples_of([(4, 6), (5, 8), (15, 20), (12, 24), (16, 23), (3, 5)])
    buckets = choose_buckets(examples, spec, batch_size=1)
    signatures = [batch_signature(shape, 1) for shape in buckets]
    stream = shaped_stream(tmp_path, examples, buckets, signatures, seed=0)
    batches = list(islice(stream.batches, 30))

    assert 1 < len(buckets) <= 3
    assert buckets[-1] == spec
    assert {int(batch.mel_length[0]) for batch in batches} == {6, 8, 20, 24, 23, 5}
    assert {batch.mel.shape[1] for batch in stream.firsts} == {shape.max_mel_frames for shape in buckets}


def test_varying_batches_are_as_long_as_their_longest_clip(tmp_path: Path):
    spec = RecordSpec(16, 24, 4, -11.5)
    signature = batch_signature(spec, 2)
    stream = varying_stream(tmp_path, examples_of([(4, 6), (5, 8), (15, 20), (12, 24)]), spec, signature)
    batches = [*stream.firsts, *islice(stream.batches, 1)]

    assert [(batch.tokens.shape, batch.mel.shape) for batch in batches] == [([2, 5], [2, 8, 4]), ([2, 15], [2, 24, 4])]
    assert float(batches[0].mel[0, 7, 0]) == np.float16(-11.5)


class TinyStep:
    """A step of one matrix product, with what a variant asks of a TrainStep."""

    def __init__(self, signature: Batch | None) -> None:
        def _train_step(tokens: tf.Tensor, mel: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.matmul(mel, mel, transpose_b=True))[None] + tf.cast(tokens[0, 0], tf.float16)

        specs = None if signature is None else [signature.tokens, signature.mel]
        self.functions = [
            tf.function(_train_step, input_signature=specs, jit_compile=signature is not None, autograph=False)
        ]
        self.compiled = self
        self.is_new_shape = False

    def __call__(self, batch: Batch) -> tf.Tensor:
        return self.functions[0](batch.tokens, batch.mel)


def test_a_variants_figures_are_those_of_its_steps(tmp_path: Path):
    spec = RecordSpec(16, 24, 4, -11.5)
    signature = batch_signature(spec, 2)
    examples = examples_of([(4, 6), (5, 8), (15, 20), (12, 24)])
    with NativeLog() as log:
        fixed = Variant(TinyStep(signature), shaped_stream(tmp_path, examples, [spec], [signature], seed=0), log)
        varying = Variant(TinyStep(None), varying_stream(tmp_path, examples, spec, signature), log)
        rates = [fixed.run(), varying.run(), fixed.run()]
        found, free = (
            variant.figures([1e12, 1e12][:rounds], fixed.operations()) for variant, rounds in ((fixed, 2), (varying, 1))
        )

    assert min(rates) > 0.0
    assert (found["traces"], found["retraces"], found["steps"]) == (1, 0, 10)
    assert (free["traces"], free["retraces"], free["steps"]) == (2, 1, 5)
    assert found["gflops_per_step"] == pytest.approx(2 * 2 * 24 * 24 * 4 / 1e9)
    assert 0.0 < found["peak_share"] < 1.0
    # Of 6 + 8 + 20 + 24 frames in batches of 24 each; the first batch, which warms up, is in the second turn again.
    assert found["padding_share"] == pytest.approx(1.0 - 58 / 96, abs=0.1)
    assert free["peak_share"] is None
    assert found["device_utilisation"] == "no GPU" or 0.0 <= found["device_utilisation"] <= 1.0


@pytest.mark.slow
def test_only_varying_shapes_are_traced_again(tmp_path: Path, write_cache: WriteCache):
    write_cache(tmp_path / "cache", train=24, buckets=((9, 12), (16, 24)))
    overrides = ["training.batch_size=2"]
    model = MODEL.model_dump() | {"encoder_layers": 1, "decoder_layers": 1, "flow_layers": 0, "voice_latents": 0}
    overrides += [f"model.{key}={value}" for key, value in model.items()]
    # A process of its own: XLA's log must be asked for before TensorFlow is imported.
    command = [
        sys.executable,
        "-m",
        "xtts_pipeline",
        "benchmark",
        "step",
        "--cache",
        str(tmp_path / "cache"),
        "--rounds",
        "1",
        "--json",
    ]
    command += ["--output", str(tmp_path / "out"), *(part for override in overrides for part in ("--set", override))]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    figures = found["variants"]

    assert {
        name: (each["traces"], each["compilations"]) for name, each in figures.items() if name != "function varying"
    } == {
        "eager": (0, 0),
        "function fixed": (1, 0),
        "XLA fixed": (1, 1),
        "XLA buckets": (2, 2),
    }
    assert figures["function varying"]["retraces"] > 0
    assert figures["function varying"]["peak_share"] is None
    assert figures["XLA fixed"]["gflops_per_step"] == figures["eager"]["gflops_per_step"] > 0
    assert figures["XLA buckets"]["padding_share"] < figures["XLA fixed"]["padding_share"]
    assert {"XLA fixed/eager", "XLA buckets/XLA fixed", "XLA buckets/function varying"} <= set(found["ratios"])

"""`xtts benchmark step`: the train step run eagerly, traced for each shape, compiled once, or once a bucket."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, record_spec
from xtts_pipeline.cache.format.schema import Example, RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.source import Source
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.perf.benchmark.device import MatrixPeak, device_name, matrix_operations
from xtts_pipeline.perf.benchmark.results import NO_GPU, SHARE, TENTHS, WHOLE, Benchmark, Column, Figure
from xtts_pipeline.perf.benchmark.streams import Stream, choose_buckets, shaped_stream, varying_stream
from xtts_pipeline.perf.timing import in_turns, machine, paired_ratios
from xtts_pipeline.perf.trial import StepTime, time_step
from xtts_pipeline.system.nvml import Sampler
from xtts_pipeline.system.runtime import NativeLog, has_gpu
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.files import build_network

COLUMNS = (
    Column("step_ms", "step ms", WHOLE),
    Column("std_over_mean", "std/mean", SHARE),
    Column("retraces", "retraces", WHOLE),
    Column("compilations", "compilations", WHOLE),
    Column("data_wait_share", "data wait", SHARE),
    Column("device_utilisation", "device", SHARE),
    Column("mel_frames_per_second", "frames/s", WHOLE),
    Column("padding_share", "padding", SHARE),
    Column("gflops_per_second", "GFLOP/s", TENTHS),
    Column("peak_share", "of peak", SHARE),
)
OURS = ("XLA buckets", "XLA fixed")
STEPS_PER_ROUND = 5
_FUNCTION = "_train_step"
# The shapes of a batch's tokens and mel.
_Shapes = tuple[tuple[int, ...], tuple[int, ...]]


class Variant:
    """A train step with its stream of batches and its measurements so far."""

    def __init__(self, train_step: AcousticStep, stream: Stream, log: NativeLog, *, is_eager: bool = False) -> None:
        self.train_step = train_step
        # One entry for each timed step.
        self._steps: list[StepTime] = []
        self._shapes: list[_Shapes] = []
        self._mel_frames = self._padded_frames = self._compilations = 0
        self._utilisation: list[float] = []
        self._stream, self._log = stream, log
        self._mode: Callable[[], AbstractContextManager[None]] = _eager if is_eager else nullcontext
        # Not timed: the first step of a shape traces, and may compile.
        with self._mode(), self._counting_compilations():
            for batch in stream.firsts:
                time_step(train_step, batch)

    def run(self) -> float:
        """Run a round's steps and return their real mel frames per second, waiting included."""
        frames, seconds = 0, 0.0
        with self._mode(), self._counting_compilations(), Sampler() as sampler:
            for _ in range(STEPS_PER_ROUND):
                started = time.perf_counter()
                batch = next(self._stream.batches)
                step = time_step(self.train_step, batch, started)
                self._steps.append(step)
                seconds += step.seconds
                frames += self._count_frames(batch)
        self._utilisation += [sample.utilisation for sample in sampler.samples if sample.utilisation is not None]
        return frames / seconds

    def _count_frames(self, batch: Batch) -> int:
        frames = int(tf.reduce_sum(batch.mel_length).numpy())
        self._mel_frames += frames
        self._padded_frames += batch.mel.shape[0] * batch.mel.shape[1]
        self._shapes.append((tuple(batch.tokens.shape), tuple(batch.mel.shape)))
        return frames

    def operations(self) -> dict[_Shapes, int | None]:
        """Return a step's operations by its batch's shapes; not of untraced functions or those of any shape."""
        traced = [
            function
            for function in self.train_step.compiled.functions
            if function.input_signature and _traces(function)
        ]
        return {
            (tuple(function.input_signature[0].shape), tuple(function.input_signature[1].shape)): matrix_operations(
                function.get_concrete_function().graph
            )
            for function in traced
        }

    @contextmanager
    def _counting_compilations(self) -> Iterator[None]:
        before = self._log.compilations().get(_FUNCTION, 0)
        yield
        self._compilations += self._log.compilations().get(_FUNCTION, 0) - before

    def figures(self, peaks: Sequence[float], operations: Mapping[_Shapes, int | None]) -> dict[str, Figure]:
        """Return the table's figures; `peaks` are the operations per second of the matrix product in each round."""
        step, wait = (np.array([getattr(each, name) for each in self._steps]) for name in ("busy", "wait"))
        functions = self.train_step.compiled.functions
        traces = sum(map(_traces, functions))
        done = [number for shapes in self._shapes if (number := operations.get(shapes)) is not None]
        rates = np.array(done) / step if len(done) == len(step) else None
        shares = None if rates is None else rates.reshape(-1, STEPS_PER_ROUND) / np.array(peaks)[:, None]
        return {
            "step_ms": 1e3 * float(np.median(step)),
            "mean_ms": 1e3 * float(step.mean()),
            "std_over_mean": float(step.std() / step.mean()),
            "traces": traces,
            "retraces": traces - sum(_traces(function) > 0 for function in functions),
            "compilations": self._compilations,
            "data_wait_share": float(wait.sum() / (wait.sum() + step.sum())),
            "device_utilisation": _mean_utilisation(self._utilisation),
            "mel_frames_per_second": self._mel_frames / float(wait.sum() + step.sum()),
            "padding_share": 1.0 - self._mel_frames / self._padded_frames,
            "gflops_per_step": None if rates is None else float(np.mean(done)) / 1e9,
            "gflops_per_second": None if rates is None else float(np.median(rates)) / 1e9,
            "peak_share": None if shares is None else float(np.median(shares)),
            "steps": len(step),
        }


def _mean_utilisation(samples: Sequence[float]) -> Figure:
    """Return the mean; without samples "no GPU", or None for a GPU that could not be sampled."""
    if samples:
        return float(np.mean(samples))
    return None if has_gpu() else NO_GPU


def measure_step(
    cache: Path,
    manifest: Manifest,
    examples: Sequence[Example],
    config: Config,
    work: Path,
    log: NativeLog,
    *,
    rounds: int,
    say: Callable[[str], None],
) -> Benchmark:
    """Run each variant on the same clips, five steps a round, in turns; return the medians over all steps."""
    # TensorFlow warns of each retrace of the variant with varying shapes.
    tf.get_logger().setLevel("ERROR")
    largest, batch_size = record_spec(manifest), config.training.clips_per_batch
    buckets = list(bucket_specs(manifest)) if manifest.buckets else choose_buckets(examples, largest, batch_size)
    variants = _variants(CachedSource(cache, manifest), buckets, examples, config, work, log, say)
    say("the peak of the matrix product")
    peak = MatrixPeak(tf.dtypes.as_dtype(config.training.product_type))
    found = in_turns({**{name: variant.run for name, variant in variants.items()}, "peak": peak.measure}, rounds, say)
    peaks = found.pop("peak")
    settings = {
        **machine(),
        "device": device_name(),
        "precision": config.training.product_type,
        "parameters": variants["XLA fixed"].train_step.network.parameter_count,
        "batch_size": batch_size,
        "shape": largest.shape_text,
        "buckets": [spec.shape_text for spec in buckets],
        "clips": len(examples),
        "rounds": rounds,
        "matrix_product": f"{peak.size} x {peak.size}",
        "peak_gflops_per_second": round(float(np.median(peaks)) / 1e9, 1),
        "peak_by": peak.fastest,
    }
    operations = {shapes: number for variant in variants.values() for shapes, number in variant.operations().items()}
    figures = {name: variant.figures(peaks, operations) for name, variant in variants.items()}
    return Benchmark("step", COLUMNS, figures, paired_ratios(found, OURS), settings, "mel_frames_per_second")


def _variants(
    source: Source,
    buckets: Sequence[RecordSpec],
    examples: Sequence[Example],
    config: Config,
    work: Path,
    log: NativeLog,
    say: Callable[[str], None],
) -> dict[str, Variant]:
    """Return every variant after its first steps; each has its own weights, and all start alike."""
    training, identity = config.training, source.identity()
    largest = record_spec(source.manifest)

    def step_of(specs: Sequence[RecordSpec], *, is_compiled: bool, is_strict: bool) -> AcousticStep:
        settings = training.model_copy(
            update={"jit_compile": is_compiled, "strict_shapes": is_strict, "debug_eager": False}
        )
        network, average = (
            build_network(identity, config, tf.dtypes.as_dtype(training.product_type)) for _ in range(2)
        )
        return AcousticStep(network, average, settings, bucket_signatures(identity, specs, training))

    fixed = bucket_signatures(identity, [largest], training)

    def fixed_stream(name: str) -> Stream:
        folder = work / name
        folder.mkdir()
        return shaped_stream(folder, examples, [largest], fixed, training.seed)

    def bucket_stream() -> Stream:
        return shaped_stream(work, examples, buckets, bucket_signatures(identity, buckets, training), training.seed)

    plain, traced = {"is_compiled": False, "is_strict": True}, {"is_compiled": False, "is_strict": False}
    compiled = {"is_compiled": True, "is_strict": True}
    made: dict[str, Callable[[], tuple[AcousticStep, Stream]]] = {
        "eager": lambda: (step_of([largest], **plain), fixed_stream("eager")),
        "function varying": lambda: (step_of([largest], **traced), varying_stream(work, examples, largest, fixed[0])),
        "function fixed": lambda: (step_of([largest], **plain), fixed_stream("function")),
        "XLA fixed": lambda: (step_of([largest], **compiled), fixed_stream("xla")),
        "XLA buckets": lambda: (step_of(buckets, **compiled), bucket_stream()),
    }
    variants = {}
    for name, make in made.items():
        say(f"first step of {name}")
        variants[name] = Variant(*make(), log, is_eager=name == "eager")
    return variants


@contextmanager
def _eager() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def _traces(function: Any) -> int:
    return int(function.experimental_get_tracing_count())

"""`xtts benchmark`: how fast this machine preprocesses, loads batches and trains, compared with other ways to do it."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import joblib

from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, Manifest, load_manifest
from xtts_pipeline.cache.format.schema import Example
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.corpus_options import CORPUS_OPTIONS, corpus_options
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    Seconds,
    cache_option,
    create_empty_folder,
    dated_folder,
    json_option,
    print_report,
)
from xtts_pipeline.cli.run_options import config_options
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.errors import ConfigError, output_errors
from xtts_pipeline.perf.benchmark.clips import Clip, copy_corpus, read_examples, write_clips
from xtts_pipeline.perf.benchmark.preprocess import measure_preprocess
from xtts_pipeline.perf.benchmark.results import Benchmark, BenchmarkReport, save_benchmark
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.training.checks import check_enough_records
from xtts_pipeline.training.settings import training_config

F = TypeVar("F", bound=Callable[..., Any])

# The default number of clips: enough batches for a steady flow, enough rows to outweigh the start.
CLIPS = {"preprocess": 1_000, "input": 256, "step": 512}
ROUNDS = {"preprocess": 3, "input": 5, "step": 5}


@click.group(cls=SummaryGroup)
def benchmark() -> None:
    """Measure how fast this machine preprocesses and trains."""


def _common_options(function: F) -> F:
    """Add the options that all benchmarks have."""
    options: list[Callable[[Any], Any]] = [
        cache_option,
        click.option(
            "--output",
            type=FOLDER,
            default=lambda: dated_folder("benchmark"),
            help="Folder for JSON files and pictures, new or empty.  [default: benchmark/DATE-TIME]",
        ),
        click.option("--clips", type=COUNT, help=f"Clips to measure with.  [default: {_listed(CLIPS)}]"),
        click.option("--rounds", type=COUNT, help=f"How often each variant is measured.  [default: {_listed(ROUNDS)}]"),
        config_options,
        json_option,
        click.pass_obj,
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _listed(defaults: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in defaults.items())


_data_option = click.option(
    "--data", type=FOLDER, help="Folder of the corpus: use its sound, not sound that Griffin-Lim renders from the mels."
)
_seconds_option = click.option(
    "--seconds",
    type=Seconds(0.05),
    default=2.0,
    show_default=True,
    help="Duration of each measurement of the input pipeline.",
)


@benchmark.command(
    "preprocess",
    example="xtts benchmark preprocess --cache cache/ --clips 200",
    sections={"How the corpus is read": CORPUS_OPTIONS},
)
@_data_option
@corpus_options
@_common_options
def benchmark_preprocess(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Measure clips per second from a corpus to a cache.

    Compared with librosa and TFRecordWriter.
    """
    print_report(BenchmarkSuite(echo=debug, **options).run("preprocess"), as_json)


@benchmark.command("input", example="xtts benchmark input --cache cache/ --clips 200")
@_data_option
@_seconds_option
@_common_options
def benchmark_input(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Measure records per second of the input pipeline.

    Compared with reading alone, Python inside tf.data, and TF-native WAV loading.
    """
    print_report(BenchmarkSuite(echo=debug, **options).run("input"), as_json)


@benchmark.command("step", example="xtts benchmark step --cache cache/ --clips 200")
@_common_options
def benchmark_step(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Measure the training step.

    Eager, tf.function with varying and with fixed shapes, XLA, XLA with buckets.
    """
    print_report(BenchmarkSuite(echo=debug, **options).run("step"), as_json)


@benchmark.command("all", example="xtts benchmark all --cache cache/ --clips 200")
@_data_option
@_seconds_option
@_common_options
def benchmark_all(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Run the three benchmarks one after the other."""
    print_report(BenchmarkSuite(echo=debug, **options).run("preprocess", "input", "step"), as_json)


@dataclass(frozen=True, kw_only=True)
class BenchmarkSuite:
    """The benchmarks, with the options of the command.

    data: the corpus, for `preprocess` and `input`.
    reading: how `preprocess` reads it; None: as it was read for the cache, with the cache's settings.
    clips, rounds: None for the number in `CLIPS` and `ROUNDS`.
    seconds: the duration of each measurement, for `input`.
    """

    cache: Path
    configs: Sequence[str]
    overrides: Sequence[str]
    output: Path
    clips: int | None
    rounds: int | None
    echo: bool
    data: Path | None = None
    reading: ReadOptions | None = None
    seconds: float = 2.0

    def run(self, *names: str) -> BenchmarkReport:
        """Run the named benchmarks, and write the JSON file and the picture of each as soon as it ends.

        Raises CacheError for a cache that cannot be trained on, CorpusError for a corpus that is not the cache's,
        ConfigError for settings that contradict the cache, OutputError for a folder that is not empty.
        """
        if self.data is None and self.reading not in (None, AUTO):
            raise ConfigError("benchmark preprocess: found options of a corpus without one; give --data DIR")
        needs_cache = names != ("preprocess",)
        if self.data is None and not (self.cache / MANIFEST_NAME).is_file() and not needs_cache:
            raise ConfigError(
                f"benchmark preprocess: no --data, and {self.cache} is no cache to render clips from; give --data DIR"
            )
        if self.data is None or needs_cache:
            # Before anything is measured: `all` would fail only after minutes.
            manifest, config = self._training_settings()
            if "input" in names:
                check_enough_records(self.cache, manifest, config)
        check_apart(self.output, self.cache)
        create_empty_folder(self.output)
        return BenchmarkReport([self._measure(name) for name in names], self.output)

    def _measure(self, name: str) -> Benchmark:
        """Run one benchmark and write its files."""
        measure = {"preprocess": self._preprocess, "input": self._input, "step": self._step}[name]
        clips, rounds = self.clips or CLIPS[name], self.rounds or ROUNDS[name]
        with (
            output_errors(self.output, "choose another --output", names_file=True),
            tempfile.TemporaryDirectory(prefix=f".{name}-", dir=self.output) as work,
        ):
            benchmark = measure(Path(work), clips, rounds, partial(_say, name))
        save_benchmark(benchmark, self.output)
        return benchmark

    def _preprocess(self, work: Path, count: int, rounds: int, say: Callable[[str], None]) -> Benchmark:
        say("the corpus as 16-bit WAV files")
        if self.data is not None and self.reading is not None:
            config = load_config(self.configs, self.overrides)
            clips = copy_corpus(work / "corpus", self.data, config, count, self.reading)
        elif self.data is not None:
            manifest, config = self._training_settings()
            clips = copy_corpus(work / "corpus", self.data, config, count, manifest.first_reading)
        else:
            manifest, config = self._training_settings()
            clips = len(self._write_clips(work, manifest, read_examples(self.cache, manifest, count)))
        jobs = joblib.cpu_count()
        return measure_preprocess(work / "corpus", clips, config, work, rounds=rounds, jobs=jobs, say=say)

    def _input(self, work: Path, count: int, rounds: int, say: Callable[[str], None]) -> Benchmark:
        manifest, config = self._training_settings()
        say("the clips' sound" if self.data else "Griffin-Lim renders the clips")
        clips = self._write_clips(work, manifest, read_examples(self.cache, manifest, count))
        module = "xtts_pipeline.perf.benchmark.input"
        with tensorflow(module, log_path=self.output / "tensorflow.log", echo=self.echo) as (_, benchmarks):
            measured: Benchmark = benchmarks.measure_input(
                self.cache, manifest, clips, config, work, rounds=rounds, seconds=self.seconds, say=say
            )
        return measured

    def _step(self, work: Path, count: int, rounds: int, say: Callable[[str], None]) -> Benchmark:
        manifest, config = self._training_settings()
        examples = read_examples(self.cache, manifest, count)
        module = "xtts_pipeline.perf.benchmark.step"
        with tensorflow(module, log_path=self.output / "tensorflow.log", echo=self.echo) as (log, benchmarks):
            measured: Benchmark = benchmarks.measure_step(
                self.cache, manifest, examples, config, work, log, rounds=rounds, say=say
            )
        return measured

    def _training_settings(self) -> tuple[Manifest, Config]:
        """Return the cache's manifest and the settings of a training on it."""
        manifest = load_manifest(self.cache)
        require_whole(self.cache)
        return manifest, training_config(manifest, self.configs, self.overrides, None)

    def _write_clips(self, work: Path, manifest: Manifest, examples: list[Example]) -> list[Clip]:
        return write_clips(work / "corpus", self.cache, manifest, examples, self.data)


def _say(name: str, line: str) -> None:
    echo(f"{name}: {line}", err=True)

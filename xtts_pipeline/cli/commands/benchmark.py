"""`xtts benchmark`: how fast preprocessing, the input pipeline and the step are on this machine, beside their rivals."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, Manifest, load_manifest
from xtts_pipeline.cache.format.schema import Example
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.commands.train import check_enough_records, training_config
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError, OutputError
from xtts_pipeline.perf.benchmark.clips import Clip, copy_corpus, read_examples, write_clips
from xtts_pipeline.perf.benchmark.preprocess import measure_preprocess
from xtts_pipeline.perf.benchmark.results import Benchmark, BenchmarkReport, save_benchmark
from xtts_pipeline.system.runtime import NativeLog

BENCHMARKS = ("preprocess", "input", "step")
# Clips that each measures with, if it is not said: enough batches to flow, enough rows to outweigh a start.
CLIPS = {"preprocess": 1_000, "input": 256, "step": 512}
ROUNDS = {"preprocess": 3, "input": 5, "step": 5}


class _Benchmarks:
    """One run of the command: what was asked for, and what the benchmarks share."""

    def __init__(
        self,
        cache: Path,
        data: Path | None,
        configs: Sequence[str],
        overrides: Sequence[str],
        output: Path,
        clips: int | None,
        rounds: int | None,
        seconds: float,
        log: NativeLog,
    ) -> None:
        self.cache, self.data, self.output, self.seconds, self.log = cache, data, output, seconds, log
        self._configs, self._overrides, self._clips, self._rounds = configs, overrides, clips, rounds

    def run(self, name: str) -> Benchmark:
        """Run one benchmark and write its files."""
        measure: dict[str, Callable[[Path], Benchmark]] = {
            "preprocess": self._preprocess,
            "input": self._input,
            "step": self._step,
        }
        try:
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=self.output) as work:
                benchmark = measure[name](Path(work))
        except OSError as error:
            where = error.filename or self.output
            raise OutputError(
                f"{where}: cannot be written or read ({error.strerror}); choose another --output"
            ) from None
        save_benchmark(benchmark, self.output)
        return benchmark

    def _preprocess(self, work: Path) -> Benchmark:
        count = self._clips or CLIPS["preprocess"]
        self._say("preprocess", "the corpus as 16-bit WAV files")
        if self.data is not None:
            config = load_config(self._configs, self._overrides)
            clips = copy_corpus(work / "corpus", self.data, config, count)
        else:
            manifest, config = self._manifest()
            clips = len(self._write_clips(work, manifest, count)[0])
        jobs = os.cpu_count() or 1
        rounds = self._rounds or ROUNDS["preprocess"]
        return measure_preprocess(
            work / "corpus", clips, config, work, rounds=rounds, jobs=jobs, say=self._teller("preprocess")
        )

    def _input(self, work: Path) -> Benchmark:
        manifest, config = self._manifest()
        check_enough_records(self.cache, manifest, config)
        self._say("input", "the clips' sound" if self.data else "Griffin-Lim renders the clips")
        clips, _ = self._write_clips(work, manifest, self._clips or CLIPS["input"])
        from xtts_pipeline.perf.benchmark.input import measure_input

        rounds = self._rounds or ROUNDS["input"]
        say = self._teller("input")
        return measure_input(self.cache, manifest, clips, config, work, rounds=rounds, seconds=self.seconds, say=say)

    def _step(self, work: Path) -> Benchmark:
        manifest, config = self._manifest()
        examples = read_examples(self.cache, manifest, self._clips or CLIPS["step"])
        from xtts_pipeline.perf.benchmark.step import measure_step

        rounds = self._rounds or ROUNDS["step"]
        return measure_step(
            self.cache, manifest, examples, config, work, self.log, rounds=rounds, say=self._teller("step")
        )

    def _manifest(self) -> tuple[Manifest, Config]:
        """Return the cache's manifest and the settings that would train on it."""
        manifest = load_manifest(self.cache)
        require_whole(self.cache)
        return manifest, training_config(manifest, self._configs, self._overrides, None)

    def _write_clips(self, work: Path, manifest: Manifest, count: int) -> tuple[list[Clip], list[Example]]:
        examples = read_examples(self.cache, manifest, count)
        return write_clips(work / "corpus", self.cache, manifest, examples, self.data), examples

    def _teller(self, name: str) -> Callable[[str], None]:
        return lambda line: self._say(name, line)

    @staticmethod
    def _say(name: str, line: str) -> None:
        click.echo(f"{name}: {line}", err=True)


def benchmark(
    names: Sequence[str],
    *,
    cache: Path,
    configs: Sequence[str],
    overrides: Sequence[str],
    output: Path | None,
    clips: int | None,
    rounds: int | None,
    echo_native_log: bool,
    data: Path | None = None,
    seconds: float = 2.0,
) -> BenchmarkReport:
    """Run the named benchmarks one after the other, writing each one's JSON and picture as soon as it is there.

    `data`, the corpus, is for `preprocess` and `input`; `seconds`, of each measurement, for `input`.
    Raises CacheError for a cache that cannot be trained on, CorpusError for a corpus that is not the cache's, ConfigError for settings
    that contradict the cache, OutputError for a folder that is in use.
    """
    if data is None and not (cache / MANIFEST_NAME).is_file() and names == ("preprocess",):
        raise ConfigError(
            f"benchmark preprocess: no --data, and {cache} is no cache to render clips from; give --data DIR"
        )
    if data is None or names != ("preprocess",):
        # Before anything is measured: `all` would get here after minutes only.
        training_config(load_manifest(cache), configs, overrides, None)
    folder = output or Path("benchmark") / time.strftime("%Y%m%d-%H%M%S")
    _create(folder)
    with NativeLog(folder / "tensorflow.log", echo=echo_native_log) as log:
        run = _Benchmarks(cache, data, configs, overrides, folder, clips, rounds, seconds, log)
        return BenchmarkReport([run.run(name) for name in names], folder)


def _create(folder: Path) -> None:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise OutputError(f"{folder}: this folder is not empty; choose another --output")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); choose another --output") from None

"""`xtts benchmark preprocess`: time whole processes that turn a corpus into shards, ours and a naive one, in turns."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import StepError
from xtts_pipeline.perf.benchmark.results import TENTHS, Benchmark, Column
from xtts_pipeline.perf.timing import in_turns, machine, medians, paired_ratios

COLUMNS = (
    Column("seconds", "s", TENTHS),
    Column("cpu_seconds", "CPU s", TENTHS),
    Column("clips_per_second", "clips/s", TENTHS),
)
OURS, OURS_AGAIN, NAIVE = "ours", "ours, nothing changed", "librosa"


def measure_preprocess(
    corpus: Path, clips: int, config: Config, work: Path, *, rounds: int, jobs: int, say: Callable[[str], None]
) -> Benchmark:
    """Preprocess an LJSpeech corpus of `clips` clips, each time in a new process, and return the medians.

    Start-up is included. A clip that ours rejects is none of its clips per second; the baseline rejects none.
    Raises StepError if a process fails.
    """
    config_path = work / "config.yaml"
    config_path.write_text(dump_config(config), encoding="utf-8")
    cache, naive = work / "cache", work / "naive"
    python = [sys.executable, "-m"]
    ours = [*python, "xtts_pipeline", "preprocess", "--data", str(corpus), "--cache", str(cache)]
    ours += ["--config", str(config_path), "--jobs", str(jobs), "--max-rejected", "100%", "--json"]
    baseline = [*python, "xtts_pipeline.perf.benchmark.naive", str(corpus), str(naive), str(jobs), str(config_path)]

    def again() -> dict[str, float]:
        figures = _run("xtts preprocess", ours)
        return {**figures, "clips_per_second": load_manifest(cache).counts.kept / figures["seconds"]}

    def from_nothing() -> dict[str, float]:
        shutil.rmtree(cache, ignore_errors=True)
        return again()

    def naively() -> dict[str, float]:
        shutil.rmtree(naive, ignore_errors=True)
        figures = _run("the naive preprocessing", baseline)
        return {**figures, "clips_per_second": clips / figures["seconds"]}

    measured = in_turns({OURS: from_nothing, OURS_AGAIN: again, NAIVE: naively}, rounds, say)
    rates = {name: [figures["clips_per_second"] for figures in measured[name]] for name in (OURS, NAIVE)}
    if rejected := load_manifest(cache).counts.rejected:
        say(f"warning: xtts preprocess rejected {rejected} of {clips} clips; xtts preprocess --dry-run says why")
    settings = {**machine(), "clips": clips, "rejected": rejected, "jobs": jobs, "rounds": rounds}
    return Benchmark(
        "preprocess", COLUMNS, medians(measured), paired_ratios(rates, [OURS]), settings, "clips_per_second"
    )


def _run(name: str, command: Sequence[str]) -> dict[str, float]:
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    before, started = os.times(), time.perf_counter()
    with tempfile.TemporaryFile() as stderr:
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment, check=False)
        if ended.returncode:
            stderr.seek(0)
            sys.stderr.write(stderr.read().decode(errors="replace"))
            raise StepError(name, ended.returncode)
    seconds, after = time.perf_counter() - started, os.times()
    cpu_seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}

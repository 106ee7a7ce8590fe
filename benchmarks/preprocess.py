"""Time `xtts preprocess` and `xtts verify-cache` against a naive prototype and a lower bound; print a Markdown table.

    python benchmarks/preprocess.py --data path/to/LJSpeech-1.1 --count 4000 --work /some/empty/folder

Every row is a whole process, start-up included, with the sources in the page cache. The prototype is one joblib task
per shard with soundfile, librosa.feature.melspectrogram and tf.io.TFRecordWriter: float16, 880 frames, no trimming, no
accounting. The lower bound is reading, decoding and the Fourier transform alone. Rows are measured in turns, `--rounds`
times; ratios are medians of the ratios within a round. Linux only: memory and CPU time come from /proc and wait4.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHARD_CLIPS = 256
FLOOR_FRAMES = 32
NAIVE_START = "naive prototype, one clip a worker"


@dataclass(frozen=True)
class Cost:
    """Resources of one process and its workers; memory is each process's own peak."""

    seconds: float
    cpu_seconds: float
    parent_megabytes: int
    worker_megabytes: int


def measure(command: list[str]) -> Cost:
    """Run a command and return the resources it used. Raises RuntimeError if it fails."""
    environment = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    started = time.perf_counter()
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=words, env=environment)
        peaks: dict[int, int] = {}
        watcher = threading.Thread(target=_watch, args=(process.pid, peaks), daemon=True)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        watcher.join()
        if status:
            words.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}\n{words.read().decode()}")
    parent = peaks.pop(process.pid, 0)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, parent, max(peaks.values(), default=0))


def _watch(root: int, peaks: dict[int, int]) -> None:
    """Record the peak resident megabytes of a process and its descendants until it ends."""
    while Path(f"/proc/{root}/task").exists():
        for process in _tree(root):
            try:
                status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
            except OSError:
                continue
            if "VmHWM:" in status:
                peaks[process] = int(status.partition("VmHWM:")[2].split()[0]) // 1024
            elif process == root:
                return
        time.sleep(0.1)


def _tree(process: int) -> Iterator[int]:
    yield process
    try:
        children = [
            child
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def prepare(data: Path, count: int, corpus: Path) -> int:
    """Link the first clips of a corpus into a corpus of their own, read them once, and return how many there are."""
    rows = (data / "metadata.csv").read_text(encoding="utf-8").splitlines()[:count]
    (corpus / "wavs").mkdir(parents=True)
    for row in rows:
        name = f"{row.partition('|')[0]}.wav"
        try:
            os.link(data / "wavs" / name, corpus / "wavs" / name)
        except OSError:  # another file system
            shutil.copyfile(data / "wavs" / name, corpus / "wavs" / name)
        (corpus / "wavs" / name).read_bytes()
    (corpus / "metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return len(rows)


def naive_shard(rows: list[str], corpus: Path, path: Path) -> None:
    """Write one shard as the naive prototype does, which only a worker imports."""
    from xtts_pipeline.config.schema import Config
    from xtts_pipeline.perf.benchmark.naive import write_shard

    write_shard(rows, corpus, path, Config())


def floor_shard(rows: list[str], corpus: Path, _path: Path) -> None:
    """Read, decode and transform; keep nothing."""
    import scipy.fft

    from xtts_pipeline.audio.load import decode_wave
    from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
    from xtts_pipeline.system.memory import keep_freed_memory

    keep_freed_memory()
    audio, limits = AudioConfig(), LimitsConfig()
    for row in rows:
        name = f"{row.partition('|')[0]}.wav"
        wave = decode_wave((corpus / "wavs" / name).read_bytes(), audio, limits, name)
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(wave, 512), 1024)[::256]
        for start in range(0, len(frames), FLOOR_FRAMES):
            scipy.fft.rfft(frames[start : start + FLOOR_FRAMES])


def run_shards(kind: str, corpus: Path, output: Path, jobs: int) -> None:
    """Process a whole corpus in joblib tasks of one shard each."""
    import joblib

    rows = (corpus / "metadata.csv").read_text(encoding="utf-8").splitlines()
    output.mkdir(parents=True)
    size = 1 if kind == "naive-start" else SHARD_CLIPS
    work = floor_shard if kind == "floor" else naive_shard
    starts = range(jobs) if kind == "naive-start" else range(0, len(rows), SHARD_CLIPS)
    tasks = (joblib.delayed(work)(rows[at : at + size], corpus, output / f"{at:05d}.tfrecord") for at in starts)
    joblib.Parallel(n_jobs=jobs)(tasks)


def measure_round(corpus: Path, work: Path, jobs: int) -> dict[str, Cost]:
    """Measure every row once."""
    xtts = [sys.executable, "-m", "xtts_pipeline"]
    own = [
        sys.executable,
        __file__,
        "--jobs",
        str(jobs),
        "--data",
        str(corpus),
        "--work",
        str(work / "shards"),
        "--only",
    ]
    costs = {}
    for name, kind in (
        ("naive prototype", "naive"),
        (NAIVE_START, "naive-start"),
        ("floor: read, decode, transform", "floor"),
    ):
        costs[name] = measure([*own, kind])
        shutil.rmtree(work / "shards")
    cache = ["--cache", str(work / "cache"), "--jobs", str(jobs)]
    preprocess = [*xtts, "preprocess", "--data", str(corpus), "--config", "ljspeech", "--max-rejected", "100%", *cache]
    costs["`preprocess`, no trimming"] = measure(preprocess)
    shutil.rmtree(work / "cache")
    trimmed = [*preprocess, "--set", "audio.trim_db=40.0"]
    costs["`preprocess` with trimming"] = measure(trimmed)
    costs["`preprocess` again, nothing changed"] = measure(trimmed)
    costs["`verify-cache`"] = measure([*xtts, "verify-cache", *cache])
    costs["`verify-cache --level quick`"] = measure([*xtts, "verify-cache", "--level", "quick", *cache])
    return costs


def print_table(rounds: list[dict[str, Cost]], clips: int, shard_bytes: int) -> None:
    """Print one row per command: medians over the rounds."""
    print(
        f"\n{clips} clips, {shard_bytes / 1e6:.0f} MB of shards, {os.cpu_count()} cores, "
        f"median of {len(rounds)} rounds\n"
    )
    print("| what | s | CPU s | clips/s | GB/s | naive / this, time | naive / this, CPU | parent MB | worker MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    columns = defaultdict(list)
    for costs in rounds:
        for name, cost in costs.items():
            naive = costs["naive prototype"]
            does_all = not any(word in name for word in ("again", "verify", "one clip"))
            columns[name].append(
                (
                    cost.seconds,
                    cost.cpu_seconds,
                    clips / cost.seconds if does_all else None,
                    shard_bytes / cost.seconds / 1e9 if name == "`verify-cache`" else None,
                    naive.seconds / cost.seconds if does_all else None,
                    naive.cpu_seconds / cost.cpu_seconds if does_all else None,
                    cost.parent_megabytes,
                    cost.worker_megabytes or None,
                )
            )
    for name, rows in columns.items():
        forms = ("{:.1f}", "{:.1f}", "{:.0f}", "{:.2f}", "{:.2f}", "{:.2f}", "{:.0f}", "{:.0f}")
        cells = [
            "" if column[0] is None else form.format(statistics.median(column))
            for form, column in zip(forms, zip(*rows, strict=True), strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a corpus of LJSpeech's layout")
    parser.add_argument("--count", type=int, default=4000, help="clips in all")
    parser.add_argument("--work", type=Path, required=True, help="a folder to make; it must not exist")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only",
        choices=("naive", "naive-start", "floor"),
        help="run this row alone, on all of --data, without measuring",
    )
    arguments = parser.parse_args()
    if arguments.only:
        run_shards(arguments.only, arguments.data, arguments.work, arguments.jobs)
        return
    work = arguments.work
    clips = prepare(arguments.data, arguments.count, work / "corpus")
    rounds: list[dict[str, Cost]] = []
    for number in range(arguments.rounds):
        rounds.append(measure_round(work / "corpus", work, arguments.jobs))
        shard_bytes = sum(path.stat().st_size for path in (work / "cache").glob("*.tfrecord"))
        shutil.rmtree(work / "cache")
        # After every round, so that an interruption keeps the rounds before it.
        print_table(rounds, clips, shard_bytes)
        print(f"round {number + 1} of {arguments.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

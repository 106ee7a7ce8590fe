"""Run the main job on a corpus in the LJSpeech layout and print its figures as a table.

    python benchmarks/main_job.py --data path/to/LJSpeech-1.1 --work /some/new/folder

Each row is a real command or a comparison of files; the table goes into docs/main-job.md. Nothing is judged here.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.perf.benchmark.librosa_mel import librosa_log_mel


def xtts(*arguments: object) -> tuple[int, Any, float]:
    """Run a command with `--json`; return its exit code, its result, and the seconds of the whole process."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "xtts_pipeline", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - started
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else done.stderr.strip(), seconds


def row(what: str, figure: str) -> None:
    """Print one line of the table."""
    print(f"| {what} | {figure} |", flush=True)


def help_seconds(runs: int = 9) -> list[float]:
    """Return the sorted wall times of `xtts --help`."""
    return sorted(xtts("--help")[2] for _ in range(runs))


def shard_hashes(cache: Path) -> dict[str, str]:
    """Return the SHA-256 of each shard by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(cache.glob("*.tfrecord"))}


def greatest_mel_difference(cache: Path, corpus: Path, clips: int) -> tuple[float, int]:
    """Return the largest difference of a stored bin from librosa's, in natural log, and the number of clips."""
    manifest = load_manifest(cache)
    sources = {entry.id: corpus / entry.source.path for entry in read_utterances(cache)}
    greatest, compared = 0.0, 0
    for shard in manifest.shards:
        for payload in read_records(cache / shard.name):
            if compared == clips:
                return greatest, compared
            record = decode_example(bytes(payload), manifest.spec_of_shard[shard.name])
            expected = librosa_log_mel(sources[record["id"]], manifest.audio)
            stored = np.asarray(record["mel"], np.float32)[: len(expected)]
            greatest, compared = max(greatest, float(np.abs(stored - expected).max())), compared + 1
    return greatest, compared


def count_found_flips(cache: Path, flips: int) -> int:
    """Flip one random bit at a time, in files drawn evenly, and return how often `verify-cache` exits with 1."""
    chosen = np.random.default_rng(0)
    files = sorted(
        path for path in cache.rglob("*") if path.is_file() and path.stat().st_size and path.name != ".gitignore"
    )
    found = 0
    for _ in range(flips):
        path = files[chosen.integers(len(files))]
        sound = path.read_bytes()
        bit = int(chosen.integers(len(sound) * 8))
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found += xtts("verify-cache", "--cache", cache, "--json")[0] == 1
        path.write_bytes(sound)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="a folder to make; it must not exist")
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--clips", type=int, default=24, help="clips whose mels are compared")
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    work, data = arguments.work, arguments.data
    work.mkdir(parents=True)
    print("| what | figure |\n|---|---|")
    times = help_seconds()
    row("`xtts --help`, whole process", f"median {times[len(times) // 2]:.2f} s, max {times[-1]:.2f} s")

    for name, jobs in (("one", 1), ("two", 2)):
        code, result, seconds = xtts(
            "preprocess", "--data", data, "--cache", work / name, "--config", "ljspeech", "--jobs", jobs, "--json"
        )
        counts = f"read {result['read']}, kept {result['kept']}, rejected {result['rejected']}"
        row(f"`preprocess --config ljspeech --jobs {jobs}`", f"exit {code}; {counts}; {seconds:.1f} s")
    row(
        "shards of the two",
        "byte-identical" if shard_hashes(work / "one") == shard_hashes(work / "two") else "DIFFERENT",
    )

    for limit in ("50%", "5%"):
        shutil.rmtree(work / "short", ignore_errors=True)
        options = ("--config", "ljspeech-800", "--max-rejected", limit, "--json")
        code, result, _ = xtts("preprocess", "--data", data, "--cache", work / "short", *options)
        row(
            f"`preprocess --config ljspeech-800 --max-rejected {limit}`",
            f"exit {code}; kept {result['kept']}, {result['rejected_by_reason']}",
        )

    code, result, seconds = xtts("verify-cache", "--cache", work / "one", "--json")
    row("`verify-cache`", f"exit {code}; {result['records']} records, {result['bytes'] / 1e6:.1f} MB, {seconds:.2f} s")
    row(
        f"`verify-cache` after each of {arguments.flips} flipped bits",
        f"{count_found_flips(work / 'one', arguments.flips)} found",
    )
    greatest, compared = greatest_mel_difference(work / "one", data, arguments.clips)
    row(f"stored mels against librosa, {compared} clips, every bin", f"at most {greatest:.4f} in natural log")

    options = ("--set", "training.batch_size=4", "--steps", arguments.steps, "--json")
    code, run, seconds = xtts("train", "--cache", work / "one", "--output", work / "run", *options)
    step, loss = run["step_ms"], run["loss"]
    row(f"`train --set training.batch_size=4 --steps {arguments.steps}`", f"exit {code}; {seconds:.0f} s in all")
    row(
        "traces, compilations",
        ", ".join(
            f"{name} {count['traces']} and {count['compilations']}" for name, count in run["by_function"].items()
        ),
    )
    row("loss first, last", f"{loss['first']:.2f}, {loss['last']:.2f}: {loss['last'] / loss['first']:.2f} of first")
    row("step time", f"p50 {step['p50']:.0f} ms, std/mean {step['std'] / step['mean']:.1%}")
    row("data wait", f"{run['data_wait_share']:.2%}")
    options = ("--text", "Printing, in the only sense.", "--output", work / "speech.wav", "--json")
    code, spoken, seconds = xtts("synthesize", "--run", work / "run", *options)
    row("`synthesize`", f"exit {code}; {spoken['seconds']:.2f} s of sound, {seconds:.1f} s in all")


if __name__ == "__main__":
    main()

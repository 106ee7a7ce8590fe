"""Train a tiny network for many steps and test that memory, file descriptors and threads do not grow.

    python benchmarks/steady.py --cache cache --steps 5000

The run is `xtts train` in a process of its own, with reports, validation, synthesis and checkpoints. Its use is sampled
from /proc every tenth of a second. The fifth of the steps after the warm-up, which is a fifth too, is compared with the
last fifth. The exit code is 1 if memory grew by over 1% or if there are more descriptors or threads. Linux only.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WARM_UP_SHARE, LAST_SHARE = 0.2, 0.8
MOST_GROWTH = 0.01
INTERVAL_SECONDS = 0.1
TINY = {
    "width": 32,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "feedforward_width": 64,
}


class Sample(NamedTuple):
    """What a process holds after its report of a step."""

    step: int
    resident_kib: int
    descriptors: int
    threads: int


def command(arguments: argparse.Namespace, run: Path) -> list[str]:
    """Return the command of the run; each periodic action happens about twenty times."""
    often = max(1, arguments.steps // 20)
    training = {
        "batch_size": arguments.batch_size,
        "warmup_steps": often,
        "evaluate_every": often,
        "save_every": often,
        "sample_every_evaluations": 2,
    }
    settings = {
        **{f"model.{name}": value for name, value in TINY.items()},
        **{f"training.{name}": value for name, value in training.items()},
    }
    overrides = [*(f"{name}={value}" for name, value in settings.items()), *arguments.set]
    options = ["--cache", str(arguments.cache), "--output", str(run), "--steps", str(arguments.steps)]
    return [sys.executable, "-m", "xtts_pipeline", "train", *options, *(f"--set={override}" for override in overrides)]


def watch(process: subprocess.Popen[bytes], metrics: Path) -> Iterator[Sample]:
    """Yield samples of a process until it ends."""
    folder, step = Path("/proc") / str(process.pid), 0
    position = 0
    while process.poll() is None:
        time.sleep(INTERVAL_SECONDS)
        if metrics.exists():
            with metrics.open("rb") as file:
                file.seek(position)
                # The last line may be incomplete; its rest is read next time.
                whole = file.read().rpartition(b"\n")[0]
                position += len(whole) + bool(whole)
            step = max([step, *(json.loads(line)["step"] for line in whole.splitlines())])
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            sample = Sample(
                step, int(status["VmRSS"].split()[0]), sum(1 for _ in (folder / "fd").iterdir()), int(status["Threads"])
            )
        except (OSError, KeyError):
            return  # it has just ended
        yield sample


def watch_run(arguments: list[str], metrics: Path, words: Path) -> Iterator[Sample]:
    """Yield samples of a run with stderr in a file. Raises SystemExit with its last line if the run fails."""
    with words.open("wb") as stderr, subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        yield from watch(process, metrics)
    # After the block the process has been waited for, so its return code is known.
    if process.returncode:
        last = words.read_text(errors="replace").splitlines()[-1:]
        raise SystemExit(f"the run ended with {process.returncode}: {''.join(last)}")


def compare(samples: list[Sample], steps: int) -> dict[str, dict[str, float]]:
    """Return each figure's median in the fifth after the warm-up and in the last fifth, and its growth.

    Medians, not peaks: descriptors and threads come and go with checkpoints.
    """
    after = [sample for sample in samples if WARM_UP_SHARE * steps < sample.step <= 2 * WARM_UP_SHARE * steps]
    last = [sample for sample in samples if sample.step > LAST_SHARE * steps]
    if not after or not last:
        raise SystemExit(f"{len(after)} samples after the warm-up and {len(last)} at the end; more --steps are needed")
    figures = {}
    for name in Sample._fields[1:]:
        begun, ended = (statistics.median(getattr(sample, name) for sample in group) for group in (after, last))
        figures[name] = {"after_warm_up": begun, "at_the_end": ended, "growth": ended / begun - 1.0}
    return figures


def main() -> None:
    """Run, watch and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="more settings of the run"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = Path(folder) / "stderr"
        samples = list(watch_run(command(arguments, run), run / "metrics.jsonl", words))
    figures = compare(samples, arguments.steps)
    print("| held | after the warm-up | at the end | growth |\n|---|---|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure['after_warm_up']:,.0f} | {figure['at_the_end']:,.0f} | {figure['growth']:+.2%} |")
    is_steady = figures["resident_kib"]["growth"] <= MOST_GROWTH and all(
        figures[name]["growth"] <= 0.0 for name in ("descriptors", "threads")
    )
    print(
        "steady"
        if is_steady
        else f"NOT steady: memory may grow by {MOST_GROWTH:.0%}, descriptors and threads not at all"
    )
    sys.exit(not is_steady)


if __name__ == "__main__":
    main()

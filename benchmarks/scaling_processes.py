"""Compare two workers with one: `xtts train` in processes on loopback, each pinned to one core.

    python benchmarks/scaling_processes.py --cache cache/ --config my.yaml --output scaling.json

Strong scaling gives two workers the batch of one; weak scaling gives them twice as much. Rounds alternate, and the
ratio is of their medians. Use physical cores, since two hyperthreads share a core's arithmetic, and an idle machine.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from xtts_pipeline.training.distributed.cluster import Cluster

THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def whole_cores() -> list[int]:
    """Return one logical CPU of each core that this process may use."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(siblings.read_text().strip() if siblings.exists() else str(cpu), cpu)
    return list(cores.values())


def free_ports(count: int) -> list[int]:
    """Return unused ports of the loopback interface."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


def examples_per_second(options: Sequence[str], batch_size: int, cpus: Sequence[int]) -> float:
    """Train with one worker per CPU; return the examples per second of all workers after the warm-up."""
    workers = tuple(f"127.0.0.1:{port}" for port in free_ports(len(cpus)))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "xtts_pipeline", "train", "--output", f"{folder}/run", "--json", *options]
        command += ["--set", f"training.batch_size={batch_size}"]
        processes = []
        for index, cpu in enumerate(cpus):
            cluster = {"TF_CONFIG": Cluster(workers, index).to_tf_config()} if len(cpus) > 1 else {}
            pinned = ["taskset", "--cpu-list", str(cpu), *command]
            processes.append(
                subprocess.Popen(pinned, env={**os.environ, **THREADS, **cluster}, stdout=subprocess.PIPE, text=True)
            )
        printed = [process.communicate()[0] for process in processes]
    failed = [process.returncode for process in processes if process.returncode]
    if failed:
        raise SystemExit(f"a worker ended with exit code {failed[0]}; its own message stands above")
    return float(json.loads(printed[0])["examples_per_second"])


def main() -> None:
    """Measure and write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", required=True)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpus", type=int, nargs=2, help="logical CPUs to pin to; one of each of two cores by default")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    cpus = given.cpus or whole_cores()[:2]
    if len(cpus) < 2:
        raise SystemExit(
            "this machine has one core; two workers on it would share its arithmetic (--cpus measures it all the same)"
        )
    options = ["--cache", given.cache, "--steps", str(given.steps), *(f"--config={path}" for path in given.config)]
    quiet = [
        "training.log_every=10",
        "training.sample_every_evaluations=null",
        f"training.evaluate_every={given.steps + 1}",
    ]
    options += [f"--set={override}" for override in [*quiet, *given.overrides]]
    variants = {
        "one": (given.batch_size, cpus[:1]),
        "two": (given.batch_size, cpus),
        "two_twice_the_batch": (2 * given.batch_size, cpus),
    }
    rates: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(given.rounds):
        for name, (batch_size, pinned) in variants.items():
            rates[name].append(examples_per_second(options, batch_size, pinned))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    result = {
        "cpus": cpus,
        "examples_per_second": rates,
        "strong_scaling": middle["two"] / middle["one"],
        "weak_scaling": middle["two_twice_the_batch"] / middle["one"],
    }
    text = json.dumps(result, indent=2)
    if given.output is not None:
        given.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

"""Time the train step beside its PyTorch twin and beside stock Keras layers, in turns; print the ratios.

    python benchmarks/side_by_side.py --config small --batch 16 --torch-python path/to/torch-venv/bin/python

Every row is a process of its own that waits while another works: `ours` with the precision that `auto` chooses, in
float32 and bfloat16, and without XLA; `stock Keras` (the same step under XLA in float32 with Keras's MultiHeadAttention
and Dropout); and, if --torch-python names a Python with torch==2.13.0, PyTorch, eager or compiled, in float32 and under
bfloat16 autocast. All get the same batch and must have the same number of parameters. Ours aligns the clips and finds
their pitch in every step; the twin is given both. A ratio is the median of the ratios of medians within a round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.system.runtime import NativeLog

HERE = Path(__file__).parent
SYMBOLS = 64
OFF = ["training.accumulation_steps=1", "training.reference_dropout=0.0"]
FIRST = "ours"
OWN_ROWS = {
    FIRST: [],
    "ours, float32": ["training.precision=float32"],
    "ours, bfloat16": ["training.precision=bfloat16"],
    "ours, plain graph": ["training.jit_compile=false", "training.precision=float32"],
    "stock Keras": ["training.precision=float32"],
}
TORCH_ROWS = {
    "PyTorch eager": {"is_compiled": False, "is_bfloat16": False},
    "PyTorch eager, bfloat16": {"is_compiled": False, "is_bfloat16": True},
    "PyTorch compile": {"is_compiled": True, "is_bfloat16": False},
    "PyTorch compile, bfloat16": {"is_compiled": True, "is_bfloat16": True},
}


def write_batch(path: Path, config: Config, rows: int) -> None:
    """Write a batch with the lengths of speech: most are between a third of the limit and the limit."""
    random = np.random.default_rng(0)
    limits, bins = config.limits, config.audio.mel_bins
    share = random.uniform(0.3, 1.0, rows)
    text_length = np.maximum(2, limits.max_text_length * share).astype(np.int32)
    mel_length = np.maximum(8, limits.max_mel_frames * share).astype(np.int32)
    # Each token of a row as long as the others.
    token = np.arange(limits.max_mel_frames) * text_length[:, None] // mel_length[:, None]
    is_real = np.arange(limits.max_mel_frames) < mel_length[:, None]
    np.savez(
        path,
        posterior=((token[..., None] == np.arange(limits.max_text_length)) & is_real[..., None]).astype(np.float32),
        prosody=random.normal(size=(rows, limits.max_text_length, 3)).astype(np.float32),
        tokens=random.integers(3, SYMBOLS, (rows, limits.max_text_length)).astype(np.int32),
        mel=random.normal(-5.0, 2.0, (rows, limits.max_mel_frames, bins)).astype(np.float16),
        text_length=text_length,
        mel_length=mel_length,
    )


def work(job: dict[str, Any]) -> None:
    """Serve the TensorFlow step as twin.main serves the twin."""
    with NativeLog():
        run_step(job)


def run_step(job: dict[str, Any]) -> None:
    """Run the job's first step, then as many steps as each line of stdin asks for."""
    import tensorflow as tf

    if job["is_stock"]:
        import stock_keras

        stock_keras.put_in()
    from xtts_pipeline.cache.format.manifest import record_spec
    from xtts_pipeline.data.batching import batch_signature, to_batch
    from xtts_pipeline.model.architecture import NetworkSizes
    from xtts_pipeline.model.network import Network
    from xtts_pipeline.training.acoustic.step import AcousticStep
    from xtts_pipeline.training.checks import choose_precision

    config = choose_precision(load_config([job["config"]], job["settings"]))
    spec = record_spec(config)
    arrays = np.load(job["batch"])
    batch = {name: tf.constant(arrays[name]) for name in arrays.files}
    signature = batch_signature(spec, len(arrays["mel"]))
    precision = tf.dtypes.as_dtype(config.training.product_type)
    sizes = NetworkSizes(spec, SYMBOLS)
    network, average = (Network(config.model, config.audio, sizes, dtype=precision) for _ in range(2))
    step = AcousticStep(network, average, config.training, [signature])
    given = to_batch(batch, signature)
    started = time.perf_counter()
    step(given).numpy()
    print(
        json.dumps({"parameters": network.parameter_count, "first_seconds": time.perf_counter() - started}), flush=True
    )
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            started = time.perf_counter()
            step(given).numpy()
            seconds.append(time.perf_counter() - started)
        print(json.dumps(seconds), flush=True)


class Worker:
    """A process that runs steps on request."""

    def __init__(self, command: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.greeting = self._answer()
        self.rounds: list[float] = []
        self.seconds: list[float] = []

    def run(self, steps: int) -> None:
        """Run steps and record their seconds."""
        print(steps, file=self._process.stdin, flush=True)
        seconds = self._answer()
        self.seconds += seconds
        self.rounds.append(statistics.median(seconds))

    def end(self) -> None:
        """Wait for the process to end."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            command, code = " ".join(self._process.args[:3]), self._process.wait()
            sys.exit(f"side_by_side: {command} ended with {code}; its error is above")
        return json.loads(line)


def start_workers(
    config: Config, rows: int, torch_python: str | None, folder: Path, skipped: list[str]
) -> dict[str, Worker]:
    """Start every process in turn and run its first step."""
    from xtts_pipeline.config.load import dump_config

    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    write_batch(folder / "batch.npz", config, rows)
    job = {"batch": str(folder / "batch.npz"), "config": str(folder / "config.yaml")}
    own = [sys.executable, str(HERE / "side_by_side.py"), "--work"]
    commands = {
        name: [*own, json.dumps({**job, "settings": settings, "is_stock": name == "stock Keras"})]
        for name, settings in OWN_ROWS.items()
    }
    if torch_python:
        shape = {"symbols": SYMBOLS, "mel_bins": config.audio.mel_bins, "pad_value": float(np.log(config.audio.floor))}
        shape |= {"max_text_length": config.limits.max_text_length, "max_mel_frames": config.limits.max_mel_frames}
        twin = {
            **job,
            "shape": shape,
            "model": config.model.model_dump(),
            "training": config.training.model_dump(mode="json"),
        }
        for name, choices in TORCH_ROWS.items():
            commands[name] = [torch_python, str(HERE / "twin.py"), json.dumps({**twin, **choices})]
    workers = {}
    for name, command in commands.items():
        if name not in skipped:
            print(f"first step of {name}", file=sys.stderr, flush=True)
            workers[name] = Worker(command)
    return workers


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--work"]:
        work(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="steps of each row in a round")
    parser.add_argument("--torch-python", help="a Python that has torch==2.13.0")
    parser.add_argument("--skip", action="append", default=[], help="a row to leave out, such as `PyTorch compile`")
    arguments = parser.parse_args()
    config = load_config(arguments.config, [*arguments.set, *OFF])
    with tempfile.TemporaryDirectory() as folder:
        workers = start_workers(config, arguments.batch, arguments.torch_python, Path(folder), arguments.skip)
        counts = {name: worker.greeting["parameters"] for name, worker in workers.items()}
        if len(set(counts.values())) != 1:
            sys.exit(f"side_by_side: the networks differ in parameters: {counts}")
        for number in range(arguments.rounds):
            for name in list(workers) if number % 2 == 0 else reversed(list(workers)):
                workers[name].run(arguments.steps)
        for worker in workers.values():
            worker.end()
    limits = config.limits
    shape = f"{arguments.batch} x {limits.max_text_length} x {limits.max_mel_frames}"
    print(
        f"{counts[FIRST]:,} parameters each, batch of {shape}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| step | ms | std/mean | first step s | row / ours |\n|---|---|---|---|---|")
    for name, worker in workers.items():
        ratio = statistics.median(
            theirs / mine for theirs, mine in zip(worker.rounds, workers[FIRST].rounds, strict=True)
        )
        spread = statistics.pstdev(worker.seconds) / statistics.fmean(worker.seconds)
        median = 1e3 * statistics.median(worker.seconds)
        print(f"| {name} | {median:.0f} | {spread:.1%} | {worker.greeting['first_seconds']:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()

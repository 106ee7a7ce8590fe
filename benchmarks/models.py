"""Print parameters, memory and step time of the presets `tiny`, `small`, `base` and `large` on this machine.

    python benchmarks/models.py --presets tiny small --batch-size 8 --steps 10

Each preset runs in a process of its own. Batches are random float32 of the record shape of `--shape`, all rows of full
length, so that the figures do not depend on a corpus. Memory is the process's peak, including TensorFlow itself, which
is also measured alone.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from xtts_pipeline.system.runtime import NativeLog

PRESETS = ("tiny", "small", "base", "large")


def measure(preset: str, shape: str, batch_size: int, steps: int) -> dict[str, float]:
    """Return the figures of one preset."""
    import tensorflow as tf

    from xtts_pipeline.cache.format.manifest import record_spec
    from xtts_pipeline.config.load import load_config
    from xtts_pipeline.data.batching import batch_signature
    from xtts_pipeline.model.architecture import NetworkSizes
    from xtts_pipeline.model.batch import Batch
    from xtts_pipeline.model.network import Network
    from xtts_pipeline.training.acoustic.step import AcousticStep

    imported_mib = peak_mib()
    settings = [f"training.batch_size={batch_size}", "training.accumulation_steps=1", "training.precision=float32"]
    config = load_config([shape, preset], settings)
    spec, symbol_count = record_spec(config), 60
    network, average = (Network(config.model, config.audio, NetworkSizes(spec, symbol_count)) for _ in range(2))
    step = AcousticStep(network, average, config.training, [batch_signature(spec, batch_size)])
    random = np.random.default_rng(0)
    batch = Batch(
        tf.constant(random.integers(3, symbol_count, (batch_size, spec.max_text_length)), tf.int32),
        tf.constant(random.normal(-5.0, 2.0, (batch_size, spec.max_mel_frames, spec.mel_bins)), tf.float16),
        tf.fill([batch_size], spec.max_text_length),
        tf.fill([batch_size], spec.max_mel_frames),
    )
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        step(batch).numpy()
        seconds.append(time.perf_counter() - started)
    return {
        "parameters_m": network.parameter_count / 1e6,
        "first_step_s": seconds[0],
        "step_s": float(np.median(seconds[1:])),
        "frames_per_s": batch_size * spec.max_mel_frames / float(np.median(seconds[1:])),
        "peak_mib": peak_mib(),
        "imported_mib": imported_mib,
    }


def peak_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure each preset in a process of its own and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--shape", default="ljspeech", help="the config whose limits give the record shape")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--measure", choices=PRESETS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        with NativeLog():
            print(json.dumps(measure(arguments.measure, arguments.shape, arguments.batch_size, arguments.steps)))
        return
    print(
        "| preset | parameters, M | first step, s | step, s | mel frames/s | peak memory, MiB |\n"
        "|---|---|---|---|---|---|"
    )
    common = ["--shape", arguments.shape, "--batch-size", str(arguments.batch_size), "--steps", str(arguments.steps)]
    for preset in arguments.presets:
        command = [sys.executable, __file__, "--measure", preset, *common]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        figures = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| `{preset}` | {figures['parameters_m']:.1f} | {figures['first_step_s']:.0f} | {figures['step_s']:.2f} "
            f"| {figures['frames_per_s']:.0f} | {figures['peak_mib']:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

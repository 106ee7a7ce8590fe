"""Measure how fast a trained run, or random weights of a preset, synthesizes; print JSON.

    python benchmarks/synthesis.py --config small
    python benchmarks/synthesis.py --config small --vocoder-sizes 256 6
    python benchmarks/synthesis.py --run runs/first --vocoder runs/vocoder --text "A sentence of your own."

Real time is the duration of the speech over the time it took, vocoder included. The first chunk is the time from the
call to the first samples of a stream. `vocoder_` figures are those of the vocoder alone. Each is the best of --repeats
after one warm-up. `cpu` figures use the process's CPU time, which other load does not lengthen. Random weights speak
five frames a character.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xtts_pipeline.system.runtime import NativeLog

if TYPE_CHECKING:
    from xtts_pipeline.inference.synthesizer import Synthesizer

TEXT = "the quick brown fox jumps over the lazy dog, and then it sleeps in the sun for an hour."
SYMBOLS = tuple(" ,.abcdefghijklmnopqrstuvwxyz")
FRAMES_PER_CHARACTER = 5.0


def make_run(folder: Path, preset: str) -> Path:
    """Write a run of random weights that reads a text at the pace of speech."""
    from xtts_pipeline.cache.format.identity import CacheIdentity
    from xtts_pipeline.cache.format.manifest import record_spec
    from xtts_pipeline.config.load import load_config
    from xtts_pipeline.training.checkpoints.files import build_network, save_checkpoint
    from xtts_pipeline.training.checkpoints.variables import named_variables

    # Random weights say no word right, so every text would be decoded again.
    config = load_config([preset], ["synthesis.max_attempts=1"])
    cache = CacheIdentity("random", record_spec(config), SYMBOLS, ("nobody",), ("en",))
    network = build_network(cache, config)
    projection = network.predictor.projection
    projection.weight.assign(np.zeros(projection.weight.shape))
    projection.bias.assign([math.log(FRAMES_PER_CHARACTER), 0.0, 0.0, 0.0])
    weights = {f"average.{name}": value.numpy() for name, value in named_variables(network).items()}
    save_checkpoint(folder, 0, config, cache, weights, keep=1)
    return folder


def make_vocoder(folder: Path, run: Path, sizes: tuple[int, int]) -> Path:
    """Write a vocoder of random weights, width and blocks given, for a run."""
    from xtts_pipeline.training.checkpoints.files import build_generator, load_checkpoint, save_checkpoint
    from xtts_pipeline.training.checkpoints.variables import named_variables

    checkpoint = load_checkpoint(run)
    config = checkpoint.config.with_settings("vocoder", width=sizes[0], blocks=sizes[1])
    weights = {f"average.{name}": value.numpy() for name, value in named_variables(build_generator(config)).items()}
    save_checkpoint(folder, 0, config, checkpoint.cache, weights, keep=1, network="vocoder")
    return folder


def measure_vocoder(synthesizer: "Synthesizer", mel: np.ndarray, repeats: int) -> dict[str, float]:
    """Return the speed of the vocoder alone, whole and streamed in the chunks of the decoder."""
    from xtts_pipeline.vocoder.streaming import open_stream

    config = synthesizer.checkpoint.config
    sound = len(mel) * config.audio.hop_samples / config.audio.sample_rate
    chunk = config.synthesis.chunk_frames

    def stream_all() -> None:
        stream = open_stream(synthesizer.vocoder)
        for start in range(0, len(mel), chunk):
            stream.push(mel[start : start + chunk])
        stream.finish()

    calls: dict[str, Callable[[], object]] = {"": lambda: synthesizer.vocoder(mel), "_streamed": stream_all}
    figures = {}
    for name, call in calls.items():
        wall, cpu = best_of(repeats, call)
        figures |= {f"vocoder{name}_times_real_time": sound / wall, f"vocoder{name}_times_real_time_cpu": sound / cpu}
    return figures


def best_of(repeats: int, call: Callable[[], object]) -> tuple[float, float]:
    """Return the minimum wall time and CPU time of a call, in seconds."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return min(walls), min(cpus)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path)
    source.add_argument("--config", metavar="PRESET")
    sound = parser.add_mutually_exclusive_group()
    sound.add_argument("--vocoder", help="as in `xtts synthesize`")
    sound.add_argument("--vocoder-sizes", type=int, nargs=2, metavar=("WIDTH", "BLOCKS"), help="random weights")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", action="store_true", help="speak batches as well, which compiles once more")
    options = parser.parse_args()
    with NativeLog(), tempfile.TemporaryDirectory() as folder:
        from xtts_pipeline.inference.synthesizer import Synthesizer

        start, cpu = time.perf_counter(), time.process_time()
        run, vocoder = options.run or make_run(Path(folder) / "run", options.config), options.vocoder
        if options.vocoder_sizes:
            vocoder = make_vocoder(Path(folder) / "vocoder", run, options.vocoder_sizes)
        synthesizer = Synthesizer.load(run, vocoder=vocoder)
        synthesizer.warm_up(batch=options.batch)
        figures = {"ready_seconds": time.perf_counter() - start, "ready_cpu_seconds": time.process_time() - cpu}
        spoken = synthesizer.synthesize(options.text)
        wall, cpu = best_of(options.repeats, lambda: synthesizer.synthesize(options.text))
        vocoder_wall, vocoder_cpu = best_of(options.repeats, lambda: synthesizer.vocoder(spoken.mel))
        first_wall, first_cpu = best_of(options.repeats, lambda: next(synthesizer.stream(options.text)))
        figures |= {
            "sound_seconds": spoken.seconds,
            "times_real_time": spoken.seconds / wall,
            "times_real_time_cpu": spoken.seconds / cpu,
            "vocoder_share": vocoder_wall / wall,
            "vocoder_share_cpu": vocoder_cpu / cpu,
            "first_chunk_ms": 1_000 * first_wall,
            "first_chunk_cpu_ms": 1_000 * first_cpu,
            **measure_vocoder(synthesizer, spoken.mel, options.repeats),
        }
        if options.batch:
            texts = [options.text] * synthesizer.checkpoint.config.synthesis.batch_size
            batch_wall, batch_cpu = best_of(options.repeats, lambda: synthesizer.synthesize_batch(texts))
            sound = len(texts) * spoken.seconds
            figures |= {"batch_times_real_time": sound / batch_wall, "batch_times_real_time_cpu": sound / batch_cpu}
    print(json.dumps({name: round(figure, 3) for name, figure in figures.items()}))


if __name__ == "__main__":
    main()

"""Vocode clips of a corpus in the LJSpeech layout, whole and streamed; print the mel error and the speed.

    OMP_NUM_THREADS=1 python benchmarks/vocoder.py --data path/to/LJSpeech-1.1 --clips 20 --output FOLDER

The mel error is the mean difference in natural log between the given mel and that of the wave. Times are CPU time of
one core. With --output the waves are kept in one folder per row, each with a pairs.csv of lines
`copied.wav|original.wav` for a recogniser to compare.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from xtts_pipeline.audio.load import decode_wave
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.vocoder.griffin_lim import STREAM_BLOCK_FRAMES, GriffinLim

AUDIO = AudioConfig()
LIMITS = LimitsConfig(max_seconds=60.0)
MOMENTUM = 0.99
PUSHED_FRAMES = 4  # as a decoder step brings them


def stream_wave(vocoder: GriffinLim, mel: np.ndarray) -> np.ndarray:
    """Return the wave of a stream."""
    stream = vocoder.stream()
    pieces = [stream.push(mel[start : start + PUSHED_FRAMES]) for start in range(0, len(mel), PUSHED_FRAMES)]
    return np.concatenate([*pieces, stream.finish()])


def first_sound_ms(vocoder: GriffinLim, mel: np.ndarray) -> float:
    """Return the CPU time of the first block of a stream."""
    stream = vocoder.stream()
    start = time.process_time()
    stream.push(mel[:STREAM_BLOCK_FRAMES])
    return 1_000 * (time.process_time() - start)


def measure(
    make_wave: Callable[[np.ndarray], np.ndarray], mels: list[np.ndarray]
) -> tuple[list[np.ndarray], float, float]:
    """Return the waves, their mel error, and the seconds of sound per second."""
    start = time.process_time()
    waves = [make_wave(mel) for mel in mels]
    taken = time.process_time() - start
    error = float(np.mean([np.abs(log_mel(wave, AUDIO) - mel).mean() for wave, mel in zip(waves, mels, strict=True)]))
    return waves, error, sum(map(len, waves)) / AUDIO.sample_rate / taken


def save_pairs(folder: Path, waves: list[np.ndarray], originals: list[Path]) -> None:
    """Write the waves under their originals' names, with a list of the pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for wave, original in zip(waves, originals, strict=True):
        soundfile.write(folder / original.name, wave, AUDIO.sample_rate)
    (folder / "pairs.csv").write_text("".join(f"{folder / path.name}|{path}\n" for path in originals), encoding="utf-8")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=20)
    parser.add_argument("--iterations", type=int, nargs="+", default=[8, 15, 20, 30, 45, 60, 100])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    originals = sorted((arguments.data / "wavs").glob("*.wav"))[: arguments.clips]
    mels = [log_mel(decode_wave(path.read_bytes(), AUDIO, LIMITS, path.name), AUDIO) for path in originals]
    GriffinLim(AUDIO, 2, MOMENTUM)(mels[0])
    seconds = sum(map(len, mels)) * AUDIO.hop_samples / AUDIO.sample_rate
    print(f"{len(mels)} clips, {seconds:.0f} s\n")
    print(
        "| iterations | mel error, whole | streamed | times real time, whole | streamed | first sound, ms |\n"
        "|---|---|---|---|---|---|"
    )
    for iterations in arguments.iterations:
        vocoder = GriffinLim(AUDIO, iterations, MOMENTUM)
        whole, whole_error, whole_speed = measure(vocoder, mels)
        streamed, streamed_error, streamed_speed = measure(partial(stream_wave, vocoder), mels)
        first = np.median([first_sound_ms(vocoder, mel) for mel in mels])
        speeds = f"{whole_speed:.1f} | {streamed_speed:.1f} | {first:.0f}"
        print(f"| {iterations} | {whole_error:.4f} | {streamed_error:.4f} | {speeds} |", flush=True)
        if arguments.output:
            save_pairs(arguments.output / f"whole-{iterations}", whole, originals)
            save_pairs(arguments.output / f"streamed-{iterations}", streamed, originals)


if __name__ == "__main__":
    main()

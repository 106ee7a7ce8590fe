"""Plant faults into the words of good synthetic speech and count how many the guard finds.

    python benchmarks/planted_faults.py --run runs/two-cores --cache cache --limit 64 --words 4

The speech is of the texts of --split, without the vocoder. A fault is found if the speech has more skipped or repeated
words than without it. The false alarms are those without a fault. Words are drawn among those planned for three frames
or more. A run that clones voices takes the first clip of each speaker as the reference of the others.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from error_sources import check_cache_of, held_out_clips

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.ground_truth import split_entries
from xtts_pipeline.inference.guard import PlannedSpeech, spoken_faults
from xtts_pipeline.model.batch import to_network_scale
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

LEAST_FRAMES = 3
NOISE_PEAK = 0.1


class Frames(NamedTuple):
    """What a fault is made of, [F, M] each: the word's frames, and as many of silence, of noise and of other speech."""

    word: np.ndarray
    silence: np.ndarray
    noise: np.ndarray
    other: np.ndarray

    @property
    def half(self) -> int:
        """Half of the number of frames, rounded down."""
        return len(self.word) // 2


# Each returns the frames that take the word's place.
FAULTS: dict[str, Callable[[Frames], np.ndarray]] = {
    "cut out": lambda frames: frames.word[:0],
    "silenced": lambda frames: frames.silence,
    "half silenced": lambda frames: np.concatenate([frames.silence[: frames.half], frames.word[frames.half :]]),
    "noise": lambda frames: frames.noise,
    "other speech": lambda frames: frames.other,
    "said twice": lambda frames: np.tile(frames.word, (2, 1)),
    "half cut": lambda frames: frames.word[: frames.half],
    "averaged": lambda frames: np.broadcast_to(frames.word.mean(axis=0), frames.word.shape),
    "one frame held": lambda frames: np.broadcast_to(frames.word[frames.half], frames.word.shape),
}


def speeches(run: Path, cache: Path, split: str, limit: int | None) -> Iterator[tuple[PlannedSpeech, np.ndarray]]:
    """Yield the plan and the frames, in the network's scale, of the speech of a split's texts."""
    manifest, checkpoint = load_manifest(cache), load_checkpoint(run)
    check_cache_of(run, checkpoint, cache, manifest)
    network, dropout, settings = load_network(checkpoint), Dropout.fixed(0), checkpoint.config.synthesis
    tokenizer = Tokenizer(manifest.symbols, manifest.text.blank)
    entries = split_entries(cache, manifest, split, limit)
    for _, tokens, batch, reference in held_out_clips(cache, manifest, checkpoint, entries):
        memory = network.encode_clips(batch, reference, dropout)
        speech = network.speak(memory, dropout, tf.constant([network.max_mel_frames]), settings)
        mean_frames = network.aligner.mean_frames(batch.tokens, batch.text_length, memory.voice_vector)
        symbols = [tokenizer.name_of(int(token)) for token in tokens]
        seconds = speech.duration[0, : len(tokens)].numpy() * manifest.audio.frame_seconds
        plan = PlannedSpeech.of(seconds, mean_frames[0, : len(tokens)].numpy(), symbols)
        yield plan, to_network_scale(speech.mel[0, : speech.mel_length[0]]).numpy()


def count_wrong_words(plan: PlannedSpeech, mel_TM: np.ndarray, frame_seconds: float) -> int:
    """Return how many words count as skipped or repeated."""
    faults = spoken_faults(plan, mel_TM, frame_seconds)
    return faults.skipped_words + faults.repeated_words


def white_noise(audio: AudioConfig, seed: int) -> np.ndarray:
    """Return the frames of a second of white noise, in the network's scale."""
    wave = NOISE_PEAK * np.random.default_rng(seed).uniform(-1.0, 1.0, audio.sample_rate)
    frames: np.ndarray = to_network_scale(tf.constant(log_mel(wave.astype(np.float32), audio))).numpy()
    return frames


def main() -> None:
    """Speak, plant faults, and print how many are found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", choices=["val", "train"], default="val")
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--words", type=int, default=4, help="words of each text")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    audio = load_manifest(asked.cache).audio
    frame_seconds, noise_TM = audio.frame_seconds, white_noise(audio, asked.seed)
    draw, found = np.random.default_rng(asked.seed), dict.fromkeys(FAULTS, 0)
    words_in_all = false_alarms = planted = 0
    other_TM: np.ndarray | None = None
    for plan, mel_TM in speeches(asked.run, asked.cache, asked.split, asked.limit):
        before = count_wrong_words(plan, mel_TM, frame_seconds)
        words_in_all, false_alarms = words_in_all + len(plan.words), false_alarms + before
        end_S = np.cumsum(plan.seconds) / frame_seconds
        spans = [(round(end_S[first - 1]), round(end_S[last])) for first, last in plan.words]
        spans = [(first, end) for first, end in spans if end - first >= LEAST_FRAMES]
        for number in draw.permutation(len(spans))[: asked.words] if other_TM is not None else []:
            first, end = spans[number]
            planted += 1
            start = draw.integers(max(1, len(other_TM) - (end - first)))
            shape = end - first, mel_TM.shape[1]
            sources = mel_TM.min(axis=0), noise_TM, other_TM[start:]
            frames = Frames(mel_TM[first:end], *(np.resize(source, shape) for source in sources))
            for name, plant in FAULTS.items():
                planted_TM = np.concatenate([mel_TM[:first], plant(frames), mel_TM[end:]])
                found[name] += count_wrong_words(plan, planted_TM, frame_seconds) > before
        other_TM = mel_TM
    print(f"without a fault: {false_alarms} of {words_in_all} words count as skipped or repeated")
    print(f"with faults in {planted} words, found:")
    for name, count in found.items():
        print(f"  {name:<16} {count / planted:.0%}")


if __name__ == "__main__":
    main()

"""Plant faults into the words of good synthetic speech and count how many the guard finds.

    python benchmarks/planted_faults.py --run runs/two-cores --cache cache --limit 64 --words 4

The speech is of held-out texts, without the vocoder. A fault is found if the speech has more skipped or repeated words
than without it. The false alarms are those without a fault. Words are drawn among those planned for three frames or
more. A run that clones voices takes the first clip of each speaker as the reference of the others.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from error_sources import as_reference, one_clip

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.ground_truth import read_true_mels, split_entries
from xtts_pipeline.inference.guard import PlannedSpeech, spoken_faults
from xtts_pipeline.inference.timings import find_words
from xtts_pipeline.model.batch import References, to_network_scale
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

LEAST_FRAMES = 3
NOISE_PEAK = 0.1

# A fault maps the frames of a speech, the first and the end frame of a word, and frames of noise and of other speech
# to new frames.
Fault = Callable[[np.ndarray, int, int, np.ndarray, np.ndarray], np.ndarray]


def _with(mel_TM: np.ndarray, first: int, end: int, word_FM: np.ndarray) -> np.ndarray:
    """Return the speech with other frames for a word."""
    return np.concatenate([mel_TM[:first], word_FM, mel_TM[end:]])


def _repeated(frames_FM: np.ndarray, count: int) -> np.ndarray:
    return np.resize(frames_FM, (count, frames_FM.shape[1]))


FAULTS: dict[str, Fault] = {
    "none": lambda mel, *_: mel,
    "cut out": lambda mel, first, end, *_: _with(mel, first, end, mel[:0]),
    "silenced": lambda mel, first, end, *_: _with(mel, first, end, _repeated(mel.min(axis=0)[None], end - first)),
    "half silenced": lambda mel, first, end, *_: _with(
        mel, first, (first + end) // 2, _repeated(mel.min(axis=0)[None], (first + end) // 2 - first)
    ),
    "noise": lambda mel, first, end, noise, _: _with(mel, first, end, _repeated(noise, end - first)),
    "other speech": lambda mel, first, end, _, other: _with(mel, first, end, _repeated(other, end - first)),
    "said twice": lambda mel, first, end, *_: _with(mel, first, end, np.tile(mel[first:end], (2, 1))),
    "half cut": lambda mel, first, end, *_: _with(mel, first, end, mel[first : (first + end) // 2]),
    "averaged": lambda mel, first, end, *_: _with(
        mel, first, end, _repeated(mel[first:end].mean(axis=0)[None], end - first)
    ),
    "one frame held": lambda mel, first, end, *_: _with(
        mel, first, end, _repeated(mel[(first + end) // 2][None], end - first)
    ),
}


def speeches(run: Path, cache: Path, limit: int | None) -> Iterator[tuple[PlannedSpeech, np.ndarray]]:
    """Yield the plan and the frames, in the network's scale, of the speech of held-out texts."""
    manifest, checkpoint = load_manifest(cache), load_checkpoint(run)
    network, dropout, settings = load_network(checkpoint), Dropout.fixed(0), checkpoint.config.synthesis
    audio, tokenizer = checkpoint.config.audio, Tokenizer(checkpoint.cache.symbols, checkpoint.config.text.blank)
    references: dict[str, References] = {}
    for entry, recorded_TM in read_true_mels(cache, manifest, split_entries(cache, manifest, "val", limit)):
        if network.voice_encoder is not None and entry.speaker not in references:
            references[entry.speaker] = as_reference(recorded_TM, checkpoint)
            continue
        tokens = tokenizer.encode(entry.text)
        batch = one_clip(tokens, recorded_TM, manifest.speakers.index(entry.speaker), checkpoint)
        memory = network.encode_clips(batch, references.get(entry.speaker), dropout)
        speech = network.speak(memory, dropout, tf.constant([network.max_mel_frames]), settings)
        mean_frames = network.aligner.mean_frames(batch.tokens, batch.text_length, memory.voice_vector)
        frame_seconds = audio.hop_samples / audio.sample_rate
        words = list(find_words([tokenizer.name_of(int(token)) for token in tokens]))
        seconds = speech.duration[0, : len(tokens)].numpy() * frame_seconds
        plan = PlannedSpeech(seconds, mean_frames[0, : len(tokens)].numpy(), words)
        yield plan, to_network_scale(speech.mel[0, : speech.mel_length[0]]).numpy()


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
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--words", type=int, default=4, help="words of each text")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    audio = load_manifest(asked.cache).audio
    frame_seconds, noise_TM = audio.hop_samples / audio.sample_rate, white_noise(audio, asked.seed)
    draw, found = np.random.default_rng(asked.seed), dict.fromkeys(FAULTS, 0)
    words_in_all = false_alarms = planted = 0
    other_TM: np.ndarray | None = None
    for plan, mel_TM in speeches(asked.run, asked.cache, asked.limit):

        def count(frames_TM: np.ndarray, plan: PlannedSpeech = plan) -> int:
            faults = spoken_faults(plan, frames_TM, frame_seconds)
            return faults.skipped_words + faults.repeated_words

        before = count(mel_TM)
        words_in_all, false_alarms = words_in_all + len(plan.words), false_alarms + before
        end_S = np.cumsum(plan.seconds) / frame_seconds
        spans = [(round(end_S[first - 1]), round(end_S[last])) for first, last in plan.words]
        spans = [(first, end) for first, end in spans if end - first >= LEAST_FRAMES]
        for number in draw.permutation(len(spans))[: asked.words] if other_TM is not None else []:
            first, end = spans[number]
            planted += 1
            start = draw.integers(max(1, len(other_TM) - (end - first)))
            for name, plant in FAULTS.items():
                found[name] += count(plant(mel_TM, first, end, noise_TM, other_TM[start:])) > before
        other_TM = mel_TM
    print(f"without a fault: {false_alarms} of {words_in_all} words count as skipped or repeated")
    print(f"with faults in {planted} words, found:")
    for name, count in found.items():
        print(f"  {name:<16} {count / planted:.0%}")


if __name__ == "__main__":
    main()

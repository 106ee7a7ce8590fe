"""A corpus of spoken clips with planted faults. espeak-ng speaks, in two voices at several rates.

As in real recordings, levels, room noise and the silence at both ends vary from clip to clip.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr

from xtts_pipeline.corpus.demo.espeak import EspeakVoice, demo_sentences

VOICES = (("ann", "en-us+f2", 150), ("ann", "en-us+f2", 160), ("bob", "en-us+m3", 165), ("bob", "en-us+m3", 178))
SAMPLE_RATE = 22_050
WRONG_SPEEDS = (16 / 22.05, 22.05 / 16, 0.8, 1.25, 1.5)
# The measure that must find each fault; a duplicate is in a group of its own.
FAULTS = {
    "wrong text": "text_fit",
    "clipping": "clipping",
    "half silent": "silence",
    "noise": "snr",
    "wrong speed": "speed",
    "duplicate": "duplicate",
}


def make_planted_corpus(folder: Path, clips: int, of_each: int, seed: int = 0) -> dict[str, list[str]]:
    """Write a table and its sounds with `of_each` clips of each fault; return the ids of each."""
    draw = np.random.default_rng(seed)
    texts = _texts(draw, clips)
    speakers = [VOICES[number % len(VOICES)][0] for number in range(clips)]
    chosen = draw.permutation(clips)[: len(FAULTS) * of_each].reshape(len(FAULTS), of_each)
    planted = dict(zip(FAULTS, chosen.tolist(), strict=True))
    faulty = {number for numbers in planted.values() for number in numbers}
    sound = [number for number in range(clips) if number not in faulty]
    waves = [_recorded(wave, draw) for wave in _speak(texts)]
    wrong = planted["wrong text"]  # each gets the text of the next
    for number, text in zip(wrong, [texts[number] for number in [*wrong[1:], wrong[0]]], strict=True):
        texts[number] = text
    for place in range(of_each):
        waves[planted["clipping"][place]] = _clipped(waves[planted["clipping"][place]], draw)
        waves[planted["half silent"][place]] = _half_silent(waves[planted["half silent"][place]], place, draw)
        babble = sum(np.resize(waves[number], 20 * SAMPLE_RATE) for number in draw.choice(sound, 6))
        waves[planted["noise"][place]] = _noisy(waves[planted["noise"][place]], place, babble, draw)
        speed = WRONG_SPEEDS[place % len(WRONG_SPEEDS)]
        faster = soxr.resample(waves[planted["wrong speed"][place]], SAMPLE_RATE * speed, SAMPLE_RATE)
        waves[planted["wrong speed"][place]] = faster
        copy, original = planted["duplicate"][place], int(draw.choice(sound))
        # Byte for byte, or made quieter; with the original's text, or with the text of the clip that it replaced.
        waves[copy] = waves[original] * (1.0, 0.6)[place % 2]
        if place % 3:
            texts[copy] = texts[original]
    _write(folder, texts, speakers, waves)
    return {fault: [_id(number) for number in numbers] for fault, numbers in planted.items()}


def _id(number: int) -> str:
    return f"clip-{number:04d}"


def _texts(draw: np.random.Generator, count: int) -> list[str]:
    """Return texts of 4 to 24 words of the demo's sentences, some with a comma."""
    words = sorted({word.strip(".,?!").lower() for sentence in demo_sentences() for word in sentence.split()})
    texts = []
    for _ in range(count):
        chosen = draw.choice(words, draw.integers(4, 25)).tolist()
        if len(chosen) > 9:
            chosen[len(chosen) // 2] += ","
        texts.append(" ".join(chosen).capitalize() + ".")
    return texts


def _speak(texts: Sequence[str]) -> list[np.ndarray]:
    waves: list[np.ndarray] = [np.zeros(0)] * len(texts)
    for first, (_, name, words_per_minute) in enumerate(VOICES):
        with EspeakVoice(name, words_per_minute) as voice:
            assert voice.sample_rate == SAMPLE_RATE
            for number in range(first, len(texts), len(VOICES)):
                waves[number] = voice.speak(texts[number]) / 32_768
    return waves


def _recorded(wave: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the wave at a level, among silence and in a room as a session has them."""
    gain = 10 ** (draw.normal(-3.0, 1.5) / 20)
    ends = (draw.uniform(0.02, 0.35, 2) * SAMPLE_RATE).astype(int)
    padded = np.pad(np.trim_zeros(wave) * gain, ends)
    return padded + draw.normal(0.0, 10 ** (draw.normal(-62.0, 2.0) / 20), len(padded))


def _clipped(wave: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the wave too loud for its file by 5 to 12 dB, as it is or made quieter later."""
    louder = wave / np.abs(wave).max() * 10 ** (draw.uniform(5, 12) / 20)
    return np.clip(louder, -1.0, 1.0) * 10 ** (draw.choice([0.0, -4.0]) / 20)


def _half_silent(wave: np.ndarray, place: int, draw: np.random.Generator) -> np.ndarray:
    """Return the wave with its first, its middle or its last half lost: digital silence, or the room's noise."""
    start = len(wave) * (place % 3) // 4
    lost = slice(start, start + len(wave) // 2)
    silent = wave.copy()
    silent[lost] = draw.normal(0.0, 10 ** (-62 / 20), len(silent[lost])) if place % 2 else 0.0
    return silent


def _noisy(wave: np.ndarray, place: int, babble: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the wave with white noise, brown noise or other speech 6 to 14 dB below it."""
    white = draw.normal(0.0, 1.0, len(wave))
    noise = (white, np.cumsum(white) - np.linspace(0, white.sum(), len(white)), babble[: len(wave)])[place % 3]
    ratio = 10 ** (-draw.uniform(6, 14) / 20)
    return wave + noise * (ratio * wave.std() / noise.std())


def _write(folder: Path, texts: Sequence[str], speakers: Sequence[str], waves: Sequence[np.ndarray]) -> None:
    (folder / "wavs").mkdir(parents=True)
    with (folder / "metadata.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "text", "speaker"])
        for number, (text, speaker, wave) in enumerate(zip(texts, speakers, waves, strict=True)):
            name = f"wavs/{_id(number)}.wav"
            table.writerow([name, text, speaker])
            soundfile.write(folder / name, np.clip(wave, -1.0, 1.0), SAMPLE_RATE, subtype="PCM_16")

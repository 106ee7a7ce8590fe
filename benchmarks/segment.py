"""Measure `xtts segment` on a long recording whose words have known times, or on real clips joined to one recording.

    python benchmarks/segment.py --texts ljspeech-transcripts.csv --hours 1 --work /tmp/segment --recognise 100
    python benchmarks/segment.py --texts german.csv --voice de+f3 --language de --hours 0.1 --work /tmp/segment
    python benchmarks/segment.py --join LJSpeech-1.1 --work /tmp/segment

--texts: each line is `id|text`. A voice unlike that of the aligner's reference speaks them at another speed, with
pauses of 0.1 to 1.2 s and noise 25 dB below the speech. --join: a corpus of one sampling rate; only the borders of its
clips are known. --recognise needs the extra `eval`: the phoneme errors of so many clips against the pronunciation
of their text, and of so many lines of --texts cut out of the recording at their known times, both in English.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.segment.segment import segment_corpus
from xtts_pipeline.corpus.utterance import Utterance
from xtts_pipeline.evaluation.intelligibility import Recogniser, count_errors, pool_errors
from xtts_pipeline.text.normalize import normalize
from xtts_pipeline.text.sentences import split_sentences

WORDS_PER_MINUTE, NOISE_DB = 185, -25.0
SILENCE = 30  # of 32,768: espeak-ng's pauses are nearly digital silence
CLAUSE_SECONDS = 0.15  # of silence in a word: words after it have no time of their own, since espeak-ng merged them
EDGE_SECONDS = 0.01


def spoken(text: str, language: str) -> list[str]:
    """Return the words of a text as `xtts segment` spells them out."""
    config = TextConfig(lowercase=False)
    sentences = split_sentences(text, language, lambda _: True)
    return [word for sentence in sentences for word in normalize(sentence, config, language).split()]


def speak_hour(
    folder: Path, texts: Path, hours: float, skip: int, voice_name: str, language: str
) -> list[tuple[float, float, str]]:
    """Speak lines into book.wav beside book.txt; return start, end and text of each word."""
    generator = np.random.default_rng(0)
    lines = [line.split("|")[-1].strip() for line in texts.read_text(encoding="utf-8").splitlines()][skip:]
    waves, words, seconds, used = [], [], 0.0, []
    with EspeakVoice(voice_name, WORDS_PER_MINUTE) as voice:
        rate = voice.sample_rate
        for line in lines:
            if seconds >= 3_600 * hours:
                break
            tokens = spoken(line, language)
            wave, starts = voice.speak_words(tokens)
            loud = np.flatnonzero(np.abs(wave) > SILENCE)
            wave, starts = wave[loud[0] : loud[-1] + 1], np.maximum(starts - loud[0], 0)
            starts = np.append(starts, len(wave))
            for place, token in enumerate(tokens):
                # The pause of a comma belongs to no word.
                heard = starts[place] + np.flatnonzero(np.abs(wave[starts[place] : starts[place + 1]]) > SILENCE)
                breaks = np.flatnonzero(np.diff(heard) > CLAUSE_SECONDS * rate)
                if len(breaks) and place + 1 < len(tokens):
                    starts[place + 1] = heard[breaks[0] + 1]
                    heard = heard[: breaks[0] + 1]
                first, last = (heard[0], heard[-1] + 1) if len(heard) else (starts[place], starts[place])
                words.append((seconds + first / rate, seconds + last / rate, token))
            pause = generator.uniform(*((0.1, 0.3) if generator.random() < 0.5 else (0.3, 1.2)))
            waves += [wave / 32_768, np.zeros(int(pause * rate))]
            seconds += (len(waves[-2]) + len(waves[-1])) / rate
            used.append(line)
    book = np.concatenate(waves).astype(np.float32)
    noise = np.sqrt(np.mean(book**2)) * 10 ** (NOISE_DB / 20)
    book += noise * generator.standard_normal(len(book), dtype=np.float32)
    soundfile.write(folder / "book.wav", book, rate, subtype="PCM_16")
    (folder / "book.txt").write_text("\n".join(used), encoding="utf-8")
    return words


def join_clips(folder: Path, data: Path) -> list[tuple[float, float, str]]:
    """Join the clips of a corpus, each text once, into book.wav; return start, end and text of each clip."""
    generator = np.random.default_rng(0)
    corpus, first_takes = read_corpus(data), dict[str, Utterance]()
    for clip in corpus.utterances:
        first_takes.setdefault(clip.text, clip)
    waves, borders, seconds = [], [], 0.0
    for text, clip in first_takes.items():
        wave, rate = soundfile.read(corpus.root / clip.audio, dtype="float32", always_2d=True)
        wave = wave.mean(axis=1)
        borders.append((seconds, seconds + len(wave) / rate, text))
        gap = 1e-4 * generator.standard_normal(int(generator.uniform(0.1, 0.9) * rate), dtype=np.float32)
        waves += [wave, gap]
        seconds += (len(wave) + len(gap)) / rate
    soundfile.write(folder / "book.wav", np.concatenate(waves), rate, subtype="PCM_16")
    (folder / "book.txt").write_text(" ".join(first_takes), encoding="utf-8")
    return borders


def read_lines(path: Path) -> list[dict[str, object]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def check_words(clips: list[dict], words: list[tuple[float, float, str]], folder: Path) -> dict[str, object]:
    """Return how many clips have exactly their words, and how many cuts are within a word by time and by energy."""
    middles = np.array([(start + end) / 2 for start, end, _ in words])
    starts, ends = (np.array([word[k] for word in words]) for k in (0, 1))
    wave, rate = soundfile.read(folder / "book.wav", dtype="float32")
    speech_level = np.sqrt(np.mean(wave**2))
    wrong, cuts, in_word, loud = [], 0, 0, 0
    for clip in clips:
        first, last = np.searchsorted(middles, [clip["start"], clip["end"]])
        if " ".join(word for _, _, word in words[first:last]) != clip["text"]:
            wrong.append(clip["id"])
        for cut in (clip["start"], clip["end"]):
            cuts += 1
            in_word += bool(np.any((starts + EDGE_SECONDS < cut) & (cut < ends - EDGE_SECONDS)))
            around = wave[max(0, round((cut - EDGE_SECONDS) * rate)) : round((cut + EDGE_SECONDS) * rate)]
            loud += bool(np.sqrt(np.mean(around**2)) > 2 * speech_level * 10 ** (NOISE_DB / 20))
    share = 1 - len(wrong) / max(len(clips), 1)
    return {"exact": round(share, 4), "wrong": wrong, "cuts": cuts, "in_word": in_word, "loud": loud}


def check_borders(clips: list[dict], borders: list[tuple[float, float, str]], language: str) -> dict[str, object]:
    """Return how many borders of joined clips were cut, and between how many wrong words."""
    gaps = [(before[1] - 0.1, after[0] + 0.1) for before, after in pairwise(borders)]
    counts = np.cumsum([len(spoken(text, language)) for _, _, text in borders])
    cut, wrong = 0, []
    for clip in clips:
        for number, (low, high) in enumerate(gaps):
            if low <= clip["end"] <= high:
                cut += 1
                found, expected = clip["text"].split(), spoken(borders[number][2], language)
                compared = min(3, len(found), len(expected))
                wrong += [] if found[-compared:] == expected[-compared:] else [clip["id"]]
    return {"borders": len(gaps), "words": int(counts[-1]), "cut": cut, "wrong": wrong}


def recognise(clips: list[dict], words: list[tuple[float, float, str]], folder: Path, count: int) -> dict[str, float]:
    """Return the phoneme error rates of clips and of whole lines against the pronunciation of their texts."""
    recogniser = Recogniser()
    # Here: the extra `eval`, which only this option needs.
    from hama import G2PModel

    pronounce = G2PModel()
    wave, rate = soundfile.read(folder / "book.wav", dtype="float32")
    lines, place = [], 0
    for line in (folder / "book.txt").read_text(encoding="utf-8").splitlines():
        tokens = spoken(line, "en")
        lines.append({"start": words[place][0], "end": words[place + len(tokens) - 1][1], "text": " ".join(tokens)})
        place += len(tokens)
    rates = {}
    for name, stretches in (("clips", clips), ("lines", lines)):
        errors = []
        for number in np.linspace(0, len(stretches) - 1, min(count, len(stretches))).astype(int):
            stretch = stretches[number]
            sound = wave[round(stretch["start"] * rate) : round(stretch["end"] * rate)]
            truth = [part.phoneme for word in stretch["text"].split() for part in pronounce(word).alignments]
            errors.append(count_errors(recogniser.transcribe(sound, rate), truth))
        rates[f"phoneme_error_rate_of_{name}"] = round(pool_errors(errors).rate, 4)
    return rates


def main() -> None:
    """Make the recording, cut it, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--join", type=Path)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--voice", default="en-gb-x-rp+f3", help="of espeak-ng")
    parser.add_argument("--language", default="en")
    parser.add_argument("--recognise", type=int, default=0, metavar="COUNT")
    parser.add_argument("--skip", type=int, default=0, help="lines of --texts to leave out")
    parser.add_argument("--work", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args()
    folder = arguments.work
    if folder.exists():
        parser.error(f"--work {folder}: exists, expected a new folder")
    if (arguments.texts is None) == (arguments.join is None):
        parser.error("expected either --texts or --join")
    (folder / "book").mkdir(parents=True)
    known = (
        join_clips(folder / "book", arguments.join)
        if arguments.join
        else speak_hour(
            folder / "book", arguments.texts, arguments.hours, arguments.skip, arguments.voice, arguments.language
        )
    )
    started, used = time.perf_counter(), time.process_time()
    report = segment_corpus(folder / "book", folder / "book" / "clips", arguments.language, 10.0).to_json()
    report |= {
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
    }
    clips = read_lines(folder / "book" / "clips" / "clips.jsonl")
    check = (
        check_borders(clips, known, arguments.language)
        if arguments.join
        else check_words(clips, known, folder / "book")
    )
    if arguments.recognise:
        check |= recognise(clips, known, folder / "book", arguments.recognise)
    print(json.dumps(report | check))


if __name__ == "__main__":
    main()

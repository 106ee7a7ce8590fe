"""Synthesize one of the corpora of docs/quality.md and docs/voice-cloning.md with espeak-ng.

    python benchmarks/make_corpora.py one-voice --out corpus --transcripts transcripts.csv --count 4000
    python benchmarks/make_corpora.py eight-voices --out voices --transcripts transcripts.csv --count 3200
    python benchmarks/make_corpora.py two-languages --out languages --transcripts transcripts.csv --count 2100

docs/quality.md adds `--max-characters 70` to the last one. English sentences are the first rows of `--transcripts`,
lines of `id|text` as in LJSpeech (the last column is read), or the demo's sentences. `eight-voices` assigns them to its
voices in turn. `two-languages` adds the project's Persian sentences; without those rows it equals `one-voice`. The
layout is `manifest`: manifest.tsv beside LANGUAGE/SPEAKER/ID.wav. The speaker is the voice's variant, the same in both
languages.

The same arguments make the same bytes for any `--jobs`.
"""

import argparse
import multiprocessing
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import soundfile

from xtts_pipeline.corpus.demo.espeak import EspeakVoice, demo_sentences
from xtts_pipeline.errors import CorpusError

CORPORA = ("one-voice", "eight-voices", "two-languages")
ENGLISH_VOICE, PERSIAN_VOICE = "en-us", "fa"
PERSIAN_SENTENCES_FILE = Path(__file__).parent / "sentences_fa.txt"
# espeak-ng's variants, each at least 10% higher than the one before: 84 to 230 Hz.
VARIANTS = ("ian", "m4", "Jacky", "ed", "Nguyen", "aunty", "f2", "linda")
# espeak-ng's flutter continues from text to text, so each process always speaks the same clips of one voice.
CLIPS_PER_PROCESS = 200
_CLIP_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Clip:
    """One row of the corpus."""

    id: str
    text: str
    voice: str

    @property
    def language(self) -> str:
        """The voice's language: `en` for `en-us+f2`."""
        return re.split(r"[-+]", self.voice)[0]

    @property
    def speaker(self) -> str:
        """The voice's variant, `plain` without one."""
        return self.voice.partition("+")[2] or "plain"

    @property
    def audio(self) -> str:
        """Path of the sound file in the corpus."""
        return f"{self.language}/{self.speaker}/{self.id}.wav"


def read_transcripts(path: Path | None, count: int | None, most_characters: int | None) -> list[tuple[str, str]]:
    """Return id and text of the first `count` rows that are short enough. Raises CorpusError for a bad line."""
    if path is None:
        lines = [f"demo-{number:04d}|{text}" for number, text in enumerate(demo_sentences(), start=1)]
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
    rows = []
    for number, line in enumerate(lines, start=1):
        clip_id, bar, text = line.partition("|")
        if not bar or not _CLIP_ID.fullmatch(clip_id):
            raise CorpusError(f"{path}:{number}: found {line[:40]!r}, expected id|text")
        text = " ".join(text.rpartition("|")[2].split())
        if most_characters is None or len(text) <= most_characters:
            rows.append((clip_id, text))
    return rows[:count]


def persian_sentences() -> list[str]:
    """Return 400 Persian sentences, written for this project."""
    return PERSIAN_SENTENCES_FILE.read_text(encoding="utf-8").splitlines()


def clips_of(corpus: str, english: Sequence[tuple[str, str]], variants: Sequence[str]) -> Iterator[Clip]:
    """Yield the clips of a corpus, those of a voice in the order in which they are spoken."""
    if corpus == "eight-voices":
        for place, variant in enumerate(variants):
            yield from (
                Clip(clip_id, text, f"{ENGLISH_VOICE}+{variant}") for clip_id, text in english[place :: len(variants)]
            )
        return
    yield from (Clip(clip_id, text, ENGLISH_VOICE) for clip_id, text in english)
    if corpus == "two-languages":
        for number, text in enumerate(persian_sentences(), start=1):
            yield Clip(f"fa-{number:04d}", text, PERSIAN_VOICE)


def portions(clips: Sequence[Clip]) -> Iterator[list[Clip]]:
    """Yield the clips of each process: clips of one voice, at most CLIPS_PER_PROCESS."""
    for _, group in groupby(clips, key=lambda clip: clip.voice):
        same_voice = list(group)
        yield from (
            same_voice[start : start + CLIPS_PER_PROCESS] for start in range(0, len(same_voice), CLIPS_PER_PROCESS)
        )


def speak(folder: Path, clips: Sequence[Clip], words_per_minute: int) -> None:
    """Speak clips of one voice into the corpus; run in a fresh process."""
    (folder / clips[0].audio).parent.mkdir(parents=True, exist_ok=True)
    with EspeakVoice(clips[0].voice, words_per_minute) as voice:
        for clip in clips:
            soundfile.write(folder / clip.audio, voice.speak(clip.text), voice.sample_rate, subtype="PCM_16")


def make_corpus(folder: Path, clips: Sequence[Clip], words_per_minute: int, jobs: int) -> None:
    """Speak all clips; the table is written last, so that a corpus with a table is complete."""
    rows = [f"{clip.audio}\t{clip.id}\t{clip.text}\t{clip.speaker}\t{clip.language}" for clip in clips]
    table = folder / "manifest.tsv"
    table.unlink(missing_ok=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for done in [pool.submit(speak, folder, portion, words_per_minute) for portion in portions(clips)]:
            done.result()
    table.write_text("\n".join(["audio\tid\ttext\tspeaker\tlanguage", *rows]) + "\n", encoding="utf-8")


def main() -> None:
    """Make the corpus and print how many clips each speaker of each language has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=CORPORA)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--transcripts", type=Path, help="lines of id|text; the demo's sentences without it")
    parser.add_argument("--count", type=int, help="English clips in all; every row without it")
    parser.add_argument(
        "--max-characters", type=int, help="leave out longer English rows; 15 characters take about a second"
    )
    parser.add_argument("--variants", default=",".join(VARIANTS), help="espeak-ng's voice variants of eight-voices")
    parser.add_argument("--words-per-minute", type=int, default=165)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    try:
        english = read_transcripts(arguments.transcripts, arguments.count, arguments.max_characters)
        clips = list(clips_of(arguments.corpus, english, arguments.variants.split(",")))
        make_corpus(arguments.out, clips, arguments.words_per_minute, arguments.jobs)
    except (CorpusError, OSError) as error:
        sys.exit(f"make_corpora: {error}")
    for (language, speaker), group in groupby(clips, key=lambda clip: (clip.language, clip.speaker)):
        print(f"{language} {speaker}: {len(list(group))} clips")


if __name__ == "__main__":
    main()

"""Turn long recordings and their transcripts into a corpus of clips that `xtts preprocess` reads without an option."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from xtts_pipeline.audio.load import CONVERT, LIBRARY_ERRORS, SEGMENTED_SECONDS
from xtts_pipeline.audio.save import encode_wave
from xtts_pipeline.corpus.encodings import decode_text, likely_encoding
from xtts_pipeline.corpus.folders import HOLDS_TIMES, holds_times
from xtts_pipeline.corpus.layouts.pairs import transcripts_among
from xtts_pipeline.corpus.segment.align import LEAST_EXPLAINED, align
from xtts_pipeline.corpus.segment.cut import (
    CutClip,
    Misfit,
    cut_aligned,
    cut_untranscribed,
)
from xtts_pipeline.corpus.segment.reference import speak_reference
from xtts_pipeline.corpus.segment.speech import MAX_HZ, hear
from xtts_pipeline.corpus.sounds import APPLE_DOUBLE, SOUND_SUFFIXES, UNREAD_SUFFIXES, normal, path_problem
from xtts_pipeline.errors import CorpusError, output_errors
from xtts_pipeline.system.atomic_files import atomic_folder
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.stderr import silent_decoder
from xtts_pipeline.system.terminal import counted, join_lines, shell_word

CLIPS_NAME, LEFT_OUT_NAME = "clips.jsonl", "left_out.jsonl"
UNTRANSCRIBED_FOLDER = "untranscribed"
MIN_SPEECH_SECONDS = 10.0
# A transcript of an hour has 60 kB.
MAX_TEXT_BYTES = 16 << 20
_UNSAFE = re.compile(r"[\\/|\s]+")


@dataclass(frozen=True)
class Recording:
    """A long sound and its transcript, if it has one; its clips are named `ID-0001` and so on."""

    id: str
    sound: Path
    transcript: Path | None


@dataclass(frozen=True)
class SegmentReport:
    """The result: the clips of each recording, kept and left out, and what is wrong with those without any."""

    output: Path
    recordings: list[Recording]
    clips: list[list[CutClip]]
    problems: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        kept = [clip for clips in self.clips for clip in clips if clip.problem is None]
        left_out = [clip for clips in self.clips for clip in clips if clip.problem]
        return {
            "recordings": len(self.recordings),
            "without_transcript": sum(recording.transcript is None for recording in self.recordings),
            "clips": len(kept),
            "hours": round(_hours(kept), 4),
            "left_out": len(left_out),
            "left_out_hours": round(_hours(left_out), 4),
            "left_out_by_reason": dict(Counter(str(clip.problem) for clip in left_out)),
            "problems": self.problems,
            "median_confidence": round(float(np.median(self._confidences or [0.0])), 3),
        }

    @property
    def _confidences(self) -> list[float]:
        """Those of the kept clips that have a text."""
        return [clip.confidence for clips in self.clips for clip in clips if clip.problem is None and clip.text]

    def to_text(self) -> str:
        """Return the report for people."""
        report = self.to_json()
        pairs = zip(self.recordings, self.clips, strict=True)
        cut_only = sum(
            recording.transcript is None and any(clip.problem is None for clip in clips) for recording, clips in pairs
        )
        found = f"{counted(report['recordings'], 'recording')}: {counted(report['clips'], 'clip')}"
        lines = [f"{found} of {report['hours']:.2f} hours"]
        if cut_only:
            where = f"cut only, into {self.output / UNTRANSCRIBED_FOLDER}"
            lines.append(f"without a transcript: {cut_only} of them, {where}")
        if self._confidences:
            lines.append(f"median confidence: {report['median_confidence']:.2f}, each in {self.output / CLIPS_NAME}")
        if report["left_out"]:
            lines.append(f"left out, {report['left_out_hours']:.2f} hours, each in {self.output / LEFT_OUT_NAME}:")
            lines += [f"  {reason:<20} {count:>6}" for reason, count in report["left_out_by_reason"].items()]
        lines += [f"warning: {problem}" for problem in self.problems]
        if not report["clips"]:
            lines.append("no clip is left, so there is no next step")
        elif not self._confidences:
            table = self.output / UNTRANSCRIBED_FOLDER / "metadata.csv"
            lines.append(f"next: write {table} with the header file,text and a row for each clip")
        else:
            lines.append(f"next: xtts preprocess --data {shell_word(self.output)}")
        return join_lines(lines)


def find_recordings(data: Path) -> list[Recording]:
    """Return the sounds of a folder, or the one sound, with the transcript of the same name beside each.

    In a folder of one sound and one text the names may differ. Raises CorpusError if there is no sound.
    """
    root = data if data.is_dir() else data.parent
    recordings = []
    for place, _, found_names in sorted(islice(os.walk(root), None if data.is_dir() else 1)):
        folder, names = Path(place), sorted(name for name in found_names if not name.startswith(APPLE_DOUBLE))
        sounds = [name for name in names if name.lower().endswith(SOUND_SUFFIXES)]
        texts = transcripts_among(names)
        for name in sounds:
            stem = Path(name).stem
            found = next(iter(texts.values())) if len(texts) == len(sounds) == 1 else texts.get(normal(stem))
            if data in (root, folder / name):
                recording_id = _UNSAFE.sub("_", str((folder / stem).relative_to(root)))
                recordings.append(Recording(recording_id, folder / name, folder / found if found else None))
    if not recordings:
        looked_at = sorted(data.rglob("*")) if data.is_dir() else [data]
        if unread := next((path for path in looked_at if path.suffix.lower() in UNREAD_SUFFIXES), None):
            raise CorpusError(f"{unread}: a format that is not read; expected WAV, FLAC, OGG or MP3: {CONVERT}")
        raise CorpusError(f"{data}: no sound; expected long recordings such as book.wav, each beside book.txt")
    twice = [name for name, count in Counter(recording.id for recording in recordings).items() if count > 1]
    if twice:
        raise CorpusError(f"{data}: several recordings are named {twice[0]}; rename all but one")
    return recordings


def segment_corpus(
    data: Path,
    output: Path,
    language: str,
    max_seconds: float,
    encoding: str = "",
    on_recording: Callable[[Recording], None] = lambda _: None,
) -> SegmentReport:
    """Cut every recording below `data` into clips and write them as a corpus.

    `output` appears when all is written. Raises CorpusError if no recording can be used, or no transcript fits.
    """
    recordings = find_recordings(data)
    report = SegmentReport(output, recordings, [], [])
    with output_errors(output, "choose another --output"), atomic_folder(output) as partial:
        rows, kept_lines, left_out_lines = [], [], []
        for recording in recordings:
            on_recording(recording)
            folder = partial / (UNTRANSCRIBED_FOLDER if recording.transcript is None else "wavs")
            try:
                clips, rate, problem = _cut(recording, language, max_seconds, encoding)
                _write_clips(folder, recording, rate, clips)
            except CorpusError as error:
                clips, problem = [], str(error)
            if problem:
                report.problems.append(problem)
            report.clips.append(clips)
            for clip_id, clip in _named(recording, clips):
                line = {"id": clip_id, "source": str(recording.sound), **asdict(clip)}
                if clip.problem is not None:
                    left_out_lines.append(line)
                    continue
                kept_lines.append(line)
                rows += [f"{clip_id}|{clip.text}"] if clip.text else []
        transcribed = sum(recording.transcript is not None for recording in recordings)
        if report.problems and not rows and (not kept_lines or len(report.problems) >= transcribed > 0):
            raise CorpusError(report.problems[0])
        if not (report.problems or kept_lines or left_out_lines):
            raise CorpusError(f"{data}: found no speech; expected recordings of speech with pauses")
        if rows:
            (partial / "metadata.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        for name, lines in ((CLIPS_NAME, kept_lines), (LEFT_OUT_NAME, left_out_lines)):
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (partial / name).write_text(text, encoding="utf-8")
    return report


def _cut(recording: Recording, language: str, max_seconds: float, encoding: str) -> tuple[list[CutClip], int, str]:
    """Return all clips of a recording, its sample rate, and what is wrong if its transcript does not fit."""
    first = f"{recording.id}-0001.wav"
    if problem := path_problem(first):
        raise CorpusError(f"{recording.sound}: its clips would be named {first}, which {problem}; rename the recording")
    speech, rate = hear(recording.sound)
    if recording.transcript is None:
        return cut_untranscribed(speech, max_seconds), rate, ""
    where = f"{recording.transcript}"
    text = _read_text(recording.transcript, language, encoding)
    reference = speak_reference(text, language, min(MAX_HZ, rate / 2))
    seconds = len(speech.mels) * float(np.median(np.diff(speech.frame_seconds))) if len(speech.mels) > 1 else 0.0
    if seconds < MIN_SPEECH_SECONDS or not len(reference.mels):
        found = f"{seconds:.1f} s of speech and {len(reference.words)} words"
        raise CorpusError(f"{where}: {found}; expected over {MIN_SPEECH_SECONDS:g} s: shorter sounds are clips already")
    alignment, reference = align(speech, reference)
    share = alignment.explained_share
    if share < LEAST_EXPLAINED:
        found = f"its words explain {max(0.0, share):.0%} of the speech in {recording.sound.name}"
        short = f"; {seconds:.0f} s of speech may be too short to find its words" if seconds < SEGMENTED_SECONDS else ""
        problem = f"{where}: {found}, expected over {LEAST_EXPLAINED:.0%}; check the pair and --language{short}"
        end = float(speech.stretches[-1, 1])
        return [CutClip(0.0, end, " ".join(reference.words), 0.0, Misfit.WRONG_TRANSCRIPT)], rate, problem
    return cut_aligned(speech, reference, alignment, max_seconds), rate, ""


def _read_text(path: Path, language: str, encoding: str) -> str:
    try:
        raw = read_regular_file(path, MAX_TEXT_BYTES)
        text = decode_text(raw, encoding).replace("|", " ")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); expected a text file") from None
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is not {(encoding or 'UTF-8').upper()}"
        raise CorpusError(f"{path}: {found}; give its --encoding, such as {likely_encoding(raw, language)}") from None
    if holds_times(text):
        raise CorpusError(f"{path}: {HOLDS_TIMES}")
    if not any(map(str.isalnum, text)):
        raise CorpusError(f"{path}: no letter or digit; expected the words of the recording")
    return text


def _named(recording: Recording, clips: Sequence[CutClip]) -> list[tuple[str, CutClip]]:
    return [(f"{recording.id}-{number:04d}", clip) for number, clip in enumerate(clips, 1)]


def _write_clips(folder: Path, recording: Recording, rate: int, clips: Sequence[CutClip]) -> None:
    """Write the kept clips of a recording. Raises CorpusError if one cannot be cut, and then leaves none."""
    paths = [(folder / f"{clip_id}.wav", clip) for clip_id, clip in _named(recording, clips) if clip.problem is None]
    if paths:
        folder.mkdir(exist_ok=True)
    try:
        for path, clip in paths:
            _write_clip(path, recording.sound, rate, clip)
    except CorpusError:
        for path, _ in paths:
            path.unlink(missing_ok=True)
        raise


def _write_clip(path: Path, sound: Path, rate: int, clip: CutClip) -> None:
    try:
        with silent_decoder(), soundfile.SoundFile(sound) as file:
            file.seek(round(clip.start * rate))
            wave = file.read(round((clip.end - clip.start) * rate), dtype="float32", always_2d=True).mean(axis=1)
    except LIBRARY_ERRORS as error:
        raise CorpusError(f"{sound}: cannot be cut at {clip.start:.1f} s ({error}); expected a whole file") from None
    path.write_bytes(encode_wave(path, np.clip(wave, -1.0, 1.0), rate))


def _hours(clips: list[CutClip]) -> float:
    return sum(clip.end - clip.start for clip in clips) / 3_600

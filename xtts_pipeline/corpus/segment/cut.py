"""Choose the pauses at which a recording is cut, and judge each clip.

A cut is in a pause that the alignment puts between two words. Sentence ends are preferred, then commas.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from xtts_pipeline.corpus.segment.align import CLAUSE_MARKS, TextAlignment
from xtts_pipeline.corpus.segment.reference import Reference
from xtts_pipeline.corpus.segment.speech import RecordedSpeech

# Shorter pauses may be stops within a word. The quiet part is no measure: a room fills most of a pause with its echo.
CUT_PAUSE_SECONDS = 0.2
# Words end softly, below the noise too, and begin suddenly: a cut is late in the quiet part of a pause.
CUT_SHARE = 0.75
# The most silence that a clip keeps before and after its speech.
START_MARGIN_SECONDS, END_MARGIN_SECONDS = 0.2, 0.4
# Preprocessing's limit of characters, with room for what normalising adds.
MAX_CHARACTERS = 190
# The costs of a cut, and of each second that a clip is shorter than wanted; without a text, long pauses are preferred.
CUT_AT_MARK, CUT_ELSEWHERE, CUT_IN_SHORT_PAUSE = 1.0, 3.0, 1.0
WANTED_SECONDS, LONG_PAUSE_SECONDS = 4.0, 0.5
TOO_LONG = 1e6
MOST_FOREIGN = 0.1
# A clip fits its text at least so well, compared with the recording's median clip.
LEAST_CONFIDENCE = 0.5


class Misfit(StrEnum):
    """Why a part of a recording is kept out of the corpus."""

    NO_TEXT = "sound_without_text"  # nothing in the transcript fits
    NO_SOUND = "text_without_sound"  # nobody speaks these words
    UNSURE = "unsure_text"  # the words fit badly
    TOO_LONG = "too_long"  # no pause between two words within the longest clip
    WRONG_TRANSCRIPT = "wrong_transcript"  # the whole recording says something else


@dataclass(frozen=True)
class CutClip:
    """A part of a recording: its seconds, its words, the trust in them from 0 to 1, and why it is left out, if so."""

    start: float
    end: float
    text: str = ""
    confidence: float = 0.0
    problem: Misfit | None = None


@dataclass(frozen=True)
class _Pause:
    """A pause that may be cut, before a stretch of speech; its words are the numbers of words read before and after it.

    must_cut: the text goes on elsewhere, or foreign sound begins or ends.
    """

    stretch: int
    words_before: int
    words_after: int
    cost: float
    must_cut: bool


def cut_aligned(
    speech: RecordedSpeech, reference: Reference, alignment: TextAlignment, max_seconds: float
) -> list[CutClip]:
    """Return all clips and, with their problems, all parts of the recording and of the text that are in none."""
    clips, done, explained = [], 0, []
    chosen = _choose(speech, _text_pauses(speech, reference, alignment), reference.words, max_seconds)
    for first, last in chosen:
        words = reference.words[first.words_after : last.words_before]
        start, end = _span(speech, first.stretch, last.stretch)
        if first.words_after > done:
            clips.append(
                CutClip(start, start, " ".join(reference.words[done : first.words_after]), 0.0, Misfit.NO_SOUND)
            )
        done = max(done, last.words_before)
        frames = slice(_first_frame(speech, first.stretch), _first_frame(speech, last.stretch))
        foreign = alignment.is_foreign[frames].mean()
        errors, variances = alignment.fits[:, frames].sum(axis=1)
        problem = None
        if foreign > MOST_FOREIGN or not words:
            problem = Misfit.NO_TEXT if foreign > 0.5 or not words else Misfit.UNSURE
        elif end - start > max_seconds:
            problem = Misfit.TOO_LONG
        explained.append(1 - errors / variances)
        clips.append(CutClip(start, end, " ".join(words), explained[-1], problem))
    if done < len(reference.words):
        end = speech.stretches[-1, 1]
        clips.append(CutClip(end, end, " ".join(reference.words[done:]), 0.0, Misfit.NO_SOUND))
    usual = float(np.median(explained))
    return [_judged(clip, usual) for clip in clips]


def cut_untranscribed(speech: RecordedSpeech, max_seconds: float) -> list[CutClip]:
    """Return the clips of a recording without a text."""
    stretches = len(speech.stretches)
    lengths = speech.pause_seconds
    pauses = [
        _Pause(stretch, 0, 0, CUT_IN_SHORT_PAUSE * bool(lengths[stretch] < LONG_PAUSE_SECONDS), must_cut=False)
        for stretch in range(stretches + 1)
        if lengths[stretch] >= CUT_PAUSE_SECONDS
    ]
    spans = [_span(speech, first.stretch, last.stretch) for first, last in _choose(speech, pauses, [], max_seconds)]
    return [CutClip(start, end, problem=Misfit.TOO_LONG if end - start > max_seconds else None) for start, end in spans]


def _judged(clip: CutClip, usual: float) -> CutClip:
    """Return the clip with its confidence relative to that of the usual clip."""
    confidence = round(float(np.clip(clip.confidence / max(usual, 1e-9), 0.0, 1.0)), 3)
    problem = clip.problem or (Misfit.UNSURE if confidence < LEAST_CONFIDENCE else None)
    return CutClip(clip.start, clip.end, clip.text, confidence, problem)


def _text_pauses(speech: RecordedSpeech, reference: Reference, alignment: TextAlignment) -> list[_Pause]:
    word_at, lengths, frames = reference.word_at, speech.pause_seconds, len(alignment.is_foreign)
    before = np.append(alignment.read_before, alignment.read_after[-1])
    after = np.append(alignment.read_before[0], alignment.read_after)
    is_foreign = _stretch_shares(speech, alignment.is_foreign) > 0.5
    is_foreign = np.concatenate([is_foreign[:1], is_foreign, is_foreign[-1:]])
    sentence_ends = frozenset(reference.sentence_ends.tolist())
    pauses = []
    for stretch in range(len(speech.stretches) + 1):
        frame = _first_frame(speech, stretch)
        # Before the first word begins the text; text that nobody read before it or after the last one is listed.
        words_before, words_after = int(word_at[after[frame]]), int(word_at[before[frame]])
        # The alignment may end inside a word, which then was not read whole.
        if frame in (0, frames):
            words_before = words_after = int(word_at[: max(before[frame], after[frame]) + 1].max())
        if lengths[stretch] < CUT_PAUSE_SECONDS or min(words_before, words_after) < 0:
            continue
        is_marked = words_after > 0 and reference.words[words_after - 1].endswith(CLAUSE_MARKS)
        cost = 0.0 if words_after in sentence_ends else CUT_AT_MARK if is_marked else CUT_ELSEWHERE
        must_cut = words_before != words_after or bool(is_foreign[stretch] != is_foreign[stretch + 1])
        pauses.append(_Pause(stretch, words_before, words_after, cost, must_cut))
    return pauses


def _choose(
    speech: RecordedSpeech, pauses: list[_Pause], words: list[str], max_seconds: float
) -> list[tuple[_Pause, _Pause]]:
    """Return the first and last pause of each clip: the cuts of least cost that leave no clip too long."""
    costs, origins = [0.0] + [np.inf] * (len(pauses) - 1), [0] * len(pauses)
    for last in range(1, len(pauses)):
        for first in reversed(range(last)):
            start, end = _span(speech, pauses[first].stretch, pauses[last].stretch)
            text = " ".join(words[pauses[first].words_after : pauses[last].words_before])
            is_long = end - start > max_seconds or len(text) > MAX_CHARACTERS
            cost = costs[first] + pauses[last].cost + max(0.0, WANTED_SECONDS - (end - start)) + TOO_LONG * is_long
            if cost < costs[last]:
                costs[last], origins[last] = cost, first
            if is_long or pauses[first].must_cut:
                break
    chosen, last = [], len(pauses) - 1
    while last > 0:
        chosen.append((pauses[origins[last]], pauses[last]))
        last = origins[last]
    return chosen[::-1]


def _stretch_shares(speech: RecordedSpeech, mask: np.ndarray) -> np.ndarray:
    """Return the share of each stretch's frames that are in the mask, float [N].

    A single frame beside a pause would not do: it is soft, and fits the soft last frame of any text.
    """
    counts = np.diff(np.append(speech.first_frames, len(mask)))
    shares: np.ndarray = np.add.reduceat(mask.astype(float), speech.first_frames) / counts
    return shares


def _first_frame(speech: RecordedSpeech, stretch: int) -> int:
    return int(speech.first_frames[stretch]) if stretch < len(speech.first_frames) else len(speech.mels)


def _span(speech: RecordedSpeech, first: int, last: int) -> tuple[float, float]:
    """Return the seconds of the stretches from `first` up to `last`, with a part of the pauses at both ends."""
    begin, end = (float(speech.quiet[place] @ (1 - CUT_SHARE, CUT_SHARE)) for place in (first, last))
    start = max(begin, float(speech.stretches[first, 0]) - START_MARGIN_SECONDS)
    return start, min(end, float(speech.stretches[last - 1, 1]) + END_MARGIN_SECONDS)

"""Find words that finished speech does not say as planned: skipped, repeated, or drawn out.

Two signs. The planned durations show words that are far too short or too long, before any frame exists. The aligner,
which never saw the plan, shows where the finished frames really say each word. Pure NumPy, since the command line
imports it before TensorFlow.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xtts_pipeline.inference.timings import find_words
from xtts_pipeline.model.architecture import ALIGNER_LARGEST_ERROR, ALIGNER_SMOOTHING

# Words of recorded and of good synthetic speech are far from these limits, except those merged with the next word.
# docs/quality-experiments.md has the measurement.
SHORTEST_LETTER_SECONDS, LONGEST_TOKEN_SECONDS, LONGEST_PAUSE_SECONDS = 0.015, 1.0, 3.0
COLLAPSED_SHARE, STRETCHED_SHARE = 0.6, 1.6
# The least duration of a word for each of its letters when a piece is decoded again: three frames of 10 to 12 ms.
LEAST_LETTER_SECONDS = 0.03
# Short words move by a frame or two without being wrong.
LOST_FRAMES, GAINED_FRAMES = 3, 4
# Limits of errors, as shares of chance: there, frames are as far from their tokens as these are from each other. The
# first limit is of the nearest quarter of a word's frames. The second is of the mean of the frames after the word's
# first token, which may have a pause before the word: silence is far from every token of speech.
NEAREST_SHARE, LARGEST_NEAREST_ERROR, LARGEST_LATER_ERROR = 0.25, 0.5, 1.0
# Recorded voices vary more than synthetic ones, so their good words are nearer to these limits. Both limits grow, to
# LARGEST_TOLERANCE times as much, until the first is WORST_TO_MEDIAN times the median error of the other words.
WORST_TO_MEDIAN, LARGEST_TOLERANCE = 3.0, 2.0


class Faults(NamedTuple):
    """How many words, and tokens, of a speech are not as they should be."""

    skipped_words: int = 0
    repeated_words: int = 0
    overlong_tokens: int = 0

    def plus(self, other: "Faults") -> "Faults":
        """Return the faults of both."""
        return Faults(*(one + another for one, another in zip(self, other, strict=True)))


NO_FAULTS = Faults()


class PlannedSpeech(NamedTuple):
    """What the frames of a piece are decoded from, at normal speed.

    seconds: duration of each token, float [S]. mean_frame: the mean of each token's smoothed frames by the aligner,
    float [S, M]. words: the first and the last token of each word. letters: the tokens of each word but for blanks.
    """

    seconds: np.ndarray
    mean_frame: np.ndarray
    words: Sequence[tuple[int, int]]
    letters: Sequence[int]

    @classmethod
    def of(cls, seconds: np.ndarray, mean_frame: np.ndarray, symbols: Sequence[str]) -> "PlannedSpeech":
        """Return the plan with the words of the tokens' symbols."""
        words = list(find_words(symbols))
        letters = [sum(len(symbol) == 1 for symbol in symbols[first : last + 1]) for first, last in words]
        return cls(seconds, mean_frame, words, letters)


def lengthen_words(plan: PlannedSpeech) -> PlannedSpeech:
    """Return the plan with at least LEAST_LETTER_SECONDS a letter for each word; a word's tokens keep their ratios."""
    seconds = plan.seconds.copy()
    for (first, last), letters in zip(plan.words, plan.letters, strict=True):
        word = seconds[first : last + 1]
        word *= max(1.0, LEAST_LETTER_SECONDS * letters / word.sum())
    return plan._replace(seconds=seconds)


def planned_faults(plan: PlannedSpeech) -> Faults:
    """Return the words that are planned too short to be heard, and the tokens that are too long to be speech."""
    is_in_word = np.zeros(len(plan.seconds), bool)
    for first, last in plan.words:
        is_in_word[first : last + 1] = True
    longest = np.where(is_in_word, LONGEST_TOKEN_SECONDS, LONGEST_PAUSE_SECONDS)
    return Faults(skipped_words=sum(_are_too_short(plan)), overlong_tokens=int((plan.seconds > longest).sum()))


def spoken_faults(plan: PlannedSpeech, mel_TM: np.ndarray, frame_seconds: float, speed: float = 1.0) -> Faults:
    """Return the faults of a plan and of its frames, which are in the network's scale and at `speed`.

    The likeliest path through the text gives each word its frames. A skipped word has lost them to its neighbours, or
    they do not fit it. A repeated word has gained some. With fewer frames than tokens there is no path.
    """
    faults = planned_faults(plan)
    # At normal speed, since a path gives each token a frame or more.
    mel_TM = mel_TM[(np.arange(round(len(mel_TM) * speed)) / speed).astype(int)]
    if len(mel_TM) < len(plan.seconds) or not plan.words:
        return faults
    error_TS = _errors(_smoothed(mel_TM), plan.mean_frame)
    token_T = likeliest_path(np.minimum(error_TS, ALIGNER_LARGEST_ERROR))
    error_T = error_TS[np.arange(len(token_T)), token_T] / plan.mean_frame.var(axis=0).mean()
    is_word_WT = [(token_T >= first) & (token_T <= last) for first, last in plan.words]
    nearest_W = np.array([np.quantile(error_T[is_word_T], NEAREST_SHARE) for is_word_T in is_word_WT])
    skipped, repeated, are_too_short = 0, 0, _are_too_short(plan)
    for word, ((first, last), is_word_T) in enumerate(zip(plan.words, is_word_WT, strict=True)):
        nearest, tolerance = nearest_W[word], _tolerance(np.delete(nearest_W, word))
        planned, frames = plan.seconds[first : last + 1].sum() / frame_seconds, is_word_T.sum()
        has_lost = frames < COLLAPSED_SHARE * planned and planned - frames >= LOST_FRAMES
        later_error_F = error_T[is_word_T & (token_T > first)]
        is_unlike = nearest > LARGEST_NEAREST_ERROR * tolerance
        is_unlike |= len(later_error_F) > 0 and later_error_F.mean() > LARGEST_LATER_ERROR * tolerance
        skipped += bool(has_lost or is_unlike or are_too_short[word])
        repeated += bool(frames > STRETCHED_SHARE * planned and frames - planned >= GAINED_FRAMES)
    return Faults(skipped, repeated, faults.overlong_tokens)


def _tolerance(error_of_others_W: np.ndarray) -> float:
    """Return the factor of the limits of a word's errors, by those of the nearest frames of the other words."""
    if not len(error_of_others_W):
        return 1.0
    largest = WORST_TO_MEDIAN * np.median(error_of_others_W)
    return float(np.clip(largest / LARGEST_NEAREST_ERROR, 1.0, LARGEST_TOLERANCE))


def _are_too_short(plan: PlannedSpeech) -> list[bool]:
    """Return for each word whether its letters have too little time to be heard, or a time that is no number."""
    return [
        not plan.seconds[first : last + 1].sum() >= SHORTEST_LETTER_SECONDS * letters
        for (first, last), letters in zip(plan.words, plan.letters, strict=True)
    ]


def likeliest_path(error_TS: np.ndarray) -> np.ndarray:
    """Return the token of each frame, int [T]: the path of the least error from the first token to the last.

    Each frame stays at its token or goes to the next (Viterbi), so T must be S or more.
    """
    frames, tokens = error_TS.shape
    total_S = np.full(tokens, np.inf)
    total_S[0] = error_TS[0, 0]
    moved_S, has_moved_TS = np.full(tokens, np.inf), np.zeros((frames, tokens), bool)
    for frame in range(1, frames):
        moved_S[1:] = total_S[:-1]
        np.less(moved_S, total_S, out=has_moved_TS[frame])
        total_S = np.minimum(moved_S, total_S) + error_TS[frame]
    token, path = tokens - 1, np.zeros(frames, int)
    for frame in range(frames - 1, -1, -1):
        path[frame] = token
        token -= int(has_moved_TS[frame, token])
    return path


def _smoothed(mel_TM: np.ndarray) -> np.ndarray:
    """Return frames as the aligner compares them: each averaged with its neighbours, [T, M]; as `aligner.smoothed`."""
    reach = len(ALIGNER_SMOOTHING) // 2

    def weighted_sum(x_TM: np.ndarray) -> np.ndarray:
        padded_TM = np.pad(x_TM, [(reach, reach), (0, 0)])
        windows_TMW = np.lib.stride_tricks.sliding_window_view(padded_TM, len(ALIGNER_SMOOTHING), axis=0)
        total_TM: np.ndarray = windows_TMW @ np.array(ALIGNER_SMOOTHING, x_TM.dtype)
        return total_TM

    average_TM: np.ndarray = weighted_sum(mel_TM) / weighted_sum(np.ones_like(mel_TM[:, :1]))
    return average_TM


def _errors(mel_TM: np.ndarray, mean_SM: np.ndarray) -> np.ndarray:
    """Return the mean squared error of each frame against each token's mean frame, [T, S]."""
    squares_TS = np.square(mel_TM).sum(axis=1)[:, None] + np.square(mean_SM).sum(axis=1)[None, :]
    errors: np.ndarray = (squares_TS - 2.0 * mel_TM @ mean_SM.T) / mel_TM.shape[1]
    return errors

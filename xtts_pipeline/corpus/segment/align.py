"""Align the speech of a recording with the speech of a reference, in time and memory linear in their length.

Dynamic time warping whose two sounds have no pauses. A pause of the recording must fall between two words. Between two
sentences, a passage that is no speech of the text may be heard, or text may be left unread. The first pass compares
cepstra. Each further pass first adapts the reference to the recording: a linear map from a few reference frames to
recorded frames, then the directions that tell the mapped frames apart (linear discriminant analysis).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft
import scipy.linalg
from scipy.ndimage import uniform_filter1d

from xtts_pipeline.corpus.segment.reference import Reference
from xtts_pipeline.corpus.segment.speech import HOPS_PER_FRAME, HOPS_PER_SECOND, RecordedSpeech

FRAMES_PER_SECOND = HOPS_PER_SECOND // HOPS_PER_FRAME
CEPSTRA = 14
RECORDED_CONTEXT, REFERENCE_CONTEXT = 1, 3
DIRECTIONS = 24
# Higher cepstra tell speakers apart rather than sounds; the adaptation finds its own weights.
LIFTER = 5 / (5 + np.arange(CEPSTRA, dtype=np.float32))
RIDGE, NOISE_VARIANCE = 10.0, 0.01
# Shares of the variance of the speech: under the first the text is wrong, over the second no second try is needed.
LEAST_EXPLAINED, WELL_EXPLAINED = 0.05, 0.15
MOST_ADAPTATIONS, LEAST_GAIN = 6, 0.02
HELD_OUT_FRAMES = 10 * FRAMES_PER_SECOND
WRONG_FRAMES = 120 * FRAMES_PER_SECOND
# The cost of a foreign frame, as a share of that of a wrong text.
FOREIGN_SHARE, FIRST_FOREIGN_SHARE = 0.85, 1.25
# Pace and share of further tries, made while less than WELL_EXPLAINED is reached.
LEAST_TRIES = 2
FURTHER_STARTS = ((1.0, 1.25), (1.0, 1.0), (0.8, 1.25), (1.25, 1.25))
TRUSTED_SHARE, TRUSTED_FRAMES = 0.7, 2 * FRAMES_PER_SECOND

# The band of reference frames around the best one. It doubles while nothing fits: text may have been left unread.
BAND_BACK, BAND_AHEAD, MOST_AHEAD = 15 * FRAMES_PER_SECOND, 30 * FRAMES_PER_SECOND, 480 * FRAMES_PER_SECOND
BLOCK_FRAMES = 50

# Costs in units of a frame's mean squared distance; one of the right frame costs about 1.
PAUSE_IN_WORD, PAUSE_IN_CLAUSE, PAUSE_AT_COMMA = 30.0, 2.0, 0.5
CHANGE_OF_PACE = 0.4
SKIP_TEXT, SKIP_FRAME = 20.0, 0.3
ALIGNED_PAUSE_SECONDS = 0.15
CLAUSE_MARKS = tuple(",;:.!?\"')\u060c\u061b\u061f\u3001\u3002\uff0c\uff1b\uff1a")
_STAY, _STEP, _LEAP, _FOREIGN = 0, 1, 2, 3


@dataclass(frozen=True)
class TextAlignment:
    """Where each recorded frame is in the reference.

    read_before, read_after: the number of reference frames read before and after each recorded frame, int [T].
    costs: float [T], of each recorded frame and its reference frame.
    fits: held-out squared error of a linear prediction of each recorded frame from its reference frame, and the squared
    error without the reference, float [2, T]; equal if foreign.
    """

    read_before: np.ndarray
    read_after: np.ndarray
    is_foreign: np.ndarray
    costs: np.ndarray
    fits: np.ndarray

    @property
    def explained_share(self) -> float:
        """The share of the speech's variance that the text predicts: 0.2 and more if it is right, about 0 if wrong."""
        errors, variances = self.fits.sum(axis=1)
        return float(1 - errors / max(variances, 1e-9))


def align(speech: RecordedSpeech, reference: Reference) -> tuple[TextAlignment, Reference]:
    """Return the best alignment of all frames, and the reference at the pace to which it belongs."""
    found: list[tuple[TextAlignment, Reference]] = []
    # Much text without sound, or the other way round, makes the mean pace wrong.
    for pace, foreign_share in ((len(reference.mels) / len(speech.mels), FIRST_FOREIGN_SHARE), *FURTHER_STARTS):
        if len(found) >= LEAST_TRIES and max(pair[0].explained_share for pair in found) >= WELL_EXPLAINED:
            break
        paced = reference.at_pace(pace)
        found.append((_align_paced(speech, paced, foreign_share), paced))
    return max(found, key=lambda pair: pair[0].explained_share)


def _align_paced(speech: RecordedSpeech, reference: Reference, foreign_share: float) -> TextAlignment:
    recorded_TD = _with_context(_cepstra(speech.mels), RECORDED_CONTEXT)
    context_UD = _with_context(_cepstra(reference.mels), REFERENCE_CONTEXT)
    graph = _Graph.of(speech, reference)
    first_TD, first_UD = (
        _with_context(_cepstra(mels) * LIFTER, RECORDED_CONTEXT) for mels in (speech.mels, reference.mels)
    )
    foreign_cost = foreign_share * _wrong_cost(first_TD, first_UD, graph)
    alignment = _with_fits(_best_path(first_TD, first_UD, graph, foreign_cost), context_UD, recorded_TD)
    for _ in range(MOST_ADAPTATIONS):
        # Passages that fit badly may be wrong, so they teach nothing.
        nearby = uniform_filter1d(alignment.costs, TRUSTED_FRAMES)
        seen = ~alignment.is_foreign & (alignment.read_after > 0) & (nearby <= np.quantile(nearby, TRUSTED_SHARE))
        if seen.sum() < 2 * DIRECTIONS:
            break
        mapped_UD, directions = _adapt(context_UD, alignment.read_after[seen] - 1, recorded_TD[seen])
        left_TD, right_UD = ((frames @ directions).astype(np.float32) for frames in (recorded_TD, mapped_UD))
        path = _best_path(left_TD, right_UD, graph, FOREIGN_SHARE * _wrong_cost(left_TD, right_UD, graph))
        adapted = _with_fits(path, context_UD, recorded_TD)
        gain = adapted.explained_share - alignment.explained_share
        alignment = adapted if gain > 0 else alignment
        if gain < LEAST_GAIN * adapted.explained_share:
            break
    return alignment


def _with_fits(alignment: TextAlignment, context_UD: np.ndarray, recorded_TD: np.ndarray) -> TextAlignment:
    """Return the alignment with its `fits`: a wrong text predicts nothing of speech from which nothing was learned."""
    variances = ((recorded_TD - recorded_TD.mean(axis=0)) ** 2).sum(axis=1)
    errors = variances.copy()
    seen = np.flatnonzero(~alignment.is_foreign & (alignment.read_after > 0))
    halves = np.arange(len(seen)) // HELD_OUT_FRAMES % 2
    for half in (0, 1):
        held, taught = seen[halves == half], seen[halves != half]
        if len(held) and len(taught):
            mapping = _map_frames(context_UD[alignment.read_after[taught] - 1], recorded_TD[taught])
            predicted = _with_one(context_UD[alignment.read_after[held] - 1]) @ mapping
            errors[held] = ((recorded_TD[held] - predicted) ** 2).sum(axis=1)
    return replace(alignment, fits=np.stack([errors, variances]))


def _cepstra(mels: np.ndarray) -> np.ndarray:
    cepstra = scipy.fft.dct(mels, norm="ortho", axis=1)[:, :CEPSTRA]
    scaled: np.ndarray = (cepstra - cepstra.mean(axis=0)) / (cepstra.std(axis=0) + 1e-6)
    return scaled


def _with_context(frames: np.ndarray, context: int) -> np.ndarray:
    padded = np.pad(frames, ((context, context), (0, 0)), mode="edge")
    return np.concatenate([padded[k : k + len(frames)] for k in range(2 * context + 1)], axis=1).astype(np.float32)


def _wrong_cost(recorded_TD: np.ndarray, spoken_UD: np.ndarray, graph: "_Graph") -> float:
    """Return the mean cost of the best path through text that is not spoken there: the reference, begun at its half."""
    half = len(spoken_UD) // 2
    frames = min(half, len(recorded_TD), WRONG_FRAMES)
    # The best path of so few frames ends before the text that they do say.
    costs = np.concatenate([graph.pause_costs[half:-1], graph.pause_costs[: half + 1]])
    wrong = _Graph(costs, graph.follows_pause[:frames], np.zeros(0, int))
    return float(_best_path(recorded_TD[:frames], np.roll(spoken_UD, -half, axis=0), wrong, np.inf).costs.mean())


def _with_one(frames: np.ndarray) -> np.ndarray:
    return np.concatenate([frames, np.ones((len(frames), 1), np.float32)], axis=1)


def _map_frames(context_TD: np.ndarray, recorded_TD: np.ndarray) -> np.ndarray:
    """Return the linear map from reference frames to recorded ones, with a small ridge."""
    seen = _with_one(context_TD).astype(np.float64)
    return np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ recorded_TD)


def _adapt(context_UD: np.ndarray, places: np.ndarray, recorded_TD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the reference mapped to the recording's sound, and the directions in which to compare them."""
    mapped_UD = _with_one(context_UD) @ _map_frames(context_UD[places], recorded_TD)
    noise = np.cov((recorded_TD - mapped_UD[places]).T) + NOISE_VARIANCE * np.eye(recorded_TD.shape[1])
    _, vectors = scipy.linalg.eigh(np.cov(mapped_UD[places].T), noise)
    return mapped_UD, vectors[:, ::-1][:, :DIRECTIONS]


@dataclass(frozen=True)
class _Graph:
    """What the text and the pauses allow.

    pause_costs: the cost of a pause at each position, float32 [U + 1]. follows_pause: bool [T].
    sentences: the positions between sentences, ascending.
    """

    pause_costs: np.ndarray
    follows_pause: np.ndarray
    sentences: np.ndarray

    @classmethod
    def of(cls, speech: RecordedSpeech, reference: Reference) -> "_Graph":
        costs = np.full(len(reference.mels) + 1, PAUSE_IN_WORD, np.float32)
        borders = np.flatnonzero(reference.word_at >= 0)
        costs[borders] = [_pause_cost(reference, word) for word in reference.word_at[borders]]
        sentences = np.unique(reference.word_starts[reference.sentence_ends])
        follows_pause = np.zeros(len(speech.mels), bool)
        follows_pause[speech.first_frames[1:]] = speech.pause_seconds[1:-1] >= ALIGNED_PAUSE_SECONDS
        follows_pause[:1] = True
        return cls(costs, follows_pause, sentences)


def _pause_cost(reference: Reference, word: int) -> float:
    """Return the cost of a pause before a word."""
    if word in reference.sentence_ends:
        return 0.0
    return PAUSE_AT_COMMA if reference.words[word - 1].endswith(CLAUSE_MARKS) else PAUSE_IN_CLAUSE


def _best_path(recorded_TD: np.ndarray, spoken_UD: np.ndarray, graph: _Graph, foreign_cost: float) -> TextAlignment:
    """Return the path of least cost; state u means that u reference frames have been read."""
    frames, states = len(recorded_TD), len(spoken_UD) + 1
    low, ahead, stuck_at = 0, BAND_AHEAD, -1
    scores = np.full(min(states, BAND_BACK + ahead), np.inf, np.float32)
    scores[0] = 0.0
    moves: list[tuple[int, np.ndarray]] = []
    skips: list[dict[int, int]] = []
    norms_U = np.concatenate([[np.inf], (spoken_UD**2).mean(axis=1)]).astype(np.float32)
    # Row u is the frame that leads to state u.
    leading_UD = np.concatenate([np.zeros((1, spoken_UD.shape[1]), np.float32), spoken_UD])
    for first in range(0, frames, BLOCK_FRAMES):
        best = low + int(scores.argmin())
        ahead = min(2 * ahead, MOST_AHEAD) if best == stuck_at else BAND_AHEAD
        stuck_at = best
        scores, low = _move_band(scores, low, max(low, best - BAND_BACK), min(states, best + ahead))
        band = slice(low, low + len(scores))
        block_TD = recorded_TD[first : first + BLOCK_FRAMES]
        costs_TU = (block_TD**2).mean(axis=1)[:, None] + norms_U[band]
        costs_TU -= (2 / block_TD.shape[1]) * (block_TD @ leading_UD[band].T)
        sentences = graph.sentences[np.searchsorted(graph.sentences, low) : np.searchsorted(graph.sentences, band.stop)]
        for costs, follows_pause in zip(costs_TU, graph.follows_pause[first:], strict=False):
            skipped: dict[int, int] = {}
            if follows_pause:
                scores = scores + graph.pause_costs[band]
                skipped = _skip_text(scores, sentences, low)
            scores, move = _advance(scores, costs, sentences - low, foreign_cost)
            moves.append((low, move))
            skips.append(skipped)
    # Text after the end of the recording may be left unread as well.
    skips.append(_skip_text(scores, graph.sentences[graph.sentences < low + len(scores)], low))
    ends = graph.sentences[np.searchsorted(graph.sentences, low) : np.searchsorted(graph.sentences, low + len(scores))]
    # The band may reach ends to which no path leads: a text without marks has one end, and may go on after the sound.
    ends = ends[np.isfinite(scores[ends - low])]
    if states - 1 in ends:
        state = states - 1
    else:
        state = int(ends[scores[ends - low].argmin()]) if len(ends) else low + int(scores.argmin())
    return _trace_back(recorded_TD, leading_UD, moves, skips, state, foreign_cost)


def _move_band(scores: np.ndarray, low: int, new_low: int, new_high: int) -> tuple[np.ndarray, int]:
    moved = np.full(max(new_high, low + len(scores)) - new_low, np.inf, np.float32)
    moved[: low + len(scores) - new_low] = scores[new_low - low :]
    return moved[: new_high - new_low], new_low


def _skip_text(scores: np.ndarray, sentences: np.ndarray, low: int) -> dict[int, int]:
    """Lower the scores of sentences that are best reached by leaving text unread; return where each skip began."""
    inside = sentences[sentences >= low]
    if not len(inside):
        return {}
    begin = scores[inside - low] - SKIP_FRAME * inside
    least = np.minimum.accumulate(begin)
    origins = np.maximum.accumulate(np.where(begin <= least, np.arange(len(inside)), 0))
    skipped = least + SKIP_FRAME * inside + SKIP_TEXT
    better = np.flatnonzero(skipped < scores[inside - low])
    scores[inside[better] - low] = skipped[better]
    return {int(inside[k]): int(inside[origins[k]]) for k in better}


def _advance(
    scores: np.ndarray, costs: np.ndarray, sentences: np.ndarray, foreign_cost: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores after one more recorded frame, and the move that led to each, int8."""
    ways = np.full((3, len(scores)), np.inf, np.float32)
    ways[_STAY] = scores + CHANGE_OF_PACE
    ways[_STEP, 1:] = scores[:-1]
    ways[_LEAP, 2:] = scores[:-2] + CHANGE_OF_PACE
    move = ways.argmin(axis=0).astype(np.int8)
    advanced = ways.min(axis=0) + costs
    foreign = scores[sentences] + foreign_cost
    better = sentences[foreign < advanced[sentences]]
    move[better] = _FOREIGN
    advanced[better] = scores[better] + foreign_cost
    return advanced, move


def _trace_back(
    recorded_TD: np.ndarray,
    leading_UD: np.ndarray,
    moves: Sequence[tuple[int, np.ndarray]],
    skips: Sequence[dict[int, int]],
    state: int,
    foreign_cost: float,
) -> TextAlignment:
    frames = len(moves)
    before, after = np.zeros(frames, int), np.zeros(frames, int)
    is_foreign = np.zeros(frames, bool)
    state = skips[frames].get(state, state)
    for frame in reversed(range(frames)):
        low, move = moves[frame]
        after[frame] = state
        is_foreign[frame] = move[state - low] == _FOREIGN
        state -= 0 if is_foreign[frame] else int(move[state - low])
        before[frame] = state
        state = skips[frame].get(state, state)
    costs = ((recorded_TD - leading_UD[after]) ** 2).mean(axis=1)
    costs[is_foreign] = foreign_cost
    return TextAlignment(before, after, is_foreign, costs, np.zeros((2, frames)))

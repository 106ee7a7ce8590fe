"""Choose static shapes for a corpus: how many clips a pair of limits keeps, and how much padding it needs.

Pure arithmetic on lengths. A shape is (max_text_length, max_mel_frames). Its cost is their sum: the encoder works on
every token and the decoder on every frame, padding included.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xtts_pipeline.cache.format.padding import FRAMES_MULTIPLE, LEAST_SAVING, MIN_SHAPE_CLIPS, TOKENS_MULTIPLE
from xtts_pipeline.config.schema import Bucket, LimitsConfig

KEEP_SHARE = 0.99
AUTO_SHAPES = 3
_LEVELS = 40  # candidate lengths for each side of a shape
_IMPOSSIBLE = np.iinfo(np.int64).max // 16  # a cost whose sums do not overflow


@dataclass(frozen=True, order=True)
class Shape:
    """A pair of limits."""

    max_text_length: int
    max_mel_frames: int

    @property
    def positions(self) -> int:
        """Number of tokens and frames of a record of this shape, padding included."""
        return self.max_text_length + self.max_mel_frames


@dataclass(frozen=True)
class ShapePlan:
    """One or more nested shapes; a clip goes to the first that it fits.

    `kept` clips fit the largest; `waste` is the padding's share of all tokens and frames, `wastes` the same by shape.
    """

    shapes: tuple[Shape, ...]
    clips: tuple[int, ...]
    wastes: tuple[float, ...]
    kept: int
    waste: float

    def to_json(self) -> dict[str, object]:
        """Return the plan as `xtts stats --json` shows it."""
        return {
            "shapes": [
                {
                    "max_text_length": shape.max_text_length,
                    "max_mel_frames": shape.max_mel_frames,
                    "clips": clips,
                    "padding_waste": round(waste, 4),
                }
                for shape, clips, waste in zip(self.shapes, self.clips, self.wastes, strict=True)
            ],
            "kept": self.kept,
            "padding_waste": round(self.waste, 4),
        }


def plan_shapes(shapes: Sequence[Shape], tokens: np.ndarray, frames: np.ndarray) -> ShapePlan:
    """Return how many clips of these lengths nested shapes keep, and their padding."""
    left = np.ones(len(tokens), np.bool_)
    clips, real = [], []
    for shape in shapes:
        fits = left & (tokens <= shape.max_text_length) & (frames <= shape.max_mel_frames)
        clips.append(int(fits.sum()))
        real.append(int(tokens[fits].sum() + frames[fits].sum()))
        left &= ~fits
    padded = [count * shape.positions for count, shape in zip(clips, shapes, strict=True)]
    wastes = tuple(_waste(some, of) for some, of in zip(real, padded, strict=True))
    return ShapePlan(tuple(shapes), tuple(clips), wastes, sum(clips), _waste(sum(real), sum(padded)))


def _waste(real: int, padded: int) -> float:
    return 1 - real / padded if padded else 0.0


def smallest_shape(tokens: np.ndarray, frames: np.ndarray, keep_share: float = KEEP_SHARE) -> Shape:
    """Return the shape with the fewest positions that keeps at least this share of the clips."""
    text_levels, mel_levels, fitting = _grid(tokens, frames)
    keeps = fitting >= np.ceil(keep_share * len(tokens))
    cost = np.where(keeps, text_levels[:, None] + mel_levels[None, :], np.iinfo(np.int64).max)
    text_at, mel_at = np.unravel_index(int(cost.argmin()), cost.shape)
    return Shape(int(text_levels[text_at]), int(mel_levels[mel_at]))


def best_shapes(
    largest: Shape, count: int, tokens: np.ndarray, frames: np.ndarray, min_clips: int = 1
) -> tuple[Shape, ...]:
    """Return at most `count` nested shapes, the last one `largest`, that minimize padded positions.

    Each holds at least `min_clips`; only the largest may hold none, if all clips are short. Dynamic programming over
    chains of shapes: the clips of a shape are those that fit it but not the next smaller one.
    """
    fits = (tokens <= largest.max_text_length) & (frames <= largest.max_mel_frames)
    text_levels, mel_levels, fitting = _grid(tokens[fits], frames[fits], largest)
    texts, mels = (side.ravel() for side in np.meshgrid(text_levels, mel_levels, indexing="ij"))
    inside_counts, costs = fitting.ravel(), texts + mels
    is_inside = (texts[:, None] <= texts[None, :]) & (mels[:, None] <= mels[None, :])
    # steps[i, j]: cost of the clips of shape j if shape i is the next smaller one.
    own_counts = inside_counts[None, :] - inside_counts[:, None]
    steps = np.where(is_inside & _is_enough(own_counts, min_clips), own_counts * costs[None, :], _IMPOSSIBLE)
    totals = np.where(_is_enough(inside_counts, min_clips), inside_counts * costs, _IMPOSSIBLE)
    came_from = []
    for _ in range(count - 1):
        sums = totals[:, None] + steps
        came_from.append(sums.argmin(axis=0))
        totals = sums.min(axis=0)
    at = len(costs) - 1
    chain = [at]
    for origin in reversed(came_from):
        at = int(origin[at])
        chain.append(at)
    # A chain may repeat a shape, or add one without clips, where another shape saves nothing.
    chain = [
        min(at for at in chain if inside_counts[at] == held)
        for held in sorted({int(inside_counts[at]) for at in chain} - {0})
    ]
    return tuple(Shape(int(texts[at]), int(mels[at])) for at in sorted({*chain, len(costs) - 1}))


def auto_buckets(limits: LimitsConfig, tokens: ArrayLike, frames: ArrayLike) -> tuple[Bucket, ...]:
    """Return the pairs of `data.buckets: auto` for clips of these lengths, the limits last."""
    largest = Shape(limits.max_text_length, limits.max_mel_frames)
    shapes = auto_shapes(largest, np.array(tokens, np.int64), np.array(frames, np.int64))
    return tuple((shape.max_text_length, shape.max_mel_frames) for shape in shapes)


def auto_shapes(largest: Shape, tokens: np.ndarray, frames: np.ndarray) -> tuple[Shape, ...]:
    """Return up to AUTO_SHAPES shapes by `best_shapes`, each with at least MIN_SHAPE_CLIPS clips.

    More shapes are compiled only if they save LEAST_SAVING of the positions.
    """
    chosen = plan_shapes([largest], tokens, frames)
    if chosen.kept < MIN_SHAPE_CLIPS:
        return chosen.shapes
    for count in range(2, AUTO_SHAPES + 1):
        plan = plan_shapes(best_shapes(largest, count, tokens, frames, MIN_SHAPE_CLIPS), tokens, frames)
        # All plans have the same real positions, so their padded ones are inverse to 1 - waste.
        if 1 - chosen.waste <= (1 - LEAST_SAVING) * (1 - plan.waste):
            chosen = plan
    return chosen.shapes


def _is_enough(counts: np.ndarray, min_clips: int) -> np.ndarray:
    enough: np.ndarray = (counts == 0) | (counts >= min_clips)
    return enough


def _grid(
    tokens: np.ndarray, frames: np.ndarray, largest: Shape | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return candidate lengths, ascending, and the clips that fit each pair: [texts], [mels], [texts, mels]."""
    text_levels = _levels(tokens, TOKENS_MULTIPLE, largest.max_text_length if largest else None)
    mel_levels = _levels(frames, FRAMES_MULTIPLE, largest.max_mel_frames if largest else None)
    counts = np.zeros((len(text_levels), len(mel_levels)), np.int64)
    np.add.at(counts, (np.searchsorted(text_levels, tokens), np.searchsorted(mel_levels, frames)), 1)
    return text_levels, mel_levels, counts.cumsum(axis=0).cumsum(axis=1)


def _levels(lengths: np.ndarray, multiple: int, last: int | None) -> np.ndarray:
    """Return lengths that divide the clips evenly, rounded up to multiples, finer for the long ones."""
    shares = np.concatenate([np.linspace(0, 0.9, _LEVELS // 2), np.linspace(0.9, 1.0, _LEVELS // 2)])
    lengths_at = np.quantile(lengths, shares, method="inverted_cdf")
    levels = np.unique(-(-lengths_at.astype(np.int64) // multiple) * multiple)
    if last is None:
        return levels
    return np.append(levels[levels < last], last)

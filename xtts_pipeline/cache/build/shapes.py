"""Which static shapes fit a corpus: what a pair of limits keeps, what it wastes on padding, and the best few shapes.

Pure arithmetic on lengths. A shape is (max_text_length, max_mel_frames); its cost is their sum, for an encoder works on every token
and a decoder on every frame, padding or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROUND_TO = 8  # sizes that vector units and tensor cores like
KEEP_SHARE = 0.99
AUTO_SHAPES = 3
MIN_SHAPE_CLIPS = 128  # fewer would hardly fill a batch, and clips of a shape that fills none are never trained
_LEVELS = 40  # lengths that are tried for each side of a shape
_IMPOSSIBLE = np.iinfo(np.int64).max // 16  # a cost; a few of them added up do not overflow


@dataclass(frozen=True, order=True)
class Shape:
    """A pair of limits."""

    max_text_length: int
    max_mel_frames: int

    @property
    def positions(self) -> int:
        """How many tokens and frames a record of this shape has, padding included."""
        return self.max_text_length + self.max_mel_frames


@dataclass(frozen=True)
class ShapePlan:
    """One or more shapes, each inside the next; a clip goes to the first that it fits.

    `kept` clips fit the largest; `waste` is the share of all their tokens and frames that is padding, `wastes` that of each shape's.
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
    """Return what shapes, each inside the next, keep and waste for clips of these lengths."""
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
    """Return at most `count` nested shapes, the last of them `largest`, that need the fewest padded positions in all.

    Each holds at least `min_clips`, a number that fits the largest; only the largest may hold none, where all clips are short.
    Dynamic programming over chains of shapes: the clips of a shape are those that fit it and not the one inside it.
    """
    fits = (tokens <= largest.max_text_length) & (frames <= largest.max_mel_frames)
    text_levels, mel_levels, fitting = _grid(tokens[fits], frames[fits], largest)
    texts, mels = (side.ravel() for side in np.meshgrid(text_levels, mel_levels, indexing="ij"))
    inside_counts, costs = fitting.ravel(), texts + mels
    is_inside = (texts[:, None] <= texts[None, :]) & (mels[:, None] <= mels[None, :])
    # steps[i, j]: what the clips of shape j cost if shape i is the next smaller one.
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
    # A chain may stand still, or go on without a clip, where a further shape saves nothing.
    chain = [
        min(at for at in chain if inside_counts[at] == held)
        for held in sorted({int(inside_counts[at]) for at in chain} - {0})
    ]
    return tuple(Shape(int(texts[at]), int(mels[at])) for at in sorted({*chain, len(costs) - 1}))


def auto_shapes(largest: Shape, tokens: np.ndarray, frames: np.ndarray) -> tuple[Shape, ...]:
    """Return up to AUTO_SHAPES shapes as `best_shapes` does, none of which holds only a few clips."""
    if plan_shapes([largest], tokens, frames).kept < MIN_SHAPE_CLIPS:
        return (largest,)
    return best_shapes(largest, AUTO_SHAPES, tokens, frames, MIN_SHAPE_CLIPS)


def _is_enough(counts: np.ndarray, min_clips: int) -> np.ndarray:
    enough: np.ndarray = (counts == 0) | (counts >= min_clips)
    return enough


def _grid(
    tokens: np.ndarray, frames: np.ndarray, largest: Shape | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return candidate lengths of both sides, ascending, and how many clips fit each pair: [texts], [mels], [texts, mels]."""
    text_levels = _levels(tokens, largest.max_text_length if largest else None)
    mel_levels = _levels(frames, largest.max_mel_frames if largest else None)
    counts = np.zeros((len(text_levels), len(mel_levels)), np.int64)
    np.add.at(counts, (np.searchsorted(text_levels, tokens), np.searchsorted(mel_levels, frames)), 1)
    return text_levels, mel_levels, counts.cumsum(axis=0).cumsum(axis=1)


def _levels(lengths: np.ndarray, last: int | None) -> np.ndarray:
    """Return lengths that part the clips evenly, rounded up, and finer towards the long ones."""
    shares = np.concatenate([np.linspace(0, 0.9, _LEVELS // 2), np.linspace(0.9, 1.0, _LEVELS // 2)])
    lengths_at = np.quantile(lengths, shares, method="inverted_cdf")
    levels = np.unique(-(-lengths_at.astype(np.int64) // ROUND_TO) * ROUND_TO)
    if last is None:
        return levels
    return np.append(levels[levels < last], last)

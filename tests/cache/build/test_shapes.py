"""Static shapes for a corpus, compared with brute force."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.cache.build.shapes import Shape, auto_shapes, best_shapes, plan_shapes, smallest_shape

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=25)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    tokens, frames = zip(*pairs, strict=True)
    return np.array(tokens), np.array(frames)


def test_a_plan_counts_every_clip_once_and_its_padding() -> None:
    tokens, frames = np.array([2, 4, 9, 20]), np.array([10, 20, 40, 10])

    plan = plan_shapes([Shape(4, 20), Shape(10, 40)], tokens, frames)

    assert plan.clips == (2, 1)
    assert plan.kept == 3
    assert plan.waste == pytest.approx(1 - (12 + 24 + 49) / (24 + 24 + 50))


def test_the_smallest_shape_keeps_enough_and_drops_the_outlier() -> None:
    tokens, frames = np.append(np.full(199, 50), 60), np.append(np.full(199, 300), 9_000)

    assert smallest_shape(tokens, frames) == Shape(56, 304)
    assert smallest_shape(tokens, frames, keep_share=1.0) == Shape(64, 9_008)


@settings(max_examples=30, deadline=None)
@given(lengths, st.integers(1, 4))
def test_the_best_shapes_are_no_worse_than_any_chain_of_multiples_of_8_and_16(
    pairs: list[tuple[int, int]], count: int
) -> None:
    tokens, frames = arrays(pairs)
    largest = smallest_shape(tokens, frames, keep_share=1.0)

    chain = best_shapes(largest, count, tokens, frames)

    assert chain[-1] == largest
    assert len(chain) <= count
    best = min(plan_shapes(other, tokens, frames).waste for other in chains(largest, min(count, 2)))
    assert plan_shapes(chain, tokens, frames).waste <= best + 1e-12


def chains(largest: Shape, count: int) -> list[list[Shape]]:
    """Return every chain of at most `count` (1 or 2) nested shapes that ends in the largest."""
    smaller = [
        Shape(*sides)
        for sides in product(range(8, largest.max_text_length + 1, 8), range(16, largest.max_mel_frames + 1, 16))
    ]
    return [
        [largest],
        *([shape, largest] for shapes in combinations(smaller, 1) for shape in shapes if count > 1 and shape < largest),
    ]


@settings(max_examples=30, deadline=None)
@given(lengths)
def test_more_shapes_never_waste_more(pairs: list[tuple[int, int]]) -> None:
    tokens, frames = arrays(pairs)
    largest = smallest_shape(tokens, frames)

    wastes = [plan_shapes(best_shapes(largest, count, tokens, frames), tokens, frames).waste for count in range(1, 5)]

    assert wastes == sorted(wastes, reverse=True)


@settings(max_examples=30, deadline=None)
@given(lengths, st.integers(1, 4), st.integers(1, 12))
def test_no_shape_holds_only_a_few_clips(pairs: list[tuple[int, int]], count: int, min_clips: int) -> None:
    tokens, frames = arrays(pairs * 2)
    largest = Shape(48, 64)

    chain = best_shapes(largest, count, tokens, frames, min(min_clips, len(tokens)))

    assert chain[-1] == largest
    *inner, last = plan_shapes(chain, tokens, frames).clips
    assert min([last or len(tokens), *inner]) >= min(min_clips, len(tokens))


def test_auto_divides_many_clips_and_keeps_few_in_one_shape() -> None:
    chance = np.random.default_rng(0)
    tokens = chance.integers(10, 100, 2_000)
    frames = 4 * tokens
    largest = Shape(200, 880)

    chain = auto_shapes(largest, tokens, frames)

    assert len(chain) == 3
    assert chain[-1] == largest
    assert plan_shapes(chain, tokens, frames).waste < 0.7 * plan_shapes([Shape(104, 400)], tokens, frames).waste
    assert auto_shapes(largest, tokens[:100], frames[:100]) == (largest,)
    assert auto_shapes(Shape(5, 5), tokens, frames) == (Shape(5, 5),)


def test_auto_adds_no_shape_that_saves_little() -> None:
    tokens, frames = np.full(2_000, 200), np.repeat([400, 840, 880], [1_000, 500, 500])

    assert auto_shapes(Shape(200, 880), tokens[1_000:], frames[1_000:]) == (Shape(200, 880),)
    assert auto_shapes(Shape(200, 880), tokens, frames) == (Shape(200, 400), Shape(200, 880))


def test_each_shapes_own_padding_adds_up_to_that_of_all() -> None:
    tokens, frames = np.array([2, 4, 9]), np.array([10, 20, 40])

    plan = plan_shapes([Shape(4, 20), Shape(6, 30), Shape(10, 40)], tokens, frames)

    assert plan.wastes == (pytest.approx(1 - 36 / 48), 0.0, pytest.approx(1 - 49 / 50))
    assert [shape["padding_waste"] for shape in plan.to_json()["shapes"]] == [0.25, 0.0, 0.02]

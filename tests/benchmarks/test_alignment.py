import numpy as np
import pytest

from benchmarks.alignment import compare

# " ˈab c" with tokens of 2, 1, 3, 2, 4 and 3 frames: they begin at 0, 2, 3, 6, 8 and 12.
SYMBOLS, DURATIONS = [" ", "ˈ", "a", "b", " ", "c"], np.array([2.0, 1.0, 3.0, 2.0, 4.0, 3.0])


def test_a_phoneme_may_begin_anywhere_within_what_separates_it_from_the_one_before() -> None:
    # "a" may begin from 0 to 3, "b" at 6, "c" from 8 to 12.
    assert compare(SYMBOLS, DURATIONS, [("a", 1.5), ("b", 4.0), ("c", 13.0)]) == [
        (1.5, 0, 3),
        (4.0, 6, 6),
        (13.0, 8, 12),
    ]
    assert compare(SYMBOLS, DURATIONS, [("ab", 5.0), ("c", 10.0)]) == [(5.0, 0, 3), (10.0, 8, 12)]


@pytest.mark.parametrize("names", ["ax", "ab", "abcd", "c"])
def test_other_phonemes_are_not_compared(names: str) -> None:
    assert compare(SYMBOLS, DURATIONS, [(name, 0.0) for name in names]) == []

import numpy as np
import pytest

from benchmarks.alignment import frames_off

# " ˈab c" with tokens of 2, 1, 3, 2, 4 and 3 frames: they begin at 0, 2, 3, 6, 8 and 12.
SYMBOLS, DURATIONS = [" ", "ˈ", "a", "b", " ", "c"], np.array([2.0, 1.0, 3.0, 2.0, 4.0, 3.0])


def test_a_phoneme_may_begin_anywhere_within_what_separates_it_from_the_one_before() -> None:
    # "a" may begin from 0 to 3, "b" at 6, "c" from 8 to 12.
    assert frames_off(SYMBOLS, DURATIONS, [("a", 1.5), ("b", 4.0), ("c", 13.0)]) == pytest.approx([0.0, -2.0, 1.0])
    assert frames_off(SYMBOLS, DURATIONS, [("ab", 5.0), ("c", 10.0)]) == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize("names", ["ax", "abcd", "c"])
def test_other_phonemes_are_not_compared(names: str) -> None:
    assert frames_off(SYMBOLS, DURATIONS, [(name, 0.0) for name in names]) == []

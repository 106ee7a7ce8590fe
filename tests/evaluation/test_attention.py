"""Skipped and repeated tokens on made-up attention."""

import numpy as np
import pytest

from xtts_pipeline.evaluation.attention import repeated_tokens, skipped_tokens, sounding_mask

TEXT = ("<begin>", *"one two three.", "<end>")
SOUNDING = sounding_mask(TEXT)


def attend(path: list[int], weight: float = 1.0) -> np.ndarray:
    """Return attention whose focus walks the path with one weight; what is left lies on the token before each."""
    attention = np.zeros((len(path), len(TEXT)))
    attention[np.arange(len(path)), path] = weight
    attention[np.arange(len(path)), np.maximum(np.array(path) - 1, 0)] += 1 - weight
    return attention


WALK = [step for token in range(len(TEXT)) for step in (token, token)]


def test_letters_and_phonemes_sound_and_marks_do_not():
    symbols = ("<begin>", "a", "ə", "۵", "س", " ", "␣", ",", "ˈ", "ː", "ʲ", "\u0303", "<blank>", "<end>")

    assert [symbol for symbol, sounds in zip(symbols, sounding_mask(symbols), strict=True) if sounds] == [
        "a",
        "ə",
        "۵",
        "س",
    ]


def test_a_walk_along_the_text_skips_and_repeats_nothing():
    for weight in (1.0, 0.6):
        assert skipped_tokens(attend(WALK, weight), SOUNDING).tolist() == []
        assert repeated_tokens(attend(WALK, weight), SOUNDING).tolist() == []


def test_a_word_that_is_left_out_is_skipped():
    assert TEXT[5:8] == ("t", "w", "o")
    walk = [token for token in WALK if token not in {5, 6, 7}]

    assert skipped_tokens(attend(walk), SOUNDING).tolist() == [5, 6, 7]


def test_a_text_cut_short_skips_its_end():
    assert skipped_tokens(attend([0, 1, 2, 3, 4, 5, 6, 7]), SOUNDING).tolist() == [9, 10, 11, 12, 13]


def test_a_token_beside_the_focus_is_not_skipped_while_it_gets_a_tenth_of_a_step():
    walk = [token for token in range(len(TEXT)) if token != 5]  # the step on token 6 leaves its rest to token 5

    assert skipped_tokens(attend(walk, 0.85), SOUNDING).tolist() == []
    assert skipped_tokens(attend(walk, 0.95), SOUNDING).tolist() == [5]


def test_a_space_or_mark_without_attention_is_not_skipped():
    walk = [token for token in WALK if token not in {4, 8, 14}]

    assert skipped_tokens(attend(walk), SOUNDING).tolist() == []


def test_a_word_said_twice_is_repeated():
    walk = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]

    # `o` at 7 was the furthest sounding token: it was never left behind.
    assert repeated_tokens(attend(walk), SOUNDING).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("further", "repeated"), [(3, []), (4, [9])])
def test_looking_ahead_by_three_tokens_is_no_repetition(further: int, repeated: list[int]):
    assert repeated_tokens(attend([7, 9, 9 + further, 9, 13]), SOUNDING).tolist() == repeated


def test_attention_that_rests_on_a_mark_repeats_nothing():
    assert repeated_tokens(attend([1, 2, 3, 14, 15, 1, 2, 3, 5, 6, 7, 0, 9]), SOUNDING).tolist() == []


def test_attention_on_silence_alone_repeats_nothing_and_skips_all():
    attention = attend([0, 0, 15])

    assert repeated_tokens(attention, SOUNDING).tolist() == []
    assert len(skipped_tokens(attention, SOUNDING)) == SOUNDING.sum()

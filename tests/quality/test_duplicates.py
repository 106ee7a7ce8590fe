"""Which texts and sounds count as the same."""

import numpy as np

from xtts_pipeline.quality.duplicates import find_duplicates


def cepstra(seed: int, steps: int = 90) -> np.ndarray:
    """Return cepstra that change as slowly as those of speech."""
    noise = np.random.default_rng(seed).normal(0, 1, (steps + 9, 13))
    return np.stack([np.convolve(column, np.ones(10) / 10, mode="valid") for column in noise.T], axis=1)


def groups(texts: list[str], sounds: list[np.ndarray]) -> list[tuple[str, tuple[int, ...]]]:
    return [(group.kind, group.clips) for group in find_duplicates(texts, sounds)]


def test_case_and_punctuation_make_no_other_text():
    texts = ["Now, or never!", "now or NEVER", "Something else."]

    assert groups(texts, [cepstra(number) for number in range(3)]) == [("text", (0, 1))]


def test_vowel_signs_are_part_of_a_word_and_texts_without_words_are_not_alike():
    texts = ["कि वह घर", "की वह घर", "कु वह घर", "कि वह, घर!", "...", "?!"]

    assert groups(texts, [cepstra(number) for number in range(6)]) == [("text", (0, 3))]


def test_a_text_with_one_other_word_is_nearly_the_same():
    texts = [
        "the old clock in the hall stopped at nine in the evening",
        "the old clock in the hall stopped at ten in the evening",
        "the old clock in the hall was sold to a man from the south",
    ]

    assert groups(texts, [cepstra(number) for number in range(3)]) == [("near text", (0, 1))]


def test_a_sound_is_found_again_at_another_level_and_with_another_text():
    louder = cepstra(0) + 3.0  # the level of all frames

    assert groups(["one", "two", "three"], [cepstra(0), cepstra(1), louder]) == [("sound", (0, 2))]


def test_a_pair_of_the_same_sound_is_not_counted_as_a_text_too():
    assert groups(["one", "one"], [cepstra(0), cepstra(0)]) == [("sound", (0, 1))]


def test_many_copies_are_one_group():
    texts = ["the same"] * 5

    assert groups(texts, [cepstra(number) for number in range(5)]) == [("text", (0, 1, 2, 3, 4))]

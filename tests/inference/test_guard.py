"""Faults planted into speech of which each token has its own frame, with noise: all are found, and no good word is."""

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.inference.guard import (
    NO_FAULTS,
    Faults,
    PlannedSpeech,
    _smoothed,
    lengthen_words,
    likeliest_path,
    planned_faults,
    spoken_faults,
)
from xtts_pipeline.model.aligner import smoothed

FRAME_SECONDS = 0.0116
# Begin, four words of three tokens with a space between, end.
WORDS = [(1, 3), (5, 7), (9, 11), (13, 15)]
TOKENS = 17


def plan_with(frames: float = 5.0, **others: float) -> PlannedSpeech:
    """Return a plan of tokens with `frames` each, other numbers for single tokens by name `t5`."""
    duration = np.full(TOKENS, frames)
    for token, other in others.items():
        duration[int(token[1:])] = other
    mean_frame = np.random.default_rng(0).normal(size=(TOKENS, 20)).astype(np.float32)
    return PlannedSpeech(duration * FRAME_SECONDS, mean_frame, WORDS, [3] * len(WORDS))


def speak(plan: PlannedSpeech) -> np.ndarray:
    frames = np.repeat(plan.mean_frame, np.round(plan.seconds / FRAME_SECONDS).astype(int), axis=0)
    return frames + 0.3 * np.random.default_rng(1).normal(size=frames.shape)


def test_good_speech_has_no_faults_at_any_speed():
    plan = plan_with()
    mel = speak(plan)
    assert spoken_faults(plan, mel, FRAME_SECONDS) == NO_FAULTS
    assert spoken_faults(plan, np.repeat(mel, 2, axis=0), FRAME_SECONDS, speed=0.5) == NO_FAULTS
    # At this speed a token lasts one frame or two.
    assert spoken_faults(plan, mel[::3], FRAME_SECONDS, speed=3.0) == NO_FAULTS


def test_blanks_between_the_letters_of_a_word_need_no_time_of_their_own():
    word, mean_frame = ["t", "<blank>", "h", "<blank>", "a", "<blank>", "t"], np.zeros((7, 20))
    plain = PlannedSpeech.of(np.full(4, 0.1 / 4), mean_frame[:4], list("that"))
    blank = PlannedSpeech.of(np.full(7, 0.1 / 7), mean_frame, word)
    assert (plain.words, plain.letters) == ([(0, 3)], [4])
    assert (blank.words, blank.letters) == ([(0, 6)], [4])
    assert planned_faults(plain) == planned_faults(blank) == NO_FAULTS
    assert planned_faults(blank._replace(seconds=blank.seconds / 2)) == Faults(skipped_words=1)
    for plan in (plain, blank):
        assert lengthen_words(plan).seconds.sum() == pytest.approx(0.12)


def test_words_whose_durations_are_no_numbers_are_skipped_ones():
    assert planned_faults(plan_with(t5=np.nan)) == Faults(skipped_words=1)


@pytest.mark.parametrize("word", range(len(WORDS)))
def test_a_word_that_is_cut_out_silenced_or_said_twice_is_found(word: int):
    plan = plan_with()
    mel = speak(plan)
    first, last = WORDS[word][0] * 5, (WORDS[word][1] + 1) * 5
    silenced = mel.copy()
    silenced[first:last] = -4.0
    twice = np.concatenate([mel[:last], mel[first:]])
    assert spoken_faults(plan, np.concatenate([mel[:first], mel[last:]]), FRAME_SECONDS) == Faults(skipped_words=1)
    assert spoken_faults(plan, silenced, FRAME_SECONDS).skipped_words >= 1
    assert spoken_faults(plan, twice, FRAME_SECONDS).repeated_words == 1


def test_a_pause_before_a_word_is_no_fault_and_silence_in_place_of_its_end_is():
    plan = plan_with(t5=15)
    mel, first = speak(plan), 25
    paused, unfinished = mel.copy(), mel.copy()
    paused[first : first + 12] = -4.0
    unfinished[first + 15 : first + 25] = -4.0
    assert spoken_faults(plan, paused, FRAME_SECONDS) == NO_FAULTS
    assert spoken_faults(plan, unfinished, FRAME_SECONDS) == Faults(skipped_words=1)


def test_a_word_replaced_by_others_or_by_noise_is_found():
    plan = plan_with()
    mel, draw = speak(plan), np.random.default_rng(2)
    for other in (mel[45:60], draw.normal(size=(15, 20))):
        replaced = np.concatenate([mel[:25], other, mel[40:]])
        assert spoken_faults(plan, replaced, FRAME_SECONDS).skipped_words >= 1


def test_a_word_is_judged_by_the_other_words_where_all_are_far_from_their_means():
    plan, draw = plan_with(), np.random.default_rng(4)
    # Chance as in real speech: larger errors than ALIGNER_LARGEST_ERROR would count as equal.
    plan = plan._replace(mean_frame=0.35 * plan.mean_frame)
    offset_SM = np.sqrt(plan.mean_frame.var(axis=0).mean()) * draw.choice([-1.0, 1.0], size=plan.mean_frame.shape)

    def speak_with(error_of_words: list[float]) -> np.ndarray:
        error_S = np.repeat([0.1, *error_of_words], [1, 4, 4, 4, 4])
        return np.repeat(plan.mean_frame + offset_SM * np.sqrt(error_S)[:, None], 5, axis=0)

    assert spoken_faults(plan, speak_with([0.1, 0.1, 0.8, 0.1]), FRAME_SECONDS) == Faults(skipped_words=1)
    mel = speak_with([0.4, 0.4, 0.8, 0.4])
    assert spoken_faults(plan, mel, FRAME_SECONDS) == NO_FAULTS
    mel[25:40] = -4.0
    assert spoken_faults(plan, mel, FRAME_SECONDS).skipped_words >= 1
    # A word does not excuse itself.
    alone = plan._replace(words=WORDS[2:3], letters=[3])
    assert spoken_faults(alone, speak_with([0.1, 0.1, 0.8, 0.1]), FRAME_SECONDS) == Faults(skipped_words=1)
    # All may be wrong.
    assert spoken_faults(plan, speak_with([1.6, 1.6, 1.6, 1.6]), FRAME_SECONDS).skipped_words >= 1


@pytest.mark.parametrize("frames", [1, 5, 30])
def test_frames_are_smoothed_as_by_the_aligner(frames: int):
    mel = np.random.default_rng(3).normal(size=(frames, 20)).astype(np.float32)
    expected = smoothed(tf.constant(mel[None]), tf.constant([frames]))[0]
    np.testing.assert_allclose(_smoothed(mel), expected, atol=1e-6)


def test_durations_alone_show_a_word_without_time_and_a_token_without_end():
    assert planned_faults(plan_with()) == NO_FAULTS
    assert planned_faults(plan_with(t5=1, t6=1, t7=1)) == Faults(skipped_words=1)
    assert planned_faults(plan_with(t6=100)) == Faults(overlong_tokens=1)
    # A pause may last longer than a sound.
    assert planned_faults(plan_with(t8=100)) == NO_FAULTS
    assert planned_faults(plan_with(t8=300)) == Faults(overlong_tokens=1)


@pytest.mark.parametrize(("letter_seconds", "skipped"), [(0.0149, 1), (0.0151, 0)])
def test_a_word_under_15_ms_a_letter_is_skipped(letter_seconds: float, skipped: int):
    plan = plan_with(**dict.fromkeys(("t5", "t6", "t7"), letter_seconds / FRAME_SECONDS))
    assert planned_faults(plan) == Faults(skipped_words=skipped)


@pytest.mark.parametrize(
    ("frames", "faults"),
    [(34, Faults(skipped_words=1)), (37, NO_FAULTS), (94, NO_FAULTS), (98, Faults(repeated_words=1))],
)
def test_a_word_is_skipped_under_60_percent_of_its_planned_frames_and_repeated_over_160(frames: int, faults: Faults):
    plan = plan_with(frames=20)
    mel = speak(plan)
    first, last = 5 * 20, 8 * 20
    word = mel[np.linspace(first, last - 1, frames).astype(int)]
    assert spoken_faults(plan, np.concatenate([mel[:first], word, mel[last:]]), FRAME_SECONDS) == faults


def test_a_word_without_time_gets_the_least_that_a_word_needs_and_no_other_token_changes():
    plan = plan_with(t5=1, t6=1, t7=1.5)
    longer = lengthen_words(plan)
    np.testing.assert_allclose(longer.seconds[5:8], [0.09 / 3.5, 0.09 / 3.5, 0.09 * 1.5 / 3.5])
    np.testing.assert_array_equal(np.delete(longer.seconds, [5, 6, 7]), np.delete(plan.seconds, [5, 6, 7]))
    assert planned_faults(plan) == Faults(skipped_words=1)
    assert planned_faults(longer) == NO_FAULTS
    assert plan.seconds[5] == FRAME_SECONDS


def test_speech_shorter_than_its_tokens_is_judged_by_its_plan():
    plan = plan_with(t5=1, t6=1, t7=1)
    assert spoken_faults(plan, speak(plan)[:10], FRAME_SECONDS) == planned_faults(plan)


def test_the_path_has_the_least_error_and_visits_each_token():
    error = np.array([[0.0, 9, 9], [1, 2, 9], [9, 1, 2], [9, 0, 1], [9, 9, 1]])
    np.testing.assert_array_equal(likeliest_path(error), [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(likeliest_path(np.zeros((3, 3))), [0, 1, 2])

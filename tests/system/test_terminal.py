"""Durations as people write them, and lines that fit the terminal."""

import io

import pytest

from xtts_pipeline.system.terminal import columns_of, counted, duration_text, fold


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (119.7, "2 min"),
        (200, "3 min 20 s"),
        (3_599.9, "1 h"),
        (36_805, "10 h 13 min"),
        (86_399, "1 d"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str):
    assert duration_text(seconds) == text


def test_a_duration_under_a_minute_may_have_decimals():
    assert [duration_text(seconds, 1) for seconds in (2.94, 59.94, 59.96, 75.2)] == [
        "2.9 s",
        "59.9 s",
        "1 min",
        "1 min 15 s",
    ]


def test_a_line_is_folded_between_words_where_its_value_starts():
    line = "start          37.3 s (import 5.8, build 1.8, trace 3.9, compile 24.5, run 1.3)"

    assert fold(f"short\n{line}", 60) == (
        "short\nstart          37.3 s (import 5.8, build 1.8, trace 3.9,\n               compile 24.5, run 1.3)"
    )
    assert fold("one two three", 9) == "one two\n  three"
    assert fold("a/path/that/is/long", 9) == "a/path/that/is/long"
    assert fold("| a table | row |", 9) == "| a table | row |"


def test_lines_of_a_log_stay_whole():
    assert columns_of(io.StringIO()) is None
    assert fold(100 * "word ", None) == 100 * "word "


def test_a_noun_has_the_number_of_its_count() -> None:
    assert [counted(count, "training record") for count in (0, 1, 2)] == [
        "0 training records",
        "1 training record",
        "2 training records",
    ]

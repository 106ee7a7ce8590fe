"""German, French and Spanish leave no figure unread, whatever the text holds."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.languages.sentences import assert_no_figure_is_left
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.languages.reading import roman_value
from xtts_pipeline.text.normalize import normalize

LANGUAGES = ["de", "fr", "es"]


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(alphabet="0123456789.,:;/-%€$£§#+=½°º²XIVxhekmrtsg' \"MSAalbnü()", min_size=1, max_size=24),
    language=st.sampled_from(LANGUAGES),
)
def test_no_figure_is_left_and_reading_twice_changes_nothing_more(text: str, language: str) -> None:
    assert_no_figure_is_left(text, language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "piece", [" 111", ".1", ".111", "'111", ",1", "1", "-1", ":11", "/2", "1. ", " XIV.", "€ 1 - "]
)
def test_long_texts_take_no_long_time(piece: str, language: str) -> None:
    start = time.thread_time()
    normalize("1" + piece * 4_000, TextConfig(), language)
    assert time.thread_time() - start < 2.0


def test_roman_numerals_have_their_values() -> None:
    numerals = {"I": 1, "IV": 4, "IX": 9, "XIV": 14, "XL": 40, "XLIX": 49, "LXXXVIII": 88}
    assert {numeral: roman_value(numeral) for numeral in numerals} == numerals

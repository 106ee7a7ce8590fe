"""German, French and Spanish leave no figure unread, whatever the text holds."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.languages.sentences import assert_no_figure_is_left
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.languages.french import French
from xtts_pipeline.text.languages.german import German
from xtts_pipeline.text.languages.reading import roman_value
from xtts_pipeline.text.languages.spanish import Spanish
from xtts_pipeline.text.normalize import normalize

LANGUAGES = ["de", "fr", "es"]


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(alphabet="0123456789.,:;/-%€$£¥§#+=½°º²⁶⁻XIVxchekmrtsg' \"CHFMSAalbnü()", min_size=1, max_size=24),
    language=st.sampled_from(LANGUAGES),
)
def test_no_figure_is_left_and_reading_twice_changes_nothing_more(text: str, language: str) -> None:
    assert_no_figure_is_left(text, language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "piece",
    [
        " 111",
        ".1",
        ".111",
        "'111",
        ",1",
        "1",
        "-1",
        ":11",
        "/2",
        "1. ",
        " XIV.",
        "€ 1 - ",
        "⁶",
        "1:1",
        "-11",
        " m2",
        " 1º",
        "1-A-",
        " ½",
    ],
)
def test_long_texts_take_no_long_time(piece: str, language: str) -> None:
    start = time.thread_time()
    normalize("1" + piece * 4_000, TextConfig(), language)
    assert time.thread_time() - start < 2.0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_range_to_more_digits_than_python_converts_is_read(language: str) -> None:
    assert not any(map(str.isdecimal, normalize("1-" + "1" * 5000, TextConfig(), language)))


@pytest.mark.parametrize("language", LANGUAGES)
def test_sums_in_each_currency_are_read_with_any_number_of_decimals(language: str) -> None:
    reading = {"de": German, "fr": French, "es": Spanish}[language]()
    for currency, noun in reading.words.currencies.items():
        for decimals in ("", ",5", ",50", ",250", ",2500"):
            first, after = f"{currency} 1{decimals}", f"1{decimals} {currency}"
            for written in (after, f"1{decimals}-2{decimals} {currency}", *([] if currency.islower() else [first])):
                said = normalize(written, TextConfig(), language)
                assert noun.one.lower() in said or noun.many.lower() in said, written


def test_roman_numerals_have_their_values() -> None:
    numerals = {"I": 1, "IV": 4, "IX": 9, "XIV": 14, "XL": 40, "XLIX": 49, "LXXXVIII": 88}
    assert {numeral: roman_value(numeral) for numeral in numerals} == numerals

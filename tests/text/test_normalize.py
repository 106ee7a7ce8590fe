"""Normalised text has one plain form for each way to write it."""

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.normalize import REMOVED_CATEGORIES, normalize

AS_WRITTEN = TextConfig(lowercase=False, expand=False)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  two\t\nlines\u00a0here  ", "two lines here"),
        ("\u201cquoted\u201d \u2018so\u2019 \u00aband\u00bb", '"quoted" \'so\' "and"'),
        ("a \u2013 b\u2014c\u2026", "a - b-c..."),
        ("cafe\u0301", "caf\u00e9"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("\u202egnol\u202c left", "gnol left"),
        ("be\x07ll\x00", "bell"),
        ("e\u200b\u0301", "\u00e9"),
        ("\u037ewhy\u037e", ";why;"),
    ],
)
def test_spaces_marks_and_invisible_characters_have_one_form(text: str, plain: str) -> None:
    assert normalize(text, AS_WRITTEN, "en") == plain


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Dr. Smith of Longman and Co.", "doctor smith of longman and company."),
        ("The disco. It was.", "the disco. it was."),
        ("St. Paul lives in Oxford St. now", "saint paul lives in oxford street now"),
        ("No. 5 and nos. 6", "number five and numbers six"),
        ("No. Not now.", "no. not now."),
        ("in 1984, 1900 and 2005", "in nineteen eighty-four, nineteen hundred and two thousand and five"),
        ("the 1960s and the 20s", "the nineteen sixties and the twenties"),
        ("1st 22nd 103rd", "first twenty-second one hundred and third"),
        ("$3.50", "three dollars and fifty cents"),
        ("$1 or \u00a31", "one dollar or one pound"),
        ("$0.01 and \u00a30.02", "one cent and two pence"),
        ("\u20ac2.5 million", "two point five million euros"),
        ("1,234,567", "one million two hundred and thirty-four thousand five hundred and sixty-seven"),
        ("3.14 and .5", "three point one four and zero point five"),
        ("at 10:05, 10:00 and 15:30", "at ten oh five, ten o'clock and fifteen thirty"),
        ("5% of R&D, or 6%.", "five percent of r and d, or six percent."),
        ("US$5, $3m and $2bn", "us five dollars, three million dollars and two billion dollars"),
        ("5 ft. tall, a.5", "five feet tall, a zero point five"),
        ("Longman & Co., etc., etc.", "longman and company, et cetera, et cetera."),
        ("-5 and a-b", "minus five and a-b"),
        ("007 is B2B v1.2.3", "zero zero seven is b two b v one point two point three"),
        (
            "at 9:00am, 5:30 PM and 6:05 a.m. Then 9 p.m.",
            "at nine a m, five thirty p m and six oh five a m. then nine p m.",
        ),
        ("by 6:00 a.m. on 3am", "by six a m on three a m"),
        ("Pears, etc. Then we left Acme Inc. today", "pears, et cetera. then we left acme incorporated today"),
        (
            "call 555-1234 or 212-555-1234.",
            "call five five five, one two three four or two one two, five five five, one two three four.",
        ),
        (
            "1/2, 3 3/4 and 2/3 of \u00bd or 2\u00bd",
            "one half, three and three quarters and two thirds of one half or two and one half",
        ),
        (
            "98.6\u00b0F, -5 \u00b0C, 90\u00b0 and 99\u00a2",
            (
                "ninety-eight point six degrees fahrenheit, minus five degrees celsius, "
                "ninety degrees and ninety-nine cents"
            ),
        ),
        ("$.50 a cup", "fifty cents a cup"),
        ("\u0661\u0662 men", "twelve men"),
        ("1" * 20, " ".join(["one"] * 20)),
    ],
)
def test_english_figures_and_abbreviations_are_spelled_out(text: str, spoken: str) -> None:
    assert normalize(text, TextConfig(), "en-GB") == spoken


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("de", "21 Äpfel, 2.000,5 Straßen", "einundzwanzig äpfel, zweitausend komma fünf straßen"),
        ("ru", "В 5 домах", "в пять домах"),
        ("fa", "کتاب\u200cها \u06f5", "کتاب\u200cها پنج"),
        ("fa", "علي كتاب", "علی کتاب"),
        ("ar", "كت\u0640\u0640اب ج\u064eد", "كتاب ج\u064eد"),
        ("zh", "\u6211\u67093\u4e2a\u82f9\u679c\u3002", "\u6211\u67093\u4e2a\u82f9\u679c\u3002"),
        ("tr", "DI\u015e \u0130\u015e", "d\u0131\u015f i\u015f"),
        ("hi", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0928\u092e\u0938\u094d\u0924\u0947"),
    ],
)  # fmt: skip
def test_other_languages_go_through(language: str, text: str, spoken: str) -> None:
    assert normalize(text, TextConfig(), language) == spoken


def test_joiners_stay_where_they_shape_letters_only() -> None:
    assert (
        normalize("a\u200cb \u200c\u0645\u06cc\u200c\u200c\u0631\u0648\u0645\u200c", AS_WRITTEN, "fa")
        == "ab \u0645\u06cc\u200c\u0631\u0648\u0645"
    )


def test_lowercase_and_expand_can_be_turned_off() -> None:
    assert normalize("Dr. No: 5", AS_WRITTEN, "en") == "Dr. No: 5"


@pytest.mark.parametrize("text", ["", "  ", "...", "\u200b\u202e", "\u0301", "!?"])
def test_a_text_without_words_is_an_error(text: str) -> None:
    with pytest.raises(TextError) as raised:
        normalize(text, TextConfig(), "en")
    assert raised.value.reason == Reason.EMPTY_TEXT


WRITTEN = st.text(
    alphabet=st.one_of(
        st.characters(),
        st.sampled_from("0123456789.,:;$%&-' \u200c\u0645\u06cc\u0301stndrhoCoMr.No$\u00a3\u0130I\u00df"),
    )
)


@settings(max_examples=500, deadline=None)
@given(
    text=WRITTEN,
    language=st.sampled_from(["en", "fa", "de", "tr", "zh", "ru", "xx"]),
    lowercase=st.booleans(),
    expand=st.booleans(),
)
def test_normalising_twice_changes_nothing_more(text: str, language: str, lowercase: bool, expand: bool) -> None:
    config = TextConfig(lowercase=lowercase, expand=expand)
    try:
        once = normalize(text, config, language)
    except TextError:
        return
    assert normalize(once, config, language) == once
    assert unicodedata.is_normalized("NFC", once)
    assert (
        not {unicodedata.category(character) for character in once.replace("\u200c", "").replace("\u200d", "")}
        & REMOVED_CATEGORIES
    )
    if language == "en" and expand:
        assert not any(character.isdecimal() for character in once)


@pytest.mark.parametrize("language", ["en", "fa", "de"])
@pytest.mark.parametrize("figures", [",111", ",1", "1", ".1", "-1", "/2"])
def test_long_figures_take_no_long_time(figures: str, language: str) -> None:
    start = time.thread_time()
    normalize("1" + figures * 8_000, TextConfig(), language)
    assert time.thread_time() - start < 2.0


@settings(max_examples=100, deadline=None)
@given(st.from_regex(r"\A[0-9$.,:%stndrh -]{1,30}\Z"))
def test_english_leaves_no_digit(text: str) -> None:
    try:
        spoken = normalize(text, TextConfig(), "en")
    except TextError:
        return
    assert not any(map(str.isdigit, spoken))

"""English sentences are read as a person reads them."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.languages.sentences import assert_no_figure_is_left, read_table
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

SENTENCES = Path(__file__).with_name("english.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("written", "spoken"), read_table(SENTENCES))
def test_a_sentence_is_read_as_a_person_reads_it(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "en") == spoken


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
        ("CO2 from AT&T, the MP3 of R&D", "c o two from a t and t, the m p three of r and d"),
        ("US$5, $3m and $2bn", "five dollars, three million dollars and two billion dollars"),
        ("5 ft. tall, a.5", "five feet tall, a five"),
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


# Letters, signs and figures that the rules look for, so that they meet in every order.
PIECES = [
    *"0123456789.,:;/-+#%&@=<>'\" ()$\u20ac\u00b0\u00bd\u00b2\u2082xkmsIVXCacefghnoprt",
    "Mr",
    "Henry ",
    " II",
    "WW",
    "w/",
    "St.",
]
PIECES += [
    "e.g",
    "Dec. ",
    "http://",
    "www.",
    ".com",
    " p.m.",
    "km",
    "BC",
    "th",
    "'s",
    "No. ",
    "U.S.",
    "19",
    "20",
    "c/o",
    "#a",
    "mph",
]
PIECES += ["0x", "e-", "^", "[1]", "\u00b9", "Rs.", " - ", "Mon-", "Jr", "vs", "FY", "C$", "V. a", "zip ", "John "]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12), st.booleans())
def test_no_figure_is_left_and_reading_twice_changes_nothing_more(pieces: list[str], lowercase: bool) -> None:
    assert_no_figure_is_left("".join(pieces), "en", TextConfig(lowercase=lowercase))


REPEATED = [
    "1",
    "111 ",
    ".1",
    "-1",
    "1-",
    "/2",
    ":11",
    "$",
    "$1-",
    "a.",
    "a",
    "a@",
    "+a",
    "x1",
    "1x",
    "-",
    "/",
    "#",
    " I",
]
REPEATED += [
    " II",
    "'1",
    "1'",
    " Mr",
    "a-",
    "http://",
    "www.",
    "1/1 ",
    "1 km/",
    "1,",
    "\u00b2",
    "\u00b0",
    "Dec 1-",
    "+1 ",
]
REPEATED += ["ab.1", "ab.", "0xA", "1e-1", "[1]", "\u00b9", "^", "^-1", " x 1", " - $1", "1\u00b01'", "Mon-", "V. a "]
REPEATED += ["I A", "(111 - ", "01 111 ", "John 1:1", "1:11-"]


@pytest.mark.parametrize(("piece", "characters"), [*((piece, 20_000) for piece in REPEATED), ("1", 100_000)])
def test_time_is_linear_in_the_length_of_the_text(piece: str, characters: int) -> None:
    start = time.thread_time()
    normalize("1" + piece * (characters // len(piece)), TextConfig(), "en")
    assert time.thread_time() - start < 2.0  # a quadratic rule takes longer

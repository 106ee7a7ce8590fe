"""Persian is normalised to one spelling, with its numbers in words."""

import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.languages.sentences import assert_no_figure_is_left, read_table
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import TextError
from xtts_pipeline.text.normalize import normalize
from xtts_pipeline.text.symbols import prepare_texts

# What is written, and below it what is said.
SENTENCES = Path(__file__).with_name("persian.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(("written", "spoken"), read_table(SENTENCES))
def test_a_sentence_is_read_as_a_person_reads_it(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "fa") == spoken


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("كتاب‌هاي علي", "کتاب‌های علی"),
        ("«سلام»، خوبي؟ بله؛ خوبم…", '"سلام"، خوبی؟ بله؛ خوبم...'),
        ("خانه‌ی ما، خانۀ ما، خانهٔ ما", "خانهٔ ما، خانهٔ ما، خانهٔ ما"),
        ("خانه‌ای در ده", "خانه‌ای در ده"),
        ("می‌‌رود‌، خوب‌ است", "می‌رود، خوب است"),
        ("ﻻله ﮔﻞ", "لاله گل"),
        ("ســـلام", "سلام"),
        ("ڪتاب ھمه ہمه", "کتاب همه همه"),
        ("۱۳۴۰ ه‍. ش", "هزار و سیصد و چهل هجری شمسی"),
        ("دایرة‌المعارف، دايرةالمعارف، صلاة، سورة", "دایرت‌المعارف، دایرت‌المعارف، صلات، سوره"),
        ("مؤلف، رأی، جزء، لطفاً، علیٰ", "مؤلف، رأی، جزء، لطفاً، علیٰ"),
    ],
)
def test_variants_have_one_spelling(written: str, plain: str) -> None:
    assert normalize(written, TextConfig(), "fa") == plain


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("۲۵ نفر، ٢٥ نفر، 25 نفر", "بیست و پنج نفر، بیست و پنج نفر، بیست و پنج نفر"),
        ("سال۱۴۰۰", "سال هزار و چهارصد"),
        ("۱٬۲۵۰ تومان و 1,250 تومان", "هزار و دویست و پنجاه تومان و هزار و دویست و پنجاه تومان"),
        ("۳٫۰۵ و 3.14", "سه ممیز صفر پنج و سه ممیز چهارده"),
        ("۲۵٪ و ٪۲۵ و 2.5%", "بیست و پنج درصد و بیست و پنج درصد و دو ممیز پنج درصد"),
        ("ساعت ۱۰:۳۰ و ۸:۰۰", "ساعت ده و سی دقیقه و هشت"),
        ("۰۲۱", "صفر دو یک"),
        ("۱۲۳۴۵۶۷۸۹۰۱۲۳۴۵۶", "یک دو سه چهار پنج شش هفت هشت نه صفر یک دو سه چهار پنج شش"),
        ("۱.۲.۳", "یک نقطه دو نقطه سه"),
        ("پایان ۵.", "پایان پنج."),
    ],
)
def test_figures_are_said_in_words(written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), "fa-IR") == spoken


def test_without_expanding_figures_have_one_form_of_digits() -> None:
    assert normalize("سال ١٤٠٠", TextConfig(expand=False), "fa") == "سال ۱۴۰۰"


def test_other_languages_of_the_script_keep_their_own_letters() -> None:
    assert normalize("ھمہ كتاب", TextConfig(), "ur") == "ھمہ کتاب"
    assert normalize("كتاب ٢٪", TextConfig(expand=False), "ar") == "كتاب ٢٪"
    assert normalize("١٠ـ٢٠ كـتاب", TextConfig(expand=False), "ar") == "١٠-٢٠ كتاب"


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="هیيكک\u200c\u200d\u0654\u064e\u0651\u06c0\u06d5٪٫٬۰۱۵٠٥0159.,:%، آaﻻ", min_size=1, max_size=24)
)
def test_normalising_twice_changes_nothing_more_and_leaves_no_digit(text: str) -> None:
    try:
        once = normalize(text, TextConfig(), "fa")
    except TextError:
        return
    assert normalize(once, TextConfig(), "fa") == once
    assert unicodedata.is_normalized("NFC", once)
    assert not any(map(str.isdigit, once))


PIECES = [
    *"۰۱۲۳۴۵۹0159.,:/-+#%٪٫٬&@=×÷±<> ()$€°½²₂℃م—",
    "ه. ش",
    "ق.م",
    "تلفن ",
    "ساعت ",
    "۰۰۰",
    " نهایی",
    "ـ",
    " مهر",
    " مرداد ",
    " ماه",
    "ماه",
    " تومان",
    "سال ",
    "km",
    "ین",
    "ام",
    "ة",
    "ال",
    "\u200c",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12))
def test_no_figure_is_left_and_reading_twice_changes_nothing_more(pieces: list[str]) -> None:
    assert_no_figure_is_left("".join(pieces), "fa")


@pytest.mark.parametrize(
    "piece",
    [
        "۱",
        "۱۱۱ ",
        "/۱",
        "-۱",
        "۱-",
        ":۱۱",
        "$",
        "$-۱",
        "٪",
        "۱٪",
        "۱م ",
        "۱ مهر",
        "+۱ ",
        "،۱",
        "ة",
        "۱/۱/",
        "/۰۰۰",
        "/۱۱۱",
        "۱½",
        "۱ـ",
        "تلفن ۱-",
    ],
)
def test_time_is_linear_in_the_length_of_the_text(piece: str) -> None:
    start = time.thread_time()
    normalize("۱" + piece * (20_000 // len(piece)), TextConfig(), "fa")
    assert time.thread_time() - start < 2.0  # a quadratic rule takes longer


def test_espeak_reads_it_in_its_persian_voice() -> None:
    texts = ["قرمز، لطفاً؟", "مُحَمَّد", "خانه‌ی ما", "خانهٔ ما", "۲۵٪"]

    assert prepare_texts(texts, ["fa"] * 5, TextConfig(tokens="phonemes")) == [
        "qˈermez, lˈotfan?",
        "mohˈamad",
        "xˈɑneːjˌe mˈɑ",
        "xˈɑneːjˌe mˈɑ",
        "bist vˈa pˈandʒ darsˈad",
    ]

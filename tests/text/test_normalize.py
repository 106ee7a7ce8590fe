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
    ("language", "text", "spoken"),
    [
        ("de", "21 Äpfel, 2.000,5 Straßen", "einundzwanzig äpfel, zweitausend komma fünf straßen"),
        ("ru", "В 5 домах", "в пять домах"),
        ("fa", "کتاب\u200cها \u06f5", "کتاب\u200cها پنج"),
        ("fa", "علي كتاب", "علی کتاب"),
        ("ar", "كت\u0640\u0640اب ج\u064eد", "كتاب ج\u064eد"),
        ("zh", "我有3个苹果。", "我有三个苹果。"),
        ("el", "έχω 3,5 και 21", "έχω τρία κόμμα πέντε και είκοσι ένα"),
        ("kk", "21 адам", "жиырма бір адам"),
        ("mi", "e 5 nga aporo", "e 5 nga aporo"),
        ("tr", "DI\u015e \u0130\u015e", "d\u0131\u015f i\u015f"),
        ("hi", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0928\u092e\u0938\u094d\u0924\u0947"),
    ],
)  # fmt: skip
def test_other_languages_go_through(language: str, text: str, spoken: str) -> None:
    assert normalize(text, TextConfig(), language) == spoken


@pytest.mark.parametrize("dash", ["\u2014", "\u2015"])
def test_a_dash_that_opens_speech_is_no_minus(dash: str) -> None:
    written = f"{dash}5 years {dash}$20 or (\u22123){dash} from 1914{dash}1918"
    spoken = "- five years - twenty dollars or (minus three)- from nineteen fourteen to nineteen eighteen"
    assert normalize(written, TextConfig(), "en") == spoken
    assert normalize(f"{dash}5", AS_WRITTEN, "en") == "-5"


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


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("it", "Costa 3,14 euro.", "costa tre virgola uno quattro euro."),
        ("tr", "Faiz 2,5 oldu.", "faiz iki virgül beş oldu."),
        ("cy", "Mae 3.14.", "mae tair pwynt un pedair."),
        ("ar", "3.14", "ثلاثة فاصل واحد أربعة"),
        ("id", "Harga 3,14 juta.", "harga tiga koma satu empat juta."),
        ("vi", "0,05", "không phẩy không năm"),
        ("pl", "3,14", "trzy przecinek czternaście"),
        ("pt-BR", "16,5 de 1984", "dezesseis vírgula cinco de mil novecentos e oitenta e quatro"),
        ("sv", "1000", "ettusen"),
        ("ar", "٣٬١٤٥", "ثلاثة آلاف و مائة و خمسة و أربعون"),
        ("ar", "٢٫٥", "إثنان فاصل خمسة"),
        ("hi", "1,00,000", "एक लाख"),
        ("bn", "0.05", "0.05"),
        ("ky", "3,14", "3,14"),
    ],
)
def test_numbers_are_read_or_stay(language: str, written: str, spoken: str) -> None:
    assert normalize(written, TextConfig(), language) == spoken

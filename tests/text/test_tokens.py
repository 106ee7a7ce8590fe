"""The names of token ids spell the text; unknown characters are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.config.schema import LimitsConfig, TextConfig
from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.symbols import build_symbols, prepare_texts
from xtts_pipeline.text.tokens import BEGIN_ID, END_ID, FIRST_SYMBOL_ID, PAD_ID, Tokenizer, check_text_length

ABC = Tokenizer(tuple("abc"))
BLANKS = Tokenizer(tuple("abc"), blank=True)


def test_ids_are_begin_symbols_end() -> None:
    tokens = ABC.encode("cab")
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [BEGIN_ID, FIRST_SYMBOL_ID + 2, FIRST_SYMBOL_ID, FIRST_SYMBOL_ID + 1, END_ID]
    assert ABC.symbol_count == FIRST_SYMBOL_ID + 3


def test_every_id_has_a_name_for_people() -> None:
    assert [ABC.name_of(token) for token in (PAD_ID, *ABC.encode("cab"))] == ["<pad>", "<begin>", *"cab", "<end>"]
    assert BLANKS.name_of(BLANKS.blank_id) == "<blank>"
    assert ABC.name_of(ABC.blank_id) == f"<{ABC.blank_id}?>"


def test_a_blank_stands_between_symbols_and_after_the_last_id() -> None:
    assert BLANKS.encode("cab").tolist() == [BEGIN_ID, 5, 6, 3, 6, 4, END_ID]
    assert BLANKS.encode("a").tolist() == [BEGIN_ID, 3, END_ID]
    assert BLANKS.symbol_count == 7


@settings(max_examples=50)
@given(text=st.text(min_size=1), blank=st.booleans())
def test_the_names_of_tokens_spell_the_text(text: str, blank: bool) -> None:
    tokenizer = Tokenizer(build_symbols([text], TextConfig()), blank)
    tokens = tokenizer.encode(text)
    assert "".join(name for token in tokens if len(name := tokenizer.name_of(int(token))) == 1) == text
    assert tokens.min() > PAD_ID
    assert tokens.max() < tokenizer.symbol_count


@pytest.mark.parametrize(
    ("character", "named"),
    [
        ("\u0641", "'\u0641' (U+0641 ARABIC LETTER FEH)"),
        ("\u00ef", "'\u00ef' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS)"),
        ("\n", r"'\n' (U+000A without a name)"),
        ("z", "'z' (U+007A LATIN SMALL LETTER Z)"),
    ],
)
def test_an_unknown_character_is_named(character: str, named: str) -> None:
    with pytest.raises(TextError) as raised:
        ABC.encode(f"ab{character}")
    assert raised.value.reason == Reason.UNKNOWN_SYMBOL
    assert raised.value.detail == f"{named} at position 2 is not among the 3 symbols"


def test_an_empty_text_has_no_tokens() -> None:
    with pytest.raises(TextError):
        ABC.encode("")


def test_symbols_of_a_corpus_do_not_depend_on_its_order() -> None:
    assert (
        build_symbols(["cab", "\u00e9a"], TextConfig())
        == build_symbols(["\u00e9", "abc"], TextConfig())
        == ("a", "b", "c", "\u00e9")
    )


def test_a_fixed_set_is_taken_as_it_is_given_without_repeats() -> None:
    assert build_symbols(["xyz"], TextConfig(symbols="cbaabe\u0301")) == ("c", "b", "a", "\u00e9")


def test_texts_are_prepared_each_in_its_language_and_errors_keep_their_places() -> None:
    prepared = prepare_texts(["5 Dogs", "...", "5 Hunde"], ["en", "en", "de"], TextConfig())
    assert (prepared[0], prepared[2]) == ("five dogs", "f\u00fcnf hunde")
    assert isinstance(prepared[1], TextError)


@pytest.mark.parametrize(
    ("blank", "counted"), [(False, "begin and end included"), (True, "the blanks between symbols included")]
)
def test_the_length_error_says_what_was_counted(blank: bool, counted: str) -> None:
    limits, config = LimitsConfig(max_text_length=5), TextConfig(blank=blank)
    check_text_length(5, limits, config)
    with pytest.raises(TextError, match=f"6 tokens, .*{counted}, are over limits.max_text_length=5") as raised:
        check_text_length(6, limits, config)
    assert raised.value.reason == Reason.TEXT_TOO_LONG

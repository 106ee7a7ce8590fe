"""An unknown character becomes its nearest known form or is dropped, and each change is counted."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts_pipeline.errors import Reason, TextError
from xtts_pipeline.text.fallback import MOST_CHANGES_NAMED, TextChanges, describe_changes, fit_to_symbols

LETTERS = string.ascii_lowercase + " ,."


@pytest.mark.parametrize(
    ("text", "fitted", "changes"),
    [
        ("hello, world.", "hello, world.", {}),
        ("hello, world!", "hello, world.", {("!", "."): 1}),
        ("naïve café, né", "naive cafe, ne", {("ï", "i"): 1, ("é", "e"): 2}),
        ("straße, ǽon, łodz", "strasse, aeon, lodz", {("ß", "ss"): 1, ("ǽ", "ae"): 1, ("ł", "l"): 1}),
        ("one; two: well-known", "one, two, well known", {(";", ","): 1, (":", ","): 1, ("-", " "): 1}),
        ("one - two", "one two", {("-", " "): 1}),
        ("ABC", "abc", {("A", "a"): 1, ("B", "b"): 1, ("C", "c"): 1}),
        ("ÉØ ﬁ ſ", "eo fi s", {("É", "e"): 1, ("Ø", "o"): 1, ("ﬁ", "fi"): 1, ("ſ", "s"): 1}),
        ("fine 😀 ❤\ufe0f.", "fine.", {("😀", ""): 1, ("❤", ""): 1, ("\ufe0f", ""): 1}),
        ('(so) "it" goes', "so it goes", {("(", ""): 1, (")", ""): 1, ('"', ""): 2}),
        ("سلام، ok؟", ", ok.", {("س", ""): 1, ("ل", ""): 1, ("ا", ""): 1, ("م", ""): 1, ("،", ","): 1, ("؟", "."): 1}),
    ],
)  # fmt: skip
def test_each_character_falls_back_to_its_nearest_form(
    text: str, fitted: str, changes: dict[tuple[str, str], int]
) -> None:
    assert fit_to_symbols(text, LETTERS) == (fitted, changes)


@pytest.mark.parametrize(
    ("character", "symbols", "form"),
    [
        (";", "a:.", "."),
        ("؛", "a;,", ";"),
        ("é", "aé", "é"),
        ("é", "AE", "E"),
        ("g", "aɡ", "ɡ"),
        ("ɡ", "ag", "g"),
        ("ß", "ab", ""),
        ("？", "a?.", "?"),
    ],
)
def test_the_first_form_that_the_symbols_hold_is_taken(character: str, symbols: str, form: str) -> None:
    text, _ = fit_to_symbols(f"{symbols[0]}{character}", symbols)
    assert text == f"{symbols[0]}{form}"


def test_without_a_space_among_the_symbols_words_are_joined() -> None:
    assert fit_to_symbols("ab ab", "ab")[0] == "abab"


@pytest.mark.parametrize("text", ["привет", "☃", "123, 4."])
def test_a_text_with_nothing_left_to_speak_is_an_error(text: str) -> None:
    with pytest.raises(TextError, match=r"no letter or digit is among the 29 symbols .*dropped") as raised:
        fit_to_symbols(text, LETTERS)
    assert raised.value.reason is Reason.EMPTY_TEXT


def test_changes_are_named_by_their_number_in_readable_characters() -> None:
    changes = TextChanges({("é", "e"): 3, ("\x07", ""): 1, ("☃", ""): 2, (";", ","): 1, ("\u0301", ""): 1})
    assert describe_changes(changes) == (
        r"'é' became 'e' (3 times), ';' became ',' (once); dropped '☃' (2 times), '\x07' (once), U+0301 (once)"
    )


def test_only_the_most_frequent_changes_are_named() -> None:
    text = "a" + "".join(chr(0x4E00 + number) * (number + 1) for number in range(MOST_CHANGES_NAMED + 5))
    _, changes = fit_to_symbols(text, LETTERS)
    described = describe_changes(changes)
    assert described.endswith("; and 5 characters more")
    assert described.count("times") == MOST_CHANGES_NAMED


@given(st.text(min_size=1))
def test_the_result_has_known_symbols_only_and_is_final(text: str) -> None:
    try:
        fitted, changes = fit_to_symbols(text, LETTERS)
    except TextError:
        return
    assert set(fitted) <= set(LETTERS)
    assert (fitted == text) if not changes else (fitted == fitted.strip())
    assert fit_to_symbols(fitted, LETTERS) == (fitted, {})

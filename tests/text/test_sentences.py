"""Long text is split at sentences and clauses, and none of it is lost."""

import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.text.sentences import (
    CLAUSE_PAUSE_SECONDS,
    PARAGRAPH_PAUSE_SECONDS,
    SENTENCE_PAUSE_SECONDS,
    pause_seconds,
    split_sentences,
)

WORDS = ["ab", "Mr.", "e.g.", "A.", "3.14", "1,000", "No.", "5", "it's", "سلام", "こん", "e\u0301", "ک\u200cها", "x-y"]
MARKS = [
    *" .!?;:,…()[]\n\t\"'\u2014\u2013\u2028\u201c\u201d\u00ab\u00bb",
    *"\u3002\uff01\uff1f\u061f\u06d4\u0964\u060c\u061b\u3001",
    "\n\n",
    "...",
]
TEXTS = st.lists(st.sampled_from([*WORDS, *MARKS, *MARKS]), max_size=40).map("".join) | st.text(max_size=60)


def anything(text: str) -> bool:
    return True


def at_most(characters: int):
    return lambda text: len(text) <= characters


def without_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


def is_one_character(text: str) -> bool:
    """Return whether all but the first character are combining marks."""
    return all(character in "\u200c\u200d" or unicodedata.category(character).startswith("M") for character in text[1:])


@pytest.mark.parametrize(
    ("language", "pieces"),
    [
        ("en", ["One is here.", "Two is there!", "Is three?", "It is\u2026", "So they say."]),
        ("en", ["Mr. Smith met Dr. J. R. Brown in St. James St. and left.", "It was cold."]),
        ("en", ["He came at 5 p.m. on the 3rd.", "She came at 6 p.m.", "Both slept."]),
        ("en", ["Apples, pears, etc. are fruit, i.e. sweet, e.g. these vs. those.", "Nuts, etc.", "They are not."]),
        ("en", ["It costs $3.14, or 1,000.5 in all.", "At 10:30 it closed."]),
        ("en", ["No. 5 is alive.", "He said no.", "Then he left."]),
        ("en", ["Call ext. 5 on Mar. 5 in Rome.", "It may.", "Then go."]),
        (
            "en",
            [
                "It is at 10 a.m. Monday, 7 p.m. Eastern or 5 p.m. EST, and at 9 a.m. May 3.",
                "He came at 5 p.m.",
                "Mary left.",
            ],
        ),
        (
            "en",
            [
                "Adm. Nelson met Cmdr. Lee in Ft. Worth on King Jr. Day.",
                "Apple Inc. CEO Ann Lee left Acme Inc.",
                "He too.",
            ],
        ),
        ("en", ["He said . . . nothing.", '"We . . . you know," she said.', "It was . . .", "Then she left."]),
        (
            "en",
            ["In 1990.[12]", "She stayed.\u00b9", "He saw Op. 5 at Hwy. 10 and paid Rs. 500 to Warner Bros. Pictures."],
        ),
        ("en", ["Mme. Curie met Mlle. Roy at 5 Oak Rd.", "It rained."]),
        ("en", ["A nice chap.", "5 left.", "She had an op.", "3 came.", "It is 300 Rs.", "20 paid."]),
        ("de", ["Die Sinfonie op. 125.", "Er kam."]),
        ("en", ["Pvt. Fox saw Supt. Ray and Cpl. Day.", "The room is 12 ft. long."]),
        ("de", ["Das Essen, das ich mag.", "Mag. Huber und Dr. med. Wolf von M\u00fcller & Co. KG, Abt. B."]),
        ("es", ["El Arq. Gil y la Mtra. Paz vinieron con el Mtro. Sol.", "Luego."]),
        ("en", ["The U.S. is large.", "So am I.", "So are you."]),
        ("en", ["Smith & Co. was sold to Acme Inc. in May.", "Brown Ltd.", "Nobody bought it."]),
        ("en", ['"Where to?" she asked.', '"Home."', "(He was tired.)", "Then he left."]),
        ("en", ["\u201cIs it?", "Really?\u201d he asked.", "It was."]),
        ("en", ["wait... what?!", "no!!!", "one.", "two."]),
        ("en", ["1. Open the door.", "2. Close it."]),
        ("en-GB", ["Mr. A. came by.", "He stayed."]),
        ("en", ["He had to choose between the two;", "neither of them was any good at all.", "He did: later."]),
        ("de", ["Es kostet 5 Mio. Euro.", "C\u00e4sar starb 44 v. Chr. in Rom usw.", "Ende."]),
        ("fr", ["M. Gil est n\u00e9 en 44 av. J.-C. \u00e0 Rome.", "Il vit, p. ex. ici.", "Fin."]),
        ("es", ["El Sr. Gil fue a EE. UU. en 1998.", "Vio la p\u00e1g. 5, etc.", "Luego."]),
        ("de", ["Am 3. Oktober kam z. B. Herr Dr. M\u00fcller.", "Er ging."]),
        ("en", ["She is 5 ft. tall.", "It takes 30 min. to get there."]),
        ("de", ["In 5 Min. bin ich in der Goethestr. 120.", "„Ich komme.“", "»Gut.«", "Er ging."]),
        ("fr", ["« Venez ! » dit-il.", "« Non.\u00a0»", "Il part."]),
        ("pt", ["O Sr. Silva e a Dra. Costa vieram.", "Foi bom."]),
        ("fa", ["سلام.", "حالت چطور است؟", "۳٫۱۴ گفت."]),
        ("ur", ["\u06cc\u06c1 \u06c1\u06d2\u06d4", "\u0648\u06c1 \u062a\u06be\u0627\u06d4"]),
        (
            "hi",
            ["\u0928\u092e\u0938\u094d\u0924\u0947\u0964", "\u0906\u092a \u0915\u0948\u0938\u0947 \u0939\u0948\u0902?"],
        ),
    ],
)
def test_sentences_end_where_they_end(language, pieces):
    assert split_sentences(" ".join(pieces), language, anything) == pieces


def test_marks_without_spaces_after_them_end_sentences_too():
    pieces = ["\u3053\u3093\u306b\u3061\u306f\u3002", "\u300c\u5143\u6c17\uff1f\u300d", "\u306f\u3044\uff01"]
    assert split_sentences("".join(pieces), "ja", anything) == pieces


def test_a_semicolon_parts_no_short_sentence():
    text = "Note: one; two; three."
    assert split_sentences(text, "en", anything) == [text]


@pytest.mark.parametrize("text", ["", "  \n\n \t"])
def test_no_text_no_pieces(text):
    assert split_sentences(text, "en", anything) == []


def test_marks_alone_stay_with_their_neighbour():
    assert split_sentences('... Yes! ... "No." ... !', "en", anything) == ["... Yes!", '... "No." ... !']


def test_text_without_words_is_left_to_whoever_speaks():
    assert split_sentences("?! ...", "en", anything) == ["?! ..."]


def test_a_paragraph_ends_in_an_empty_line():
    seen = []
    pieces = split_sentences("A title\r\n\r\nOne\nline. Two.\n \n\nEnd.", "en", lambda text: seen.append(text) is None)
    assert pieces == ["A title\n\n", "One\nline.", "Two.\n\n", "End."]
    assert not any("\n\n" in text for text in seen)


@pytest.mark.parametrize("space", ["\n\n", " \n \n ", "\n\t\u2028\n", "\u2029", " \u2029\n"])
def test_white_space_with_an_empty_line_or_a_separator_parts_paragraphs(space):
    assert split_sentences(f"{space}One{space}two{space}", "en", anything) == ["One\n\n", "two"]


@pytest.mark.parametrize("space", ["\n", " \n ", "\r\t\u2028 "])
def test_other_white_space_parts_no_paragraphs(space):
    text = f"One{space}two"
    assert split_sentences(f"{space}{text}{space}", "en", anything) == [text]


def test_a_long_sentence_is_cut_after_its_clauses():
    text = "When it rained, which it did often, they stayed inside (all of them), and when it did not, they went out."
    pieces = split_sentences(text, "en", at_most(45))
    assert pieces == [
        "When it rained, which it did often,",
        "they stayed inside (all of them),",
        "and when it did not, they went out.",
    ]


def test_a_semicolon_is_a_better_cut_than_a_comma():
    pieces = split_sentences("He came; he saw, he won, and so on it went for a while.", "en", at_most(24))
    assert pieces[0] == "He came;"


def test_a_comma_at_the_very_start_is_no_cut():
    pieces = split_sentences("Well, there was no other mark in all of this sentence", "en", at_most(30))
    assert pieces == ["Well, there was no other mark", "in all of this sentence"]


def test_figures_are_not_cut_at_their_comma():
    pieces = split_sentences("they had counted 1,000,000 sheep before", "en", at_most(22))
    assert pieces == ["they had counted", "1,000,000 sheep before"]


def test_a_word_is_cut_only_where_nothing_else_will_do():
    assert split_sentences("so abcdefghij it is", "en", at_most(4)) == ["so", "abcd", "efgh", "ij", "it", "is"]


def test_a_cut_leaves_marks_on_their_letters():
    text = "e\u0301" * 10
    pieces = split_sentences(text, "en", at_most(3))
    assert pieces == ["e\u0301"] * 10


def test_text_without_spaces_is_cut_at_its_commas():
    text = "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c\u6211\u4eec\u53bb\u516c\u56ed\u3001\u5546\u5e97\u3002"
    assert split_sentences(text, "zh", at_most(8)) == [text[:7], text[7:13], text[13:]]


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(["en", "fa", "de", "ja", "xx"]), st.integers(1, 40))
def test_no_text_is_lost_and_every_piece_fits(text, language, limit):
    for fits in (anything, at_most(limit)):
        pieces = split_sentences(text, language, fits)
        assert without_spaces("".join(pieces)) == without_spaces(text)
        for piece in pieces:
            assert piece.strip()
            assert piece.removesuffix("\n\n") == piece.strip()
            assert fits(piece.strip()) or is_one_character(piece.strip())


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_pieces_have_something_to_say(text):
    spoken = [
        any(map(str.isalnum, piece))
        for piece in split_sentences(text.replace("\n", " "), "en", anything)
        if "\u2029" not in text
    ]
    assert len(spoken) <= 1 or all(spoken)


def test_asking_whether_it_fits_is_rare():
    asked = []
    words = "word " * 5_000

    def fits(text: str) -> bool:
        asked.append(len(text))
        return len(text) <= 200

    pieces = split_sentences(words, "en", fits)
    assert len(pieces) == 125
    assert len(asked) < 10 * len(pieces)
    # But for the first question, they are about as much as fits, not about all that is left.
    assert sum(size > 1_000 for size in asked) == 1


@pytest.mark.parametrize(
    "text", ["a" * 20_000, "\u6c49" * 19_999 + "\uff0c", "\u6c49\uff0c" * 10_000, "a\u0301" * 10_000]
)
def test_a_word_of_any_length_is_asked_about_twice_and_then_in_parts(text):
    asked = []

    def fits(part: str) -> bool:
        asked.append(len(part))
        return len(part) <= 50

    pieces = split_sentences(text, "xx", fits)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) == 50
    # The sentence and its only word; before, all that was left of it was asked about at every piece.
    assert sum(size > 200 for size in asked) == 2
    assert len(asked) < 14 * len(pieces)


@pytest.mark.parametrize(
    "text",
    [
        "A. " * 50_000,
        "a. " * 30_000,
        '"' * 50_000,
        ". " * 50_000,
        "ab; " * 30_000,
        "! " * 50_000 + "a",
        "a" * 100_000,
        "(" * 50_000,
        "a" + " " * 100_000 + "b",
    ],
)
def test_strange_text_takes_no_long_time(text):
    start = time.thread_time()
    split_sentences(text, "en", at_most(200))
    assert time.thread_time() - start < 5


@pytest.mark.parametrize(
    ("piece", "seconds"),
    [
        ("It ends.", SENTENCE_PAUSE_SECONDS),
        ('"It ends!")', SENTENCE_PAUSE_SECONDS),
        ("\u201eEs endet.\u201c", SENTENCE_PAUSE_SECONDS),
        ("\u00ab Non. \u00bb", SENTENCE_PAUSE_SECONDS),
        ("\u00bbGut,\u00ab", CLAUSE_PAUSE_SECONDS),
        ("\u306f\u3044\u3002", SENTENCE_PAUSE_SECONDS),
        ("so\u2026", SENTENCE_PAUSE_SECONDS),
        ("and then,", CLAUSE_PAUSE_SECONDS),
        ("thus:", CLAUSE_PAUSE_SECONDS),
        ("or \u2014", CLAUSE_PAUSE_SECONDS),
        ("\u0648\u060c", CLAUSE_PAUSE_SECONDS),
        ("in the middle", 0.0),
        ("It ends.\n\n", PARAGRAPH_PAUSE_SECONDS),
        ("It ends.[12]", SENTENCE_PAUSE_SECONDS),
        ("A title\n\n", PARAGRAPH_PAUSE_SECONDS),
        ("", 0.0),
    ],
)
def test_the_pause_is_that_of_the_mark(piece, seconds):
    assert pause_seconds(piece) == seconds

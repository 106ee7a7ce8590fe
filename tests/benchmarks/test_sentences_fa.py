"""The Persian sentences cover the alphabet, have one spelling, and are short enough for a small model."""

import re
from collections import Counter

from benchmarks.make_corpora import persian_sentences
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.normalize import normalize

LETTERS = "آابپتثجچحخدذرزژسشصضطظعغفقکگلمنوهی"
HAMZAS, MARKS, PUNCTUATION = "ءأؤئ", "\u064b\u0654\u200c", " .،؟!"


def test_there_are_enough_and_all_differ():
    sentences = persian_sentences()

    assert len(sentences) >= 300
    assert len(set(sentences)) == len(sentences)


def test_every_letter_occurs_in_several_sentences_and_nothing_foreign_does():
    sentences = persian_sentences()
    holding = Counter(character for sentence in sentences for character in set(sentence))

    assert min(holding[letter] for letter in LETTERS) >= 8
    assert set(holding) <= set(LETTERS + HAMZAS + MARKS + PUNCTUATION)


def test_each_is_a_short_sentence_of_whole_words():
    for sentence in persian_sentences():
        assert 3 < len(sentence.split()) <= 10, sentence
        assert 12 <= len(sentence) <= 60, sentence
        assert re.fullmatch(r"[^.؟!]+[.؟!]", sentence), sentence
        assert sentence == " ".join(sentence.split()), sentence


def test_normalising_changes_none_of_them():
    assert all(normalize(sentence, TextConfig(), "fa") == sentence for sentence in persian_sentences())

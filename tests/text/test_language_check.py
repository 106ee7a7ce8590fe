"""Texts that are not in their language, or hold figures that nothing reads, are one line."""

import pytest

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.text.language_check import check_languages

GERMAN = [
    "Das ist ein schöner Tag, und die Sonne scheint.",
    "Wir gehen mit dem Hund in den Wald.",
    "Es ist nicht weit.",
]
ENGLISH = ["This is a fine day, and the sun is out.", "We walk to the woods with a dog.", "It is not far."]


def check(texts: list[str], language: str, **settings: object) -> list[str]:
    config = TextConfig.model_validate({"language": language, **settings})
    return check_languages(texts, [language] * len(texts), config)


@pytest.mark.parametrize(
    ("texts", "language", "line"),
    [
        (GERMAN, "en", "language en: 3 of 3 rows are like de (ist, "),
        (ENGLISH, "de", "language de: 3 of 3 rows are like en ("),
        (
            ["Привет, мир."],
            "en",
            "language en: 1 of 1 rows is in Cyrillic letters; add --set text.language=ru,",
        ),
        (
            ["Hello, world."],
            "fa",
            "language fa: 1 of 1 rows is in Latin letters; add --set text.language=en,",
        ),
        (
            ["我有苹果。"],
            "en-GB",
            "language en-GB: 1 of 1 rows is in Chinese letters; add --set text.language=zh,",
        ),
    ],
)
def test_texts_of_another_language_are_one_line_that_says_what_to_set(
    texts: list[str], language: str, line: str
) -> None:
    [found] = check(texts, language)
    assert found.startswith(line)


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (GERMAN, "de"), (GERMAN, "de-AT"), (ENGLISH, "en"), (ENGLISH * 40 + GERMAN, "en"), (["Zdravo svete."], "sr"),
        (["Ein Wort."], "sw"), (["..."], "en"), (["ひらがな"], "ja"), ([], "en"),
    ],
)  # fmt: skip
def test_texts_of_their_own_language_with_few_foreign_ones_are_no_warning(texts: list[str], language: str) -> None:
    assert check(texts, language) == []


def test_two_addresses_in_a_text_are_no_portuguese() -> None:
    assert check(["Visit example dot com, or mail ann, example dot com!"], "en") == []


def test_spelled_names_are_no_polish() -> None:
    assert check_languages(["z o w i e", "enter A. I. W. O. six", "yes"], ["en"] * 3, TextConfig()) == []


def test_the_count_is_of_the_rows_in_the_language_that_is_named() -> None:
    [line] = check([*GERMAN, "Que no es para los dos."], "en")
    assert line.startswith("language en: 3 of 4 rows are like de (")


def test_a_cache_of_another_language_is_to_be_made_again() -> None:
    texts = ["Der Mann und die Frau sind nicht da.", "Das ist ein Haus, und es ist nicht neu."] * 3
    for language, remedy in (
        ("en", "; preprocess again with --set text.language=de"),
        ("fr", "; correct the rows' language to de, preprocess again"),
    ):
        (line,) = check_languages(texts, [language] * len(texts), TextConfig(language="en"), is_made=True)
        assert line.endswith(remedy)


def test_each_language_of_a_corpus_is_checked() -> None:
    lines = check_languages([*GERMAN, *ENGLISH], ["de"] * 3 + ["fr"] * 3, TextConfig())
    assert [line.partition(":")[0] for line in lines] == ["language fr"]
    assert lines[0].endswith("; correct the rows' language to en")


@pytest.mark.parametrize(
    ("text", "language", "settings", "words"),
    [
        ("Costa il 5%.", "it", {}, ["signs, dates and times are not"]),
        ("Il 12/3 alle 8:30.", "it", {}, ["signs, dates and times are not"]),
        ("Ho 5 mele.", "it", {}, []),
        ("E 5 nga aporo.", "mi", {}, ["digits stay"]),
        ("E 5 nga aporo.", "mi", {"tokens": "phonemes"}, []),
        ("E 5 nga aporo.", "mi", {"expand": False}, []),
        ("Es sind 5%.", "de", {}, []),
    ],
)
def test_figures_that_nothing_reads_are_one_line(
    text: str, language: str, settings: dict[str, object], words: list[str]
) -> None:
    lines = check([text], language, **settings)
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True] * len(words)

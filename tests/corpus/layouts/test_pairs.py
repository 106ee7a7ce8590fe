"""Sounds with a transcript beside each, or in a folder beside that of the sounds."""

from pathlib import Path

import pytest

from tests.corpus.layouts.test_read_as_found import (
    CLIPS,
    SENTENCES,
    text_beside_sound,
    text_in_a_folder_beside_that_of_the_sounds,
)
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import Reason


def test_a_stray_text_beside_the_sounds_hides_no_folder_of_texts(tmp_path: Path) -> None:
    text_in_a_folder_beside_that_of_the_sounds(tmp_path)
    (tmp_path / "wav" / "notes.txt").write_text("notes")
    corpus = read_corpus(tmp_path)
    assert [row.text for row in corpus.utterances] == SENTENCES
    assert [rejected.id for rejected in corpus.rejections] == ["wav/notes"]


def test_folders_of_sounds_and_texts_lose_no_row(tmp_path: Path) -> None:
    text_in_a_folder_beside_that_of_the_sounds(tmp_path)
    (tmp_path / "wav" / "001.wav").unlink()
    (tmp_path / "Txt" / "002.txt").unlink()
    corpus = read_corpus(tmp_path)
    assert len(corpus.utterances) == len(CLIPS) - 2
    assert [(row.id, row.reason, row.detail) for row in corpus.rejections] == [
        ("wav/001", Reason.AUDIO_MISSING, "no sound file wav/001.wav; the nearest name there is 010.wav"),
        ("wav/002", Reason.BAD_ROW, "the sound has no transcript; expected 002.txt in Txt/"),
    ]


def test_a_transcript_in_another_encoding_names_the_option(tmp_path: Path) -> None:
    text_beside_sound(tmp_path)
    (tmp_path / "001.txt").write_bytes(SENTENCES[0].encode("cp1252"))
    (rejection,) = read_corpus(tmp_path).rejections
    assert rejection.detail == "byte 1 of the transcript is not UTF-8; give its --encoding, such as cp1252"
    (tmp_path / "001.txt").write_bytes(SENTENCES[0].encode("utf-16"))
    assert read_corpus(tmp_path).utterances[0].text == SENTENCES[0]


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("#\n    0.19500 125 pau \n    0.23250 125 ao \n", False),
        ("0.000000\t3.200000\t25 men.\n", False),
        ("0 50000 pau\n50000 120000 h\n", False),
        ("10 20 thirty\n", True),
        ("1 2 3 4\n5 6 7 8\n", True),
        ("1 2 three\nfour\n", True),
    ],
)
def test_a_label_file_is_no_transcript(tmp_path: Path, text: str, is_read: bool) -> None:
    text_beside_sound(tmp_path)
    (tmp_path / "001.txt").write_text(text)
    corpus = read_corpus(tmp_path)
    if is_read:
        assert (corpus.utterances[0].text, corpus.rejections) == (" ".join(text.split()), ())
        return
    (rejection,) = corpus.rejections
    assert (rejection.id, rejection.reason) == ("001", Reason.BAD_ROW)
    assert rejection.detail == "the transcript holds times, as a label file does; expected the words alone"

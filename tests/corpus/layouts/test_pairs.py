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
from xtts_pipeline.corpus.segment.segment import find_recordings
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


def test_a_sound_and_its_text_fit_in_either_form_of_unicode(tmp_path: Path) -> None:
    for sound, text in (("fu\u0308r", "f\u00fcr"), ("gr\u00fcn", "gru\u0308n")):
        (tmp_path / f"{sound}.wav").touch()
        (tmp_path / f"{text}.txt").write_text("Für uns.", encoding="utf-8")
    corpus = read_corpus(tmp_path)
    assert corpus.rejections == ()
    assert [row.id for row in corpus.utterances] == ["fu\u0308r", "gr\u00fcn"]
    assert [bool(recording.transcript) for recording in find_recordings(tmp_path)] == [True, True]


def test_a_folder_that_lies_too_deep_is_rejected(tmp_path: Path) -> None:
    text_beside_sound(tmp_path)
    text_beside_sound(tmp_path / "1/2/3/4/5/6/7/8/9")
    (tmp_path / "1/2/3/4/5/6/7/8/without sounds").mkdir()
    corpus = read_corpus(tmp_path)
    assert len(corpus.utterances) == len(CLIPS)
    assert [(row.where, row.reason, row.detail) for row in corpus.rejections] == [
        ("1/2/3/4/5/6/7/8/9", Reason.BAD_ROW, "lies over 8 folders deep; its sounds are not read")
    ]

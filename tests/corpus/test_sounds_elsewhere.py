"""Corpora whose sounds do not lie beside their tables, and others that were once read wrongly."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.cache.corpora import make_config, write_clip
from xtts_pipeline.cache.build.plan import read_corpora
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CorpusError


def write(path: Path, content: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def rows(corpus: Corpus) -> list[tuple[str, str | None, str, str]]:
    assert corpus.rejections == ()
    return [(clip.id, clip.split, clip.speaker, clip.language) for clip in corpus.utterances]


def test_ids_and_splits_of_folders_do_not_depend_on_where_the_sounds_lie(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / "mls" / split / "transcripts.txt", f"10_20_{split}\tone two\n")
        for root in ("mls", "denoised"):
            write(tmp_path / root / split / "audio" / "10" / "20" / f"10_20_{split}.wav")

    beside = rows(read_corpus(tmp_path / "mls"))

    assert [split for _, split, _, _ in beside] == ["train", "test"]
    assert rows(read_corpus(tmp_path / "mls", ReadOptions(audio_dir=str(tmp_path / "denoised")))) == beside


def test_a_book_of_m_ailabs_may_have_its_sounds_elsewhere_or_stand_alone(tmp_path: Path) -> None:
    book = tmp_path / "data" / "de_DE" / "by_book" / "female" / "anna" / "buch"
    write(book / "metadata.csv", "a|x|eins zwei\nb|x|drei vier\n")
    for name in ("a", "b"):
        write(book / "wavs" / f"{name}.wav")
        write(tmp_path / "sounds" / f"{name}.wav")

    apart = read_corpus(tmp_path / "data", ReadOptions("m_ailabs", audio_dir=str(tmp_path / "sounds")))
    alone = read_corpus(book / "metadata.csv", ReadOptions("m_ailabs"))

    assert [row[2:] for row in rows(apart)] == [("anna", "de-DE")] * 2
    assert [row[2:] for row in rows(alone)] == [("default", "en")] * 2


def write_parquet(path: Path, sound: bytes, text: str, column: str = "text") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"audio": [{"bytes": sound, "path": "a.wav"}], column: [text]})
    pyarrow.parquet.write_table(table, path)
    return path.parent


@pytest.mark.parametrize("seconds", [0.4, 0.6], ids=["of equal size", "of another size"])
def test_sounds_of_two_parquet_data_sets_are_not_mixed(tmp_path: Path, seconds: float) -> None:
    first, second = (write_clip(tmp_path, *clip).read_bytes() for clip in (["one"], ["two"]))
    if seconds != 0.4:
        second = write_clip(tmp_path, "two", seconds=seconds).read_bytes()
    one = write_parquet(tmp_path / "one" / "train.parquet", first, "one two")
    two = write_parquet(tmp_path / "two" / "train.parquet", second[:-2] + b"ab", "three four")
    options = ReadOptions(audio_dir=str(tmp_path / "sounds"))
    (tmp_path / "sounds").mkdir()

    with pytest.raises(CorpusError, match="holds the sound of another row or data set; name an empty folder"):
        read_corpora(one, two, options, make_config())

    corpus = read_corpus(one, options)  # again: its own sounds may lie there
    assert (corpus.root / corpus.utterances[0].audio).read_bytes() == first


def test_the_reading_of_parquet_files_with_other_columns_can_be_repeated(tmp_path: Path) -> None:
    sound = write_clip(tmp_path, "one").read_bytes()
    write_parquet(tmp_path / "data" / "a.parquet", sound, "one two")
    data = write_parquet(tmp_path / "data" / "b.parquet", sound, "three four", "sentence")

    corpus = read_corpus(data, sound_folder=tmp_path / "sounds")
    again = read_corpus(data, corpus.reading, sound_folder=tmp_path / "sounds")

    assert [clip.text for clip in corpus.utterances] == ["one two", "three four"]
    assert again.utterances == corpus.utterances


def test_a_folder_of_pairs_is_found_beside_deep_folders(tmp_path: Path) -> None:
    for name in (".git", "aaa", "zzz"):
        (tmp_path / name / "/".join("d" * 12)).mkdir(parents=True)
    for speaker in ("anna", "ben"):
        write(tmp_path / speaker / "001.wav")
        write(tmp_path / speaker / "001.txt", "one two")

    assert [clip.speaker for clip in read_corpus(tmp_path).utterances] == ["anna", "ben"]


def test_splits_have_the_same_names_in_files_and_in_columns(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "wavs" / f"{number}.wav")
    lines = [f"wavs/{number}.wav,one two {number}\n" for number in range(3)]
    write(tmp_path / "metadata.csv", "".join(["file,text\n", *lines]))
    write(tmp_path / "metadata_training.csv", "".join(["file,text\n", *lines[:1]]))
    write(tmp_path / "metadata_eval.csv", "".join(["file,text\n", *lines[1:]]))
    words = ("training", "eval", "dev")
    write(tmp_path / "columns" / "manifest.csv", "".join(["file,text,split\n", *(f"{w}.wav,{w},{w}\n" for w in words)]))
    for word in words:
        write(tmp_path / "columns" / f"{word}.wav")

    assert sorted(str(split) for _, split, _, _ in rows(read_corpus(tmp_path))) == ["train", "val", "val"]
    assert [split for _, split, _, _ in rows(read_corpus(tmp_path / "columns"))] == ["train", "val", "val"]


def test_a_line_of_lhotse_that_is_too_long_is_one_row(tmp_path: Path) -> None:
    write(tmp_path / "wavs" / "a.wav")
    recording = {"id": "r", "duration": 0.4, "sources": [{"type": "file", "source": "wavs/a.wav"}]}
    supervision = {"id": "s", "recording_id": "r", "text": "one two", "start": 0, "duration": 0.4}
    write(tmp_path / "recordings.jsonl", f"{json.dumps(recording)}\n")
    write(tmp_path / "supervisions.jsonl", f"{'x' * (3 << 20)}\n{json.dumps(supervision)}\n")

    corpus = read_corpus(tmp_path)

    assert [rejection.where for rejection in corpus.rejections] == ["supervisions.jsonl:1"]
    assert [clip.where for clip in corpus.utterances] == ["supervisions.jsonl:2"]

"""Each layout is detected and read to the last row."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import LAYOUTS, read_corpus
from xtts_pipeline.errors import CorpusError, LayoutError, Reason


def write(root: Path, files: dict[str, str]) -> Path:
    """Make files with the given text; sounds may be empty, since readers do not open them."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content, encoding="utf-8")
    return root


def texts(root: Path, layout: str = "auto") -> dict[str, str]:
    return {utterance.id: utterance.text for utterance in read_corpus(root, ReadOptions(layout)).utterances}


@pytest.mark.parametrize("folder", ["wavs", "wav"])
def test_ljspeech_takes_the_third_column_where_there_is_one(tmp_path: Path, folder: str) -> None:
    root = write(
        tmp_path, {"metadata.csv": "a|Dr. No|doctor no\nb|Yes|yes\n", f"{folder}/a.wav": "", f"{folder}/b.flac": ""}
    )
    corpus = read_corpus(root)
    assert (corpus.reading.layout, corpus.rejections) == ("ljspeech", ())
    assert [(u.id, u.text, u.audio.as_posix(), u.where) for u in corpus.utterances] == [
        ("a", "doctor no", f"{folder}/a.wav", "metadata.csv:1"),
        ("b", "yes", f"{folder}/b.flac", "metadata.csv:2"),
    ]


def test_ljspeech_of_two_columns_keeps_quotes_bom_and_windows_line_ends(tmp_path: Path) -> None:
    root = write(
        tmp_path, {"metadata.csv": '\ufeffa|"Quoted, she said\r\n\r\nb|two\r\n', "wavs/a.wav": "", "wavs/b.wav": ""}
    )
    assert texts(root) == {"a": '"Quoted, she said', "b": "two"}


def test_ljspeech_is_found_by_its_table_too(tmp_path: Path) -> None:
    root = write(tmp_path, {"metadata.csv": "a|text\n", "wavs/a.wav": ""})
    assert read_corpus(root / "metadata.csv").root == root.resolve()


def test_vctk_080(tmp_path: Path) -> None:
    root = write(tmp_path, {"wav48/p225/p225_001.wav": "", "txt/p225/p225_001.txt": "Please call Stella.\n"})
    (utterance,) = read_corpus(root).utterances
    assert (utterance.id, utterance.speaker, utterance.text) == ("p225_001", "p225", "Please call Stella.")
    assert (utterance.audio.as_posix(), utterance.where) == ("wav48/p225/p225_001.wav", "txt/p225/p225_001.txt:1")


def test_vctk_092_prefers_the_first_microphone(tmp_path: Path) -> None:
    sounds = "wav48_silence_trimmed/p225/p225"
    files = {f"{sounds}_001_mic2.flac": "", f"{sounds}_001_mic1.flac": "", f"{sounds}_002_mic2.flac": ""}
    root = write(tmp_path, {**files, "txt/p225/p225_001.txt": "one", "txt/p225/p225_002.txt": "two"})
    corpus = read_corpus(root)
    assert [u.audio.name for u in corpus.utterances] == ["p225_001_mic1.flac", "p225_002_mic2.flac"]
    assert [u.id for u in corpus.utterances] == ["p225_001", "p225_002"]


def test_vctk_ids_of_two_speakers_do_not_collide(tmp_path: Path) -> None:
    files = {f"wav48/{speaker}/001.wav": "" for speaker in ("p1", "p2")} | {
        f"txt/{speaker}/001.txt": "hello" for speaker in ("p1", "p2")
    }
    assert sorted(texts(write(tmp_path, files))) == ["p1/001", "p2/001"]


def test_vctk_accounts_for_sounds_without_text_and_texts_without_sound(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {"wav48/p315/p315_001.wav": "", "wav48/p1/p1_001.wav": "", "txt/p1/p1_001.txt": "a", "txt/p1/p1_002.txt": "b"},
    )
    corpus = read_corpus(root)
    assert [u.id for u in corpus.utterances] == ["p1_001"]
    assert {r.id: r.reason for r in corpus.rejections} == {"p315_001": Reason.BAD_ROW, "p1_002": Reason.AUDIO_MISSING}


LIBRITTS = {
    "train-clean-100/103/1241/103_1241_000000_000001.wav": "",
    "train-clean-100/103/1241/103_1241_000000_000001.normalized.txt": "matthew cuthbert is surprised",
    "train-clean-100/103/1241/103_1241_000000_000001.original.txt": "Matthew Cuthbert is surprised",
    "dev-clean/84/121123/84_121123_000007_000001.wav": "",
    "dev-clean/84/121123/84_121123_000007_000001.original.txt": "Maximilien.",
    "test-clean/61/70968/61_70968_000000_000000.wav": "",
}


def test_libritts_folders_give_split_and_speaker_and_the_normalised_text_wins(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path, LIBRITTS))
    assert corpus.reading.layout == "libritts"
    assert {(u.split, u.speaker, u.text) for u in corpus.utterances} == {
        ("train", "103", "matthew cuthbert is surprised"),
        ("val", "84", "Maximilien."),
    }
    assert [(r.id, r.reason) for r in corpus.rejections] == [("61_70968_000000_000000", Reason.BAD_ROW)]


def test_one_split_of_libritts_is_a_corpus(tmp_path: Path) -> None:
    (utterance,) = read_corpus(write(tmp_path, LIBRITTS) / "dev-clean").utterances
    assert (utterance.split, utterance.speaker) == ("val", "84")


def test_common_voice_splits_speakers_and_locales(tmp_path: Path) -> None:
    header = "client_id\tpath\tsentence\tlocale\n"
    root = write(tmp_path, {
        "train.tsv": f"{header}s1\tcommon_voice_fa_1.mp3\tسلام دنیا\tfa\n",
        "dev.tsv": f'{header}s2\tcommon_voice_fa_2.mp3\tHe said "yes\t\n',
        "validated.tsv": f"{header}s1\tcommon_voice_fa_1.mp3\tسلام دنیا\tfa\n",
        "clips/common_voice_fa_1.mp3": "",
        "clips/common_voice_fa_2.mp3": "",
    })  # fmt: skip
    corpus = read_corpus(root, language="de")
    assert (corpus.reading.layout, corpus.rejections) == ("common_voice", ())
    assert [(u.id, u.split, u.speaker, u.language) for u in corpus.utterances] == [
        ("common_voice_fa_1", "train", "s1", "fa"),
        ("common_voice_fa_2", "val", "s2", "de"),
    ]


def test_common_voice_without_splits_reads_what_was_validated(tmp_path: Path) -> None:
    root = write(tmp_path, {"validated.tsv": "client_id\tpath\tsentence\ns\tx.mp3\thello\n", "clips/x.mp3": ""})
    assert [(u.id, u.split) for u in read_corpus(root).utterances] == [("x", None)]


def test_coqui_tables_of_splits_beat_the_one_they_were_cut_from(tmp_path: Path) -> None:
    header = "audio_file|text|speaker_name\n"
    root = write(tmp_path, {
        "metadata.csv": f"{header}wavs/a.wav|one|ann\nwavs/b.wav|two|bob\n",
        "metadata_train.csv": f"{header}wavs/a.wav|one|ann\n",
        "metadata_eval.csv": f"{header}wavs/b.wav|two|bob\n",
        "wavs/a.wav": "",
        "wavs/b.wav": "",
    })  # fmt: skip
    corpus = read_corpus(root)
    assert (corpus.reading.layout, corpus.rejections) == ("coqui", ())
    assert {(u.id, u.split, u.speaker) for u in corpus.utterances} == {
        ("wavs/a", "train", "ann"),
        ("wavs/b", "val", "bob"),
    }


def test_without_a_training_table_the_others_are_read_too_and_what_they_repeat_is_counted(tmp_path: Path) -> None:
    header = "audio_file|text|speaker_name\n"
    root = write(tmp_path, {
        "metadata.csv": f"{header}wavs/a.wav|one|ann\nwavs/b.wav|two|bob\n",
        "metadata_eval.csv": f"{header}wavs/b.wav|two|bob\n",
        "wavs/a.wav": "",
        "wavs/b.wav": "",
    })  # fmt: skip
    corpus = read_corpus(root)
    assert {(u.id, u.split) for u in corpus.utterances} == {("wavs/a", None), ("wavs/b", "val")}
    assert [(rejection.reason, rejection.where) for rejection in corpus.rejections] == [
        (Reason.DUPLICATE_ID, "metadata.csv:3")
    ]


def test_a_pipe_in_a_table_s_place_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(CorpusError):
        read_corpus(tmp_path)


def test_manifest_csv_with_quotes_and_optional_columns(tmp_path: Path) -> None:
    table = 'text,audio,id,speaker,language,split\n"Yes, ""you""",s/a.flac,one,ann,pt_br,dev\nplain,s/b.ogg,,,,\n'
    root = write(tmp_path, {"data.csv": table, "s/a.flac": "", "s/b.ogg": ""})
    corpus = read_corpus(root / "data.csv")
    assert corpus.reading.layout == "manifest"
    assert [(u.id, u.text, u.speaker, u.language, u.split) for u in corpus.utterances] == [
        ("one", 'Yes, "you"', "ann", "pt-BR", "val"),
        ("s/b", "plain", "default", "en", None),
    ]
    assert texts(root) == {"one": 'Yes, "you"', "s/b": "plain"}


def test_manifest_json_lines(tmp_path: Path) -> None:
    first = '{"audio": "a.wav", "text": "caf\\u00e9", "speaker": 7}'
    second = '{"audio": "b.wav", "text": "two", "split": "test", "id": null}'
    root = write(tmp_path, {"manifest.jsonl": f"{first}\n\n{second}\n", "a.wav": "", "b.wav": ""})
    corpus = read_corpus(root)
    assert [(u.id, u.text, u.speaker, u.split, u.where) for u in corpus.utterances] == [
        ("a", "café", "7", None, "manifest.jsonl:1"),
        ("b", "two", "default", "test", "manifest.jsonl:3"),
    ]


def test_every_layout_has_a_name_to_ask_for(tmp_path: Path) -> None:
    known = {"ljspeech", "vctk", "libritts", "common_voice", "coqui", "manifest"}
    assert set(LAYOUTS) == known | {"m_ailabs", "mls", "lhotse", "parquet", "pairs"}
    root = write(tmp_path, {"metadata.csv": "a|text\n", "wavs/a.wav": ""})
    assert read_corpus(root, ReadOptions("ljspeech")).reading.layout == "ljspeech"
    with pytest.raises(
        CorpusError,
        match=r"not a vctk corpus: found the table metadata.csv \(first line a\|text\), the folder wavs and 1 sound\n"
        "expected wav48_silence_trimmed/SPEAKER/ or .*; leave out --layout",
    ):
        read_corpus(root, ReadOptions("vctk"))
    with pytest.raises(CorpusError, match=r"--layout vctkk: unknown; did you mean vctk\?"):
        read_corpus(root, ReadOptions("vctkk"))


WRITE_A_TABLE = "write a table metadata.csv with the header file,text"


@pytest.mark.parametrize(
    ("files", "found", "remedy"),
    [
        ({}, "found an empty folder", WRITE_A_TABLE),
        ({"metadata.txt": "", "wavs/a.wav": ""}, "metadata.txt", "for ljspeech rename metadata.txt to metadata.csv"),
        (
            {"metadata.csv": "a|b\n"},
            "the table metadata.csv (first line a|b) and no sounds",
            WRITE_A_TABLE,
        ),
        (
            {"list.csv": "\nName; Words\nx.wav;one\n", "README.txt": "", "clips/a.wav": "", "clips/b.wav": ""},
            "the table list.csv (first line Name; Words), the folder clips and 2 sounds",
            "add --columns audio=name,text=words,",
        ),
        ({"001.wav": "", "002.wav": ""}, "found no table and 2 sounds", WRITE_A_TABLE),
        ({"readme.md": "x"}, "found no table and no sounds", WRITE_A_TABLE),
        (
            {"list.csv": "file~text\na.wav~one\n", "a.wav": ""},
            "the table list.csv (first line file~text) and 1 sound",
            "add --delimiter '~'",
        ),
    ],
)
def test_the_error_for_no_corpus_is_what_was_found_and_one_remedy(
    tmp_path: Path, files: dict[str, str], found: str, remedy: str
) -> None:
    with pytest.raises(LayoutError) as raised:
        read_corpus(write(tmp_path, files))
    first, second = str(raised.value).split("\n")
    assert first.startswith(f"{tmp_path}: no known corpus layout: found ")
    assert found in first
    assert second.startswith(remedy)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"inner/metadata.csv": "a|b\n", "inner/wavs/a.wav": ""}, "ljspeech corpus in its folder inner/; pass that"),
        (
            # The second folder has a table whose text must be chosen.
            {
                "inner/metadata.csv": "a|b\n",
                "inner/wavs/a.wav": "",
                "other/list.csv": "".join(f"{name}.wav|One two, {name}.|Three four, {name}.\n" for name in "ab"),
                **{f"other/{name}.wav": "" for name in "ab"},
            },
            "ljspeech corpus in its folder inner/; pass that",
        ),
        (
            {f"day{day}/{name}": "file,text\na.wav,one\n" for day in (1, 2) for name in ("metadata.csv", "a.wav")},
            "found a corpus in each of its folders day1/, day2/; write one table for all, with paths such as day1/001",
        ),
        (
            {f"{day}/{name}": "file,text\na.wav,one\n" for day in range(5) for name in ("metadata.csv", "a.wav")},
            "its folders 0/, 1/, 2/ and 2 more; write one table .*; or preprocess each, then join them by xtts cache",
        ),
        ({"metadata.csv": "\n\n", "wavs/a.wav": ""}, "without a single row"),
        ({"manifest.json": "{}", "utterances.jsonl": "{}"}, "is a cache, expected a corpus"),
    ],
)
def test_a_folder_with_something_else_is_named(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(CorpusError, match=message) as raised:
        read_corpus(write(tmp_path, files))
    assert "\n" not in str(raised.value)


def test_a_folder_without_access_hides_no_corpus_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"corpus/metadata.csv": "a|b\n", "corpus/wavs/a.wav": "", "lost+found/x": ""})
    list_folder = Path.iterdir

    def refuse(folder: Path) -> Iterator[Path]:
        if folder.name == "lost+found":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return list_folder(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(CorpusError, match="ljspeech corpus in its folder corpus/; pass that"):
        read_corpus(tmp_path)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        read_corpus(tmp_path / "nowhere")

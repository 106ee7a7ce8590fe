"""A folder that cannot be read is described as it is, with the remedy that works."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.sounds import SoundFiles
from xtts_pipeline.errors import CorpusError, LayoutError

ROWS = "".join(f"{number:03d}.wav,Text {number}\n" for number in range(6))
DEFAULT = "write a table metadata.csv with the header file,text and a row for each sound; docs/corpora.md lists all"


def lines(audio: object, text: object) -> str:
    return f"{json.dumps({'audio': audio, 'text': text})}\n" * 3


@pytest.mark.parametrize(
    ("name", "content", "found", "remedy"),
    [
        ("l.csv", "", "empty", DEFAULT),
        ("m.jsonl", lines("000.wav", "book/000.wav").replace('"text"', '"source"'), "keys audio, source", DEFAULT),
        ("l.XLSX", "PK\x03\x04\0", "a spreadsheet",
         "save l.XLSX as CSV, with the file and the text of each sound"),
        ("l.csv", ROWS.replace("\n", "\r"), "lines that end in CR", "save l.csv with lines that end in LF or CRLF"),
        ("l.csv", f"file,{'x' * 5_000}\n{ROWS}", "a first line of over 4096 bytes",
         "write a first line file,text into l.csv"),
        ("l.csv", ROWS.encode("utf-16-le"), "NUL bytes",
         "add --encoding utf-16-le if l.csv is UTF-16; or save it as UTF-8"),
        ("m.jsonl", lines({"path": "c/000.wav"}, {"en": "Text"}), "keys audio, text",
         "write audio as a string; or name another key by --columns, such as text=KEY"),
        ("m.jsonl", lines("c/000.wav", 12), "keys audio, text",
         "write text as a string; or name another key by --columns, such as text=KEY"),
        ("m.json", f"[\n{lines('c/000.wav', 'Text')}]", "keys audio, text", ""),
        ("m.json", '[\n{"audio":\n"c/000.wav"}]', "no line is a JSON object",
         "write one JSON object a line into m.json, with the sound's file and its text"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_is_described(
    tmp_path: Path, name: str, content: str | bytes, found: str, remedy: str
) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "000.wav").touch()
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    if not remedy:
        assert read_corpus(tmp_path).utterances[0].text == "Text"
        return
    with pytest.raises(LayoutError) as raised:
        read_corpus(tmp_path)
    first, second = str(raised.value).split("\n")
    assert first == f"{tmp_path}: no known corpus layout: found the table {name} ({found}), the folder c and 1 sound"
    assert second == remedy


def test_a_table_comes_before_the_spreadsheet_that_it_was_saved_from(tmp_path: Path) -> None:
    (tmp_path / "000.wav").touch()
    for name, content in {"a.ods": "PK", "b.csv": ROWS.replace("\n", "\r"), "README.txt": "My voice"}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(LayoutError, match=r"found the table b.csv \(.*\nsave b.csv with lines that end in LF"):
        read_corpus(tmp_path)
    (tmp_path / "b.csv").unlink()
    with pytest.raises(LayoutError, match=r"found the table a.ods \(a spreadsheet\).*\nsave a.ods as CSV"):
        read_corpus(tmp_path)


def test_a_table_that_is_a_link_is_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "list.csv").write_text(f"file,text\n{ROWS}")
    (tmp_path / "data" / "list.csv").symlink_to(tmp_path / "list.csv")
    with pytest.raises(LayoutError, match=r"list.csv \(a symlink\).*\ncopy the file that list.csv links to"):
        read_corpus(tmp_path / "data")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("script.txt", "000.wav: Well, then\n001.wav: Yes, it is\n"),
        ("texts.json", json.dumps({"000.wav": "Well, then", "001.wav": "Yes"})),
        ("000.txt", "Well, then, she said\n"),
        ("list.csv", "gone.wav,Text\nfar.wav,Other\n"),
        ("list.csv", "aaa,bbb\nccc,ddd\n"),
    ],
)
def test_no_columns_are_advised_where_no_row_names_a_sound(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    for sound in ("000.wav", "001.wav") if name != "000.txt" else ():
        (tmp_path / sound).touch()
    with pytest.raises(LayoutError) as raised:
        read_corpus(tmp_path)
    assert str(raised.value).split("\n")[1] == DEFAULT


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("The file;The name", "--columns 'audio=the file,text=the name'"),
        ("The file|A, or b", "--columns 'audio=the file,text=2'"),
    ],
)
def test_advised_columns_can_be_pasted(tmp_path: Path, header: str, words: str) -> None:
    for number in range(3):
        (tmp_path / f"{number}.wav").touch()
    # Numbers are not taken for texts without being told.
    delimiter = header[8]
    rows = "".join(f"{number}.wav{delimiter}{number}\n" for number in range(3))
    (tmp_path / "list.csv").write_text(f"{header}\n{rows}")
    with pytest.raises(LayoutError) as raised:
        read_corpus(tmp_path)
    assert str(raised.value).split("\n")[1] == f"add {words}, with the columns that hold the sound and its text"
    given = shlex.split(words)[1].split(",")
    columns = dict(pair.split("=") for pair in given)
    assert len(read_corpus(tmp_path, ReadOptions(columns=columns)).utterances) == 3


def test_keys_of_json_are_advised_and_taken_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "000.wav").touch()
    (tmp_path / "list.jsonl").write_text(json.dumps({"Klang": "000.wav", "Wörter": "Text"}))
    with pytest.raises(LayoutError, match=r"\nadd --columns audio=Klang,text=Wörter, with"):
        read_corpus(tmp_path)
    (row,) = read_corpus(tmp_path, ReadOptions(columns={"audio": "klang", "text": "wörter"})).utterances
    assert row.text == "Text"


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"audio": "filname"}, "found no column filname; did you mean filename?"),
        ({"speaker": "xyz"}, "found no column xyz; choose from filename, spoken text, who, or positions from 1 to 3"),
        ({"text": "9"}, "found no column 9; choose from filename, spoken text, who, or positions from 1 to 3"),
    ],
)
@pytest.mark.parametrize("is_folder", [True, False])
def test_an_unknown_column_is_one_line(tmp_path: Path, columns: dict[str, str], problem: str, is_folder: bool) -> None:
    (tmp_path / "takes" / "day 1").mkdir(parents=True)
    for number in range(6):
        (tmp_path / "takes" / "day 1" / f"{number:03d}.wav").touch()
    rows = ROWS.replace("\n", ",me\n")
    table = tmp_path / "list.csv"
    table.write_text(f"Filename,Spoken text,Who\n{rows}")
    with pytest.raises(CorpusError) as raised:
        read_corpus(tmp_path if is_folder else table, ReadOptions(columns=columns))
    assert str(raised.value) == f"{table}: --columns: {problem}"
    table.write_text(rows)
    with pytest.raises(CorpusError, match=r"--columns: found no column 9; choose from positions from 1 to 3$"):
        read_corpus(tmp_path, ReadOptions(columns={"text": "9"}))
    table.unlink()
    (tmp_path / "list.jsonl").write_text(lines("000.wav", "Text"))
    with pytest.raises(CorpusError, match=r"list.jsonl: --columns: found no column 9; choose from audio, text$"):
        read_corpus(tmp_path, ReadOptions(columns={"text": "9"}))


@pytest.mark.parametrize("delimiter", ["|", ";", "\t", ","])
def test_an_unknown_column_of_a_table_with_known_names_is_one_line(tmp_path: Path, delimiter: str) -> None:
    rows = "".join(delimiter.join((f"{number:03d}.wav", "Text", "me")) + "\n" for number in range(6))
    for number in range(6):
        (tmp_path / f"{number:03d}.wav").touch()
    (tmp_path / "list.csv").write_text(delimiter.join(("file", "text", "who")) + "\n" + rows)
    with pytest.raises(CorpusError, match=r"list.csv: --columns: found no column txt; did you mean text\?$"):
        read_corpus(tmp_path, ReadOptions(columns={"text": "txt"}))


def test_sounds_are_counted_in_all_folders(tmp_path: Path) -> None:
    for name in ("0.wav", "a/1.m4a", "a/b/c/2.flac"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(LayoutError, match="found no table, the folder a and 3 sounds"):
        read_corpus(tmp_path)


@pytest.mark.parametrize("delimiter", ["xx", ",;", "|"])
@pytest.mark.parametrize("header", ["file,text\n", "aaa,bbb\n", ""])
def test_a_delimiter_that_is_not_needed_is_to_be_left_out(tmp_path: Path, header: str, delimiter: str) -> None:
    for number in range(6):
        (tmp_path / f"{number:03d}.wav").touch()
    (tmp_path / "list.csv").write_text(header + ROWS)
    for columns in ({}, {"text": "2"}):
        with pytest.raises(LayoutError) as raised:
            read_corpus(tmp_path, ReadOptions(columns=columns, delimiter=delimiter))
        assert str(raised.value).split("\n")[1] == f"leave out --delimiter '{delimiter}': it is found"
        assert len(read_corpus(tmp_path, ReadOptions(columns=columns)).utterances) == 6


def test_a_sound_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "clip.wav").write_bytes(b"RIFF\x00\x00\x00\x00WAVE")
    with pytest.raises(LayoutError, match=r"found a file \(a sound\)\nname its folder, or a table of sounds"):
        read_corpus(tmp_path / "clip.wav")


def test_a_link_to_itself_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loop = Path("loop")
    loop.symlink_to("loop")
    for given in (loop, loop / "data"):
        with pytest.raises(CorpusError) as raised:
            read_corpus(given)
        problem = "cannot be read (Too many levels of symbolic links)"
        assert str(raised.value) == f"{given}: {problem}; expected a corpus folder or a manifest"
    Path("data").mkdir()
    (tmp_path / "data" / "inner").symlink_to("inner")
    for audio_dir in ("loop", "inner"):
        with pytest.raises(CorpusError):
            read_corpus(Path("data"), ReadOptions(audio_dir=audio_dir))


def test_a_folder_of_many_texts_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, scan = [], SoundFiles._scan

    def counted(sounds: SoundFiles, folder: str) -> Iterator[tuple[str, bool]]:
        listed.append(folder)
        return scan(sounds, folder)

    monkeypatch.setattr(SoundFiles, "_scan", counted)
    for number in range(20):
        (tmp_path / f"{number:03d}.wav").touch()
        (tmp_path / f"text {number:03d}.txt").write_text("000.wav: well, then\n")
    with pytest.raises(LayoutError):
        read_corpus(tmp_path)
    assert len(listed) == 2  # to find tables, and to say why there are none


@pytest.mark.parametrize("folder", ["by_book", "by_book/female"])
def test_a_part_of_m_ailabs_is_to_be_passed_from_above_its_books(tmp_path: Path, folder: str) -> None:
    book = tmp_path / "de_DE/by_book/female/karlsson/emma"
    (book / "wavs").mkdir(parents=True)
    (book / "wavs" / "1.wav").touch()
    (book / "metadata.csv").write_text("1|one|one\n")
    with pytest.raises(LayoutError, match=r"\npass the folder de_DE/, which holds by_book/$"):
        read_corpus(tmp_path / "de_DE" / folder)
    assert read_corpus(tmp_path / "de_DE").utterances[0].speaker == "karlsson"

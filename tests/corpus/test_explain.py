"""A folder that cannot be read is described as it is, with the remedy that works."""

import json
from pathlib import Path

import pytest

from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import LayoutError

ROWS = "".join(f"{number:03d}.wav,Text {number}\n" for number in range(6))
DEFAULT = "write a table metadata.csv with the header file,text and a row for each sound; docs/corpora.md lists all"


def lines(audio: object, text: object) -> str:
    return f"{json.dumps({'audio': audio, 'text': text})}\n" * 3


@pytest.mark.parametrize(
    ("name", "content", "found", "remedy"),
    [
        ("l.csv", "", "empty", DEFAULT),
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


def test_a_table_that_is_a_link_is_to_be_copied(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "list.csv").write_text(f"file,text\n{ROWS}")
    (tmp_path / "data" / "list.csv").symlink_to(tmp_path / "list.csv")
    with pytest.raises(LayoutError, match=r"list.csv \(a symlink\).*\ncopy the file that list.csv links to"):
        read_corpus(tmp_path / "data")

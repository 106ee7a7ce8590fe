"""No row can stop a run, leave the corpus, or be lost: it is kept, or rejected for the right reason."""

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xtts_pipeline.config import languages
from xtts_pipeline.corpus import rows
from xtts_pipeline.corpus.encodings import LEAST_FOREIGN_LINES
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.rows import CorpusRow, RowCollector
from xtts_pipeline.corpus.tables import TableHeader, read_table
from xtts_pipeline.corpus.utterance import Corpus, Rejection
from xtts_pipeline.errors import MACHINE_ERRORS, CorpusError, LayoutError, Reason
from xtts_pipeline.inference.delivery import number_of


def ljspeech(root: Path, table: bytes, sounds: tuple[str, ...] = ("a.wav",)) -> Path:
    (root / "wavs").mkdir(parents=True, exist_ok=True)
    for name in sounds:
        (root / "wavs" / name).write_bytes(b"")
    (root / "metadata.csv").write_bytes(table)
    return root


def only_rejection(root: Path) -> Rejection:
    corpus = read_corpus(root)
    assert corpus.rows == 2
    assert [utterance.id for utterance in corpus.utterances] == ["a"]
    return corpus.rejections[0]


def test_a_speaker_whose_letters_and_accents_lie_apart_is_no_other_one(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.wav").touch()
    collector = RowCollector(tmp_path, "manifest", "en")
    for number, speaker in enumerate(("J\u00fcrgen", "Ju\u0308rgen")):
        collector.add(CorpusRow("table.csv:1", str(number), f"{number}.wav", "text", speaker))
    assert [utterance.speaker for utterance in collector.utterances] == ["J\u00fcrgen"] * 2
    assert number_of("speaker", ("Ann", "J\u00fcrgen"), "Ju\u0308rgen", tmp_path) == 1


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        (b"lonely", Reason.BAD_ROW, "1 field; expected id|text"),
        (b"a|b|c|d", Reason.BAD_ROW, "4 fields"),
        (b"b|te\x00xt", Reason.BAD_ROW, "NUL"),
        ("b|text".encode("utf-16-le"), Reason.BAD_ROW, "if the file is UTF-16, add --encoding utf-16-le or utf-16-be"),
        (b"b|caf\xe9", Reason.BAD_ROW, "0xe9, is not UTF-8"),
        *[
            (f"b|text{separator}c|text".encode(), Reason.BAD_ROW, f"U+{ord(separator):04X} at character 6 separates")
            for separator in "\r\v\f\x1c\x85\u2028\u2029"
        ],
        (b"|text", Reason.BAD_ROW, "the id is empty"),
        (b"../../x|text", Reason.UNSAFE_ID, "has an empty, . or .. part"),
        (b"/etc/passwd|text", Reason.UNSAFE_ID, "absolute"),
        (b"C:/x|text", Reason.UNSAFE_ID, "absolute"),
        (b"~root/x|text", Reason.UNSAFE_ID, "absolute"),
        (b"x\\y|text", Reason.UNSAFE_ID, "backslash"),
        (b"x\x1b[31m|text", Reason.UNSAFE_ID, "control characters"),
        ("x\u202ey|text".encode(), Reason.UNSAFE_ID, "control characters"),
        (b"x" * 300 + b"|text", Reason.UNSAFE_ID, "longer than 255 bytes"),
        (b"x/" * 600 + b"x|text", Reason.UNSAFE_ID, "or 1024 bytes in all"),
        (b"b|" + b"x" * 65_537, Reason.TEXT_TOO_LONG, "65537 characters; expected at most 65536"),
        (b"b|" + b"x" * (1 << 20), Reason.BAD_ROW, "the row has over 1048576 bytes"),
        (b"b|" + b"x" * (3 << 20), Reason.BAD_ROW, "the row has over 1048576 bytes"),
        (b"a|again", Reason.DUPLICATE_ID, "already read at metadata.csv:1"),
        (b"b|   ", Reason.EMPTY_TEXT, "empty"),
        (b"b|text|", Reason.EMPTY_TEXT, "empty"),
        (b"b|text", Reason.AUDIO_MISSING, "no sound file wavs/b.wav; the nearest name there is a.wav"),
    ],
)
def test_a_bad_row_is_rejected_and_the_rest_goes_on(tmp_path: Path, row: bytes, reason: Reason, detail: str) -> None:
    rejection = only_rejection(ljspeech(tmp_path, b"a|good\n" + row + b"\n"))
    assert (rejection.reason, rejection.where) == (reason, "metadata.csv:2")
    assert detail in rejection.detail
    assert rejection.id.isprintable()
    assert len(rejection.detail) < 200


def test_a_table_of_blank_lines_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_BLANK_LINES", 100)
    with pytest.raises(CorpusError, match="over 100 blank lines"):
        read_corpus(ljspeech(tmp_path, b"a|text\n" + b"\n" * 101))


def test_unknown_languages_are_compared_with_the_known_ones_twenty_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    monkeypatch.setattr(languages, "nearest_name", lambda wanted, _: compared.append(wanted))
    table = "".join(f"a.wav|text|x{number % 200}y9\n" for number in range(400))
    (tmp_path / "manifest.csv").write_text(f"audio|text|language\n{table}")
    (tmp_path / "a.wav").touch()
    assert {row.reason for row in read_corpus(tmp_path).rejections} == {Reason.BAD_ROW}
    assert len(compared) == rows.MAX_HINTS


def test_a_table_in_utf_16_is_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_WIDE_BYTES", 100)
    (tmp_path / "manifest.csv").write_text("audio,text\n" + "a.wav,one two\n" * 20, encoding="utf-16")
    (tmp_path / "a.wav").touch()
    with pytest.raises(CorpusError, match=r"manifest\.csv: over 100 bytes of utf-16.*; save it as UTF-8"):
        read_corpus(tmp_path)


def test_a_table_without_usable_rows_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_USELESS_ROWS", 100)
    ljspeech(tmp_path / "junk", b"a|text\n" + b"a|text\n" * 200)
    with pytest.raises(
        CorpusError, match=r"junk: 101 of 102 rows are rejected, the last at metadata.csv:102 \(id a was"
    ):
        read_corpus(tmp_path / "junk")
    kept = [f"{number}.wav" for number in range(3)]
    ljspeech(tmp_path / "poor", b"".join(b"%d|text\n" % number for number in range(120)), tuple(kept))
    assert len(read_corpus(tmp_path / "poor").rejections) == 117


def test_an_id_is_never_looked_for_outside_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(b"")
    assert only_rejection(ljspeech(tmp_path / "corpus", b"a|good\n../../x|text\n")).reason == Reason.UNSAFE_ID


def test_a_symlink_out_of_the_corpus_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside.wav"
    outside.write_bytes(b"")
    root = ljspeech(tmp_path / "corpus", b"in|good\nout|bad\ndangling|bad\n")
    (root / "wavs" / "in.wav").symlink_to("a.wav")
    (root / "wavs" / "out.wav").symlink_to(outside)
    (root / "wavs" / "dangling.wav").symlink_to("nothing")
    corpus = read_corpus(root)
    assert [utterance.id for utterance in corpus.utterances] == ["in"]
    assert [rejection.reason for rejection in corpus.rejections] == [Reason.UNSAFE_ID, Reason.AUDIO_MISSING]


def test_a_sound_folder_that_is_a_symlink_out_of_the_corpus_is_refused(tmp_path: Path) -> None:
    root = ljspeech(tmp_path / "outside", b"a|good\n")
    corpus_root = tmp_path / "corpus"
    corpus_root.mkdir()
    (corpus_root / "metadata.csv").write_bytes(b"a|good\n")
    (corpus_root / "wavs").symlink_to(root / "wavs")
    assert [rejection.reason for rejection in read_corpus(corpus_root).rejections] == [Reason.UNSAFE_ID]


def test_a_table_that_is_a_symlink_out_of_the_corpus_is_refused(tmp_path: Path) -> None:
    ljspeech(tmp_path / "outside", b"a|good\n")
    root = ljspeech(tmp_path / "corpus", b"")
    (root / "metadata.csv").unlink()
    (root / "metadata.csv").symlink_to(tmp_path / "outside" / "metadata.csv")
    with pytest.raises(CorpusError, match="symlink out of the corpus"):
        read_corpus(root)


def test_a_speaker_folder_that_is_a_symlink_is_one_rejection(tmp_path: Path) -> None:
    for name in ("wav48/p1", "txt/p1"):
        (tmp_path / "corpus" / name).mkdir(parents=True)
    (tmp_path / "corpus/wav48/p1/p1_1.wav").write_bytes(b"")
    (tmp_path / "corpus/txt/p1/p1_1.txt").write_text("hello")
    (tmp_path / "corpus/wav48/p2").symlink_to("/")
    corpus = read_corpus(tmp_path / "corpus")
    assert [(r.where, r.reason) for r in corpus.rejections] == [("wav48/p2", Reason.UNSAFE_ID)]
    assert len(corpus.utterances) == 1


@pytest.mark.parametrize("transcript", [b"caf\xe9", b"x" * 100_000, b"nul\x00"])
def test_a_bad_transcript_costs_its_row(tmp_path: Path, transcript: bytes) -> None:
    for name in ("wav48/p1", "txt/p1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "wav48/p1/p1_1.wav").write_bytes(b"")
    (tmp_path / "txt/p1/p1_1.txt").write_bytes(transcript)
    (rejection,) = read_corpus(tmp_path).rejections
    assert (rejection.reason, rejection.where) == (Reason.BAD_ROW, "txt/p1/p1_1.txt:1")


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "null",
        '{"audio": "a.wav"}',
        '{"audio": 3, "text": "x"}',
        '{"audio": "a.wav", "text": "x", "id": ["a"]}',
        '{"audio": "a.wav", "text": "\\ud800"}',
        '{"audio": "a.wav", "text": "a\\u0000b"}',
        '{"audio": "a.wav", "text": "x", "split": "training set"}',
        '{"audio": "a.wav", "text": "x", "language": "e"}',
        '{"audio": "a.wav", "text": "x", "speaker": "\\u0007"}',
        '{"audio": "a.wav", "text": "x", "text": "y"}',
        "[" * 100_000,
        '{"id": ' + "9" * 5_000 + "}",
    ],
)
def test_a_bad_json_line_costs_its_row(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "manifest.jsonl").write_text(line + "\n")
    (rejection,) = read_corpus(tmp_path).rejections
    assert (rejection.reason, rejection.where) == (Reason.BAD_ROW, "manifest.jsonl:1")


def test_a_line_separator_within_a_json_text_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "manifest.jsonl").write_text('{"audio": "a.wav", "text": "one\u2028two\x85three"}\n')
    assert [utterance.text for utterance in read_corpus(tmp_path).utterances] == ["one\u2028two\x85three"]


@pytest.mark.parametrize("header", ["audio,text,text", "audio,Text,text,", '"audio",text,speaker,"audio"'])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "m.csv").write_text(f"{header}\na.wav,one,two\n")
    with pytest.raises(CorpusError, match=r"m\.csv:1: several columns are called (audio|text); rename all but one"):
        read_corpus(tmp_path / "m.csv")


def test_an_open_quote_swallows_no_other_row(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "m.csv").write_text('audio,text\nb.wav,"open\na.wav,good\n')
    corpus = read_corpus(tmp_path / "m.csv")
    assert [utterance.text for utterance in corpus.utterances] == ["good"]
    assert [(r.where, r.reason) for r in corpus.rejections] == [("m.csv:2", Reason.BAD_ROW)]


def test_a_quote_that_closes_before_its_field_ends_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "m.csv").write_text('audio;text\na.wav;"Come!" she said\na.wav;"""Come!"" she said"\n')
    corpus = read_corpus(tmp_path / "m.csv")
    assert [utterance.text for utterance in corpus.utterances] == ['"Come!" she said']
    assert "quote the whole field, and double the quotes within it" in corpus.rejections[0].detail


@pytest.mark.parametrize("header", [b"audio,text,\x00", b"audio,text,\xff", b"audio,text," + b"x" * 5_000 + b"\x00"])
def test_a_table_whose_header_cannot_be_read_is_no_table(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "m.csv").write_bytes(header + b"\na.wav,good,x\n")
    with pytest.raises(CorpusError, match="no known corpus layout"):
        read_corpus(tmp_path / "m.csv")


def test_a_header_that_breaks_after_it_was_recognised_swallows_no_row(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / "m.csv").write_bytes(b"audio,text\x00\na.wav,good\n")
    rows = RowCollector(tmp_path, "manifest", "en")
    header = TableHeader(",", ("audio", "text"))
    assert [fields["text"] for _, fields in read_table(tmp_path / "m.csv", rows, header)] == ["good"]
    assert rows.rejections == []


def assert_can_be_written(corpus: Corpus) -> None:
    for rejection in corpus.rejections:
        json.dumps(rejection.to_json(), ensure_ascii=False).encode("utf-8")
    for utterance in corpus.utterances:
        f"{utterance.id}{utterance.audio}{utterance.speaker}{utterance.where}".encode()


@pytest.mark.parametrize(
    ("sound", "good"),
    [
        (b"wav48/p1/p1_\xff.wav", "txt/p1/p1_1.txt"),
        (b"train-clean/p1/c/p1_\xff.wav", "train-clean/p1/c/p1_1.normalized.txt"),
    ],
)
def test_a_sound_whose_name_is_not_utf8_is_rejected_in_plain_unicode(tmp_path: Path, sound: bytes, good: str) -> None:
    for name in (os.fsdecode(sound), good):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hello")
    corpus = read_corpus(tmp_path)
    assert_can_be_written(corpus)
    (rejection,) = (rejection for rejection in corpus.rejections if rejection.reason == Reason.BAD_ROW)
    assert rejection.id == "p1_\ufffd"
    assert rejection.where.endswith("p1_\ufffd.wav")


def test_a_table_whose_name_is_not_utf8_is_shown_in_plain_unicode(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    (tmp_path / os.fsdecode(b"metadata_\xff.csv")).write_text("audio_file|text\na.wav|good\nb.wav|gone\n")
    corpus = read_corpus(tmp_path)
    assert_can_be_written(corpus)
    assert [utterance.where for utterance in corpus.utterances] == ["metadata_\ufffd.csv:2"]
    assert [rejection.where for rejection in corpus.rejections] == ["metadata_\ufffd.csv:3"]


def test_a_folder_that_is_a_symlink_to_itself_costs_only_its_rows(tmp_path: Path) -> None:
    root = ljspeech(tmp_path, b"loop/b|text\na|good\n")
    (root / "wavs" / "loop").symlink_to("loop")
    assert only_rejection(root).reason == Reason.AUDIO_UNREADABLE


def test_a_speaker_folder_with_a_symlink_to_itself_is_read(tmp_path: Path) -> None:
    for name in ("wav48/p1", "txt/p1"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "wav48/p1/p1_1.wav").write_bytes(b"")
    (tmp_path / "txt/p1/p1_1.txt").write_text("hello")
    (tmp_path / "wav48/p1/loop").symlink_to("loop")
    assert [utterance.text for utterance in read_corpus(tmp_path).utterances] == ["hello"]


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.EACCES, Reason.AUDIO_UNREADABLE), (errno.ENAMETOOLONG, Reason.UNSAFE_ID)]
)
def test_a_folder_that_cannot_be_listed_costs_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: Reason
) -> None:
    root = ljspeech(tmp_path, b"a|text\n")
    fail_to_list(monkeypatch, number)
    (rejection,) = read_corpus(root).rejections
    assert (rejection.reason, rejection.detail) == (
        reason,
        f"wavs/ cannot be listed ({os.strerror(number)}); expected a readable folder",
    )


@pytest.mark.parametrize("number", sorted(MACHINE_ERRORS))
def test_a_fault_of_the_machine_is_blamed_on_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = ljspeech(tmp_path, b"a|text\n")
    fail_to_list(monkeypatch, number)
    with pytest.raises(CorpusError, match="wavs/ cannot be listed"):
        read_corpus(root)


def fail_to_list(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def scandir(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr("xtts_pipeline.corpus.sounds.os.scandir", scandir)


def is_row(raw: bytes) -> bool:
    """Return whether a line is blank or has a field that is not: rows of empty fields are not counted."""
    fields = raw.decode("utf-8", "replace").translate(dict.fromkeys(map(ord, '|;,\t"')))
    return not raw.strip() or bool(fields.strip())


# More of them could be a table in another encoding.
lines = st.lists(
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")).filter(is_row), max_size=LEAST_FOREIGN_LINES - 1
)


@pytest.mark.parametrize("line", [b"|", b"||", b" | ", b"\t|"])
def test_a_row_of_empty_fields_is_passed_over_as_a_blank_line_is(tmp_path: Path, line: bytes) -> None:
    corpus = read_corpus(ljspeech(tmp_path, b"a|good\n" + line + b"\nb|better\n"))
    assert (corpus.rows, [rejection.where for rejection in corpus.rejections]) == (2, ["metadata.csv:3"])


def test_eight_lines_of_letters_that_are_not_utf8_are_another_encoding_and_fewer_are_bad_rows(tmp_path: Path) -> None:
    corpus = read_corpus(ljspeech(tmp_path, b"a|good\n" + b"b|caf\xe9\n" * 7))
    assert [rejection.reason for rejection in corpus.rejections] == [Reason.BAD_ROW] * 7
    with pytest.raises(LayoutError, match=r"8 lines are not UTF-8, the first is line 2\n.*add --encoding cp1252 "):
        read_corpus(ljspeech(tmp_path, b"a|good\n" + b"b|caf\xe9\n" * 8))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=lines)
def test_any_bytes_are_accounted_for(tmp_path: Path, lines: list[bytes]) -> None:
    root = ljspeech(tmp_path, b"a|good\n" + b"\n".join(lines) + b"\n")
    corpus = read_corpus(root)
    assert corpus.rows == 1 + sum(bool(line.strip()) for line in lines)
    for rejection in corpus.rejections:
        line = json.dumps(rejection.to_json(), ensure_ascii=False).encode("utf-8")
        assert line.count(b"\n") == 0
        assert len(rejection.id) <= 80
    assert len({utterance.id for utterance in corpus.utterances}) == len(corpus.utterances)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=lines,
    table=st.sampled_from([
        ("m.csv", b"audio,text,id"),
        ("m.csv", b"text;audio;split"),
        ("m.tsv", b"audio\ttext\tspeaker"),
        ("m.csv", b"audio_file|text|speaker_name"),
        ("m.jsonl", b'{"audio": "b.wav", "text": "x"}'),
    ]),
)  # fmt: skip
def test_any_bytes_in_any_table_are_accounted_for(tmp_path: Path, lines: list[bytes], table: tuple[str, bytes]) -> None:
    name, header = table
    is_table = name != "m.jsonl"
    (tmp_path / name).write_bytes(b"\n".join([header, *lines, b""]))
    rows = sum(bool(line.strip()) for line in lines) + (not is_table)
    if rows == 0:
        with pytest.raises(CorpusError, match="without a single row"):
            read_corpus(tmp_path / name)
    else:
        assert len(read_corpus(tmp_path / name).rejections) == rows


PATHS = st.lists(st.sampled_from(["a", "a.wav", "b", "..", ".", "", "~", "c:", "\\", "\x00", "\u202e"]), max_size=4)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_id=PATHS.map("/".join) | st.text(max_size=20), audio=PATHS.map("/".join), text=st.text(max_size=10))
@example(row_id="../a", audio="a.wav", text="text")
@example(row_id="a", audio="b/../../a.wav", text="text")
def test_any_row_ends_as_one_record_inside_the_corpus(tmp_path: Path, row_id: str, audio: str, text: str) -> None:
    root = tmp_path / "corpus"
    (root / "b").mkdir(parents=True, exist_ok=True)
    for folder in (tmp_path, root, root / "b"):
        (folder / "a.wav").touch()
    rows = RowCollector(root, "manifest", "en")
    rows.add(CorpusRow("m:0", "good", "a.wav", "text"))
    rows.add(CorpusRow("m:1", row_id, audio, text))
    corpus = rows.to_corpus()
    assert corpus.rows == 2
    assert corpus.utterances[0].id == "good"
    for utterance in corpus.utterances:
        assert (root / utterance.audio).resolve().is_relative_to(root.resolve())
        assert (root / utterance.id).resolve().is_relative_to(root.resolve())


@pytest.mark.parametrize("empty", [b";", b";;", b" ; ; ;", b'"";""'])
def test_a_row_of_empty_fields_is_passed_over_whatever_their_number(tmp_path: Path, empty: bytes) -> None:
    (tmp_path / "m.csv").write_bytes(b"audio;text\na.wav;good\n" + empty + b"\nb.wav;fine;x\n")
    rows = RowCollector(tmp_path, "manifest", "en")
    assert [
        fields["text"] for _, fields in read_table(tmp_path / "m.csv", rows, TableHeader(";", ("audio", "text")))
    ] == ["good"]
    assert [rejection.where for rejection in rows.rejections] == ["m.csv:4"]

"""Which columns of a table are taken, and whether its first line is a header."""

from pathlib import Path

import pytest

from tests.corpus.layouts.test_read_as_found import CLIPS, SENTENCES, plain, rows_of_json, sounds, table
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import CorpusError, Reason


@pytest.mark.parametrize(
    ("folder", "row", "columns", "text", "speaker"),
    [
        ("wavs", "{name}|raw|{text}", {"audio": "1", "text": "2"}, "raw", "default"),
        ("wavs", "{name}|anna|{text}", {"speaker": "2"}, SENTENCES[0], "anna"),
        ("clips", "{name}.wav|{text}|other {name}", {"text": "2"}, SENTENCES[0], "default"),
        ("clips", "{name},7", {"audio": "1", "text": "2"}, "7", "default"),
        ("clips", "{name}.wav|anna|{text}", {}, SENTENCES[0], "default"),
    ],
)
def test_positions_choose_columns_and_no_row_is_taken_for_a_header(
    tmp_path: Path, folder: str, row: str, columns: dict[str, str], text: str, speaker: str
) -> None:
    plain(folder, row)(tmp_path)
    corpus = read_corpus(tmp_path, ReadOptions(columns=columns))
    assert (len(corpus.utterances), corpus.rejections) == (len(CLIPS), ())
    assert (corpus.utterances[0].text, corpus.utterances[0].speaker) == (text, speaker)


@pytest.mark.parametrize("gone", ["001", "004", "010"])
@pytest.mark.parametrize("suffix", ["", ".wav"])
def test_a_header_is_no_row_if_a_sound_is_missing(tmp_path: Path, gone: str, suffix: str) -> None:
    plain("clips", f'{{name}}{suffix},"{{text}}",me', "Filename,Spoken text,Who")(tmp_path)
    (tmp_path / "clips" / f"{gone}.wav").unlink()
    corpus = read_corpus(tmp_path)
    assert corpus.reading.to_words() == "--columns 'audio=filename,text=spoken text' --audio-dir clips"
    (rejection,) = corpus.rejections
    assert (rejection.id, rejection.reason, len(corpus.utterances)) == (gone, Reason.AUDIO_MISSING, len(CLIPS) - 1)


def test_a_first_row_of_text_is_no_header_if_sounds_are_missing(tmp_path: Path) -> None:
    names = ["anna hello", "bea evening", "cleo morning", "dora night", "eva noon"]
    sounds(tmp_path)
    for name, number in zip(names, CLIPS, strict=False):
        (tmp_path / f"{number}.wav").rename(tmp_path / f"{name}.wav")
    (tmp_path / "list.csv").write_text("".join(f"{name}|Der Satz {name}.\n" for name in names))
    for gone in (names[0], names[-1]):
        (tmp_path / f"{gone}.wav").unlink()
    corpus = read_corpus(tmp_path)
    assert [row.id for row in corpus.utterances] == names[1:-1]
    assert [row.id for row in corpus.rejections] == [names[0], names[-1]]


@pytest.mark.parametrize("row", ["{name}|{text}", "take {name}.wav|{text}", "take {name}|{text}"])
def test_a_first_row_whose_sound_is_missing_is_no_header(tmp_path: Path, row: str) -> None:
    sounds(tmp_path)
    for path in tmp_path.glob("*.wav") if row.startswith("take") else ():
        path.rename(tmp_path / f"take {path.name}")
    table(tmp_path, "list.csv", row)
    min(tmp_path.glob("*.wav")).unlink()
    corpus = read_corpus(tmp_path)
    assert corpus.reading.to_words() == "--columns audio=1,text=2"
    assert [(rejection.where, rejection.reason) for rejection in corpus.rejections] == [
        ("list.csv:1", Reason.AUDIO_MISSING)
    ]


@pytest.mark.parametrize(
    ("folder", "row", "header", "columns", "message"),
    [
        ("wavs", "{name}|{text}", "", {"text": "9"}, "no column 9; choose from id, text, normalized_text, or pos"),
        ("clips", "{name}.wav,The {name} fox , and {text}", "", {}, "2: The 001 fox; 3: and Tür 1 .*\nadd --columns"),
        ("clips", "{name}.wav,{text},To {name}", "file,german,english", {}, "german: Tür 1 .*; english: To 001\nadd"),
        ("clips", "{name}.wav,{text},To {name}", "a,in german,b", {}, "\nadd --columns 'text=in german', or another"),
        ("clips", "{name}.wav,To {name},{text}", "a,b,in german", {}, "\nadd --columns 'text=in german', or another"),
        ("clips", "{name},7", "", {}, "\nadd --columns audio=1,text=2"),
    ],
)
def test_columns_that_cannot_be_chosen_are_asked_for(
    tmp_path: Path, folder: str, row: str, header: str, columns: dict[str, str], message: str
) -> None:
    plain(folder, row, header)(tmp_path)
    with pytest.raises(CorpusError, match=message):
        read_corpus(tmp_path, ReadOptions(columns=columns))


@pytest.mark.parametrize(
    ("folder", "options", "words"),
    [
        ("clips", ReadOptions(), "--columns audio=1,text=2"),
        ("clips", ReadOptions(columns={"text": "2"}), "--columns audio=1,text=2"),
        ("wavs", ReadOptions(columns={"audio": "1", "text": "2"}), "--columns audio=1,text=2 --audio-dir wavs"),
        ("wavs", ReadOptions("ljspeech", delimiter=","), "--delimiter ','"),
    ],
)
def test_a_text_that_is_the_last_column_may_hold_commas(
    tmp_path: Path, folder: str, options: ReadOptions, words: str
) -> None:
    name = "{name}" if folder == "wavs" else f"{folder}/{{name}}.wav"
    plain(folder, f"{name},{{text}}")(tmp_path)
    path = tmp_path / "metadata.csv"
    text = 'Yes, "well, then", he said, and went'
    path.write_text(path.read_text(encoding="utf-8").replace(SENTENCES[-1], text), encoding="utf-8")

    corpus = read_corpus(tmp_path, options)

    assert (len(corpus.utterances), corpus.rejections) == (len(CLIPS), ())
    assert (corpus.utterances[-1].text, corpus.reading.to_words()) == (text, words)


def test_texts_that_all_hold_commas_are_read_by_the_option_that_the_error_names(tmp_path: Path) -> None:
    sounds(tmp_path, "clips")
    texts = {name: ", ".join(["and"] * (2 + number % 4)) for number, name in enumerate(CLIPS)}
    rows = [f"clips/{name}.wav,{text}\n" for name, text in texts.items()]
    (tmp_path / "list.csv").write_text("".join(rows), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"add --columns audio=1,text=2, with"):
        read_corpus(tmp_path)
    corpus = read_corpus(tmp_path, ReadOptions(columns={"audio": "1", "text": "2"}))
    assert {utterance.id: utterance.text for utterance in corpus.utterances} == {
        f"clips/{name}": text for name, text in texts.items()
    }
    assert corpus.rejections == ()


def test_an_unquoted_comma_under_a_header_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    plain("clips", "clips/{name}.wav,one, two", "file,text")(tmp_path)
    rejections = read_corpus(tmp_path).rejections
    assert {row.detail for row in rejections} == {
        "3 fields; expected 2: file, text; put a text that holds the delimiter in quotes"
    }


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        (",file,text", "{name},{name}.wav,{text}", "--columns audio=file,text=text"),
        ('"","file","text"', '"{name}","{name}.wav","{text}"', "--columns audio=file,text=text"),
        ("file;text;", "{name}.wav;{text};note {name}", "--columns audio=file,text=text"),
        (",aaa,bbb", "7{name},{name}.wav,{text}", "--columns audio=aaa,text=bbb"),
        (",aaa", "{name}.wav,{text}", "--columns audio=1,text=aaa"),
    ],
)
def test_a_column_without_a_name_is_no_speaker_language_or_split(
    tmp_path: Path, header: str, row: str, words: str
) -> None:
    plain("", row, header)(tmp_path)
    corpus = read_corpus(tmp_path)
    assert corpus.rejections == ()
    assert {(row.speaker, row.language, row.split) for row in corpus.utterances} == {("default", "en", None)}
    assert [(row.id, row.text) for row in corpus.utterances] == list(CLIPS.items())
    assert corpus.reading.to_words() == words
    assert read_corpus(tmp_path, corpus.reading).utterances == corpus.utterances


@pytest.mark.parametrize(
    ("header", "row", "text"),
    [
        ('"file"\t"text"', '"{name}.wav"\t"{name}, ""so"" it is"', '{name}, "so" it is'),
        ('"file"|"text"', '"{name}.wav"|"{name}"', "{name}"),
        ("file|text", '{name}.wav|"Come," said {name}, "now"', '"Come," said {name}, "now"'),
        ("file|text", '{name}.wav|"{name}" it is', '"{name}" it is'),
        ("file,text", '{name}.wav, "{name}, you"', "{name}, you"),
        ("file; text", '{name}.wav; "{name}" it is', '"{name}" it is'),
    ],
)
def test_quotes_around_a_whole_field_are_no_part_of_it(tmp_path: Path, header: str, row: str, text: str) -> None:
    plain("", row, header)(tmp_path)
    corpus = read_corpus(tmp_path)
    assert corpus.rejections == ()
    assert [row.text for row in corpus.utterances] == [text.format(name=name) for name in CLIPS]


def test_a_key_of_json_that_may_name_the_speakers_is_noted(tmp_path: Path) -> None:
    sounds(tmp_path)
    names = {"gender": "f", "Who": "ann", "": "bob"}
    rows = rows_of_json(lambda name, text: {"audio": f"{name}.wav", "text": text, **names, "length": 1.5})
    (tmp_path / "list.jsonl").write_text(rows.replace("ann", "eve", 2))
    corpus = read_corpus(tmp_path)
    assert corpus.notes == ("column Who is not used; add --columns speaker=Who if it names the speakers",)
    assert {row.speaker for row in corpus.utterances} == {"default"}
    named = read_corpus(tmp_path, ReadOptions(columns={"speaker": "who"}))
    assert ({row.speaker for row in named.utterances}, named.notes) == ({"ann", "eve"}, ())


def test_a_whole_number_of_json_may_be_a_float_and_no_other_may(tmp_path: Path) -> None:
    sounds(tmp_path)
    rows = rows_of_json(lambda name, text: {"audio": f"{name}.wav", "text": text, "speaker": 7.0})
    (tmp_path / "list.jsonl").write_text(rows.replace("7.0", "null", 1).replace("7.0", "7.5", 1))
    corpus = read_corpus(tmp_path)
    assert [row.speaker for row in corpus.utterances] == ["default", *["7"] * (len(CLIPS) - 2)]
    assert [row.detail for row in corpus.rejections] == ["speaker is neither a string nor a whole number"]

"""A folder is read as people leave it: each layout is made with real sounds, and needs no option."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import soundfile

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import CorpusError, LayoutError

SENTENCES = [f"Tür {number} öffnet sich für grüne Bären." for number in range(1, 11)]
CLIPS = dict(zip((f"{number:03d}" for number in range(1, 11)), SENTENCES, strict=True))


@pytest.fixture(autouse=True)
def users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def sounds(root: Path, folder: str = "", suffix: str = ".wav", prefix: str = "") -> None:
    for number, name in enumerate(CLIPS):
        path = root / folder / f"{prefix}{name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.full(80 + number, 0.1), 8_000)


def table(root: Path, name: str, row: str, header: str = "", encoding: str = "utf-8") -> None:
    """Write a table: `row` has {name} and {text}."""
    lines = ([header] if header else []) + [row.format(name=name, text=text) for name, text in CLIPS.items()]
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("\n".join(lines) + "\n", encoding=encoding)


def rows_of_json(make: Callable[[str, str], dict[str, object]]) -> str:
    return "".join(f"{json.dumps(make(name, text), ensure_ascii=False)}\n" for name, text in CLIPS.items())


def plain(folder: str, row: str, header: str = "", name: str = "metadata.csv", **encoding: str) -> Callable[..., None]:
    def make(root: Path) -> None:
        sounds(root, folder)
        table(root, name, row, header, **encoding)

    return make


def text_beside_sound(root: Path) -> None:
    sounds(root)
    for name, text in CLIPS.items():
        (root / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8-sig")
    (root / "README.txt").write_text("Recorded at home.\n")


def names_in_capitals(root: Path) -> None:
    text_beside_sound(root)
    for path in list(root.iterdir()):
        path.rename(path.with_suffix(path.suffix.upper()))


def speakers_with_text_beside_sound(root: Path) -> None:
    text_beside_sound(root / "anna")


def text_beside_sound_in_wavs(root: Path) -> None:
    text_beside_sound(root / "wavs")


def text_in_a_folder_beside_that_of_the_sounds(root: Path) -> None:
    text_beside_sound(root / "wav")
    (root / "Txt").mkdir()
    for path in (root / "wav").glob("0*.txt"):
        path.rename(root / "Txt" / path.name)


def speakers_with_such_folders(root: Path) -> None:
    text_in_a_folder_beside_that_of_the_sounds(root / "anna")


def speakers_within_wavs(root: Path) -> None:
    text_beside_sound(root / "wavs" / "anna")


def text_beside_labels(root: Path) -> None:
    text_in_a_folder_beside_that_of_the_sounds(root)
    (root / "lab").mkdir()
    for path in (root / "Txt").iterdir():
        (root / "lab" / f"{path.stem}.lab").write_text("0 50000 pau\n")


def nemo(root: Path) -> None:
    sounds(root, "audio")
    rows = rows_of_json(lambda name, text: {"audio_filepath": f"audio/{name}.wav", "text": text, "duration": 0.01})
    (root / "train_manifest.json").write_text(rows)


def nemo_of_another_machine(root: Path) -> None:
    sounds(root, "audio")
    rows = rows_of_json(lambda name, text: {"audio_filepath": f"/data/corpus/audio/{name}.wav", "text": text})
    (root / "manifest.jsonl").write_text(rows)


def audiofolder_of_json_lines(root: Path) -> None:
    sounds(root)
    rows = rows_of_json(lambda name, text: {"file_name": f"{name}.wav", "normalized_text": text})
    (root / "metadata.jsonl").write_text(rows)


def audiofolder_of_splits(root: Path) -> None:
    plain("", "{name}.wav,{text}", "file_name,transcription")(root / "train")
    plain("", "{name}.wav,{text}", "file_name,transcription")(root / "test")


def m_ailabs(root: Path) -> None:
    plain("wavs", "{name}|12|{text}")(root / "de_DE/by_book/female/karlsson/emma")


def m_ailabs_mixed(root: Path) -> None:
    plain("wavs", "{name}|12|{text}")(root / "by_book/mix/emma")


def mls(root: Path) -> None:
    sounds(root, "train/audio/77/88", ".flac", prefix="77_88_")
    table(root, "train/transcripts.txt", "77_88_{name}\t{text}")


def cml_tts(root: Path) -> None:
    sounds(root, "train/audio/77/88")
    header = "wav_filename|wav_filesize|transcript|transcript_wav2vec|levenshtein|duration|num_words|client_id"
    table(root, "train.csv", "train/audio/77/88/{name}.wav|160|{text}|tur|0.9|1.0|6|77", header)


def lhotse(root: Path, suffix: str = ".jsonl") -> None:
    sounds(root, "audio")
    recordings = rows_of_json(
        lambda name, _: {
            "id": name,
            "sources": [{"type": "file", "channels": [0], "source": f"/elsewhere/audio/{name}.wav"}],
            "sampling_rate": 8000,
            "duration": 0.01,
        }
    )
    supervisions = rows_of_json(
        lambda name, text: {
            "id": f"{name}-1", "recording_id": name, "start": 0.0, "duration": 0.01, "text": text, "speaker": "77"
        }
    )  # fmt: skip
    for kind, rows in (("recordings", recordings), ("supervisions", supervisions)):
        data = rows.encode()
        (root / f"mine_{kind}_train{suffix}").write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)


def lhotse_with_gzip(root: Path) -> None:
    lhotse(root, ".jsonl.gz")


def lhotse_with_one_gzip(root: Path) -> None:
    lhotse(root, ".jsonl.gz")
    path = root / "mine_supervisions_train.jsonl.gz"
    (root / "mine_supervisions_train.jsonl").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()


def parquet(root: Path, *, with_sound: bool = True) -> None:
    sounds(root)
    paths = [root / f"{name}.wav" for name in CLIPS]
    audio = (
        [{"bytes": path.read_bytes(), "path": path.name} for path in paths] if with_sound else [p.name for p in paths]
    )
    columns = {"audio": audio, "sentence": SENTENCES, "speaker_id": [77] * len(paths)}
    (root / "data").mkdir()
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "data" / "train-00000-of-00001.parquet")
    if with_sound:
        for path in paths:
            path.unlink()


def parquet_of_paths(root: Path) -> None:
    parquet(root, with_sound=False)


# The maker of each layout; the name that is printed, the options that are found, id and speaker of the first clip,
# its split.
LAYOUTS = {
    "a header file,text": (plain("", '{name}.wav,"{text}"', "file,text"), "manifest", "--columns audio=file,text=text"),
    "Datei;Text": (plain("", "{name}.wav;{text}", "Datei;Text"), "manifest", "--columns audio=datei,text=text"),
    "a header of other words": (
        plain("", '{name},"{text}",5', "aaa,bbb,ccc"), "manifest", "--columns audio=aaa,text=bbb"
    ),
    "UTF-16 of a spreadsheet": (
        plain("", "{name}.wav\t{text}", "file\ttext", encoding="utf-16"),
        "manifest", "--columns audio=file,text=text",
    ),
    "001.wav beside 001.txt": (text_beside_sound, "pairs", ""),
    "001.WAV beside 001.TXT": (names_in_capitals, "pairs", ""),
    "001.wav beside 001.txt in wavs/": (text_beside_sound_in_wavs, "pairs", "", "wavs/001"),
    "001.wav beside 001.txt of a speaker": (speakers_with_text_beside_sound, "pairs", "", "anna/001", "anna"),
    "wav/001.wav and txt/001.txt": (text_in_a_folder_beside_that_of_the_sounds, "pairs", "", "wav/001"),
    "wav/001.wav and txt/001.txt of a speaker": (speakers_with_such_folders, "pairs", "", "anna/wav/001", "anna"),
    "sounds of speakers in wavs": (speakers_within_wavs, "pairs", "", "wavs/anna/001", "anna"),
    "texts beside labels": (text_beside_labels, "pairs", "", "wav/001"),
    "NeMo": (nemo, "manifest", "--columns audio=audio_filepath,text=text", "audio/001", "default", "train"),
    "NeMo of another machine": (
        nemo_of_another_machine, "manifest", "--columns audio=audio_filepath,text=text", "audio/001"
    ),
    "audiofolder": (
        plain("data", "data/{name}.wav,{text}", "file_name,transcription"),
        "manifest", "--columns audio=file_name,text=transcription", "data/001",
    ),
    "audiofolder of JSON lines": (
        audiofolder_of_json_lines, "manifest", "--columns audio=file_name,text=normalized_text"
    ),
    "audiofolder of splits": (
        audiofolder_of_splits, "manifest", "--columns audio=file_name,text=transcription",
        "test/001", "default", "test",
    ),
    "metadata.csv with paths": (
        plain("clips", "clips/{name}.wav|{text}"), "manifest", "--columns audio=1,text=2", "clips/001"
    ),
    "metadata.csv with paths of Windows": (
        plain("clips", r"C:\voice\clips\{name}.wav;{text}", "path;sentence"),
        "manifest", "--columns audio=path,text=sentence", "clips/001",
    ),
    "names relative to clips/": (
        plain("clips", "{name}.wav\t{text}", "path\tsentence", "table.tsv"),
        "manifest", "--columns audio=path,text=sentence --audio-dir clips",
    ),
    "names relative to a folder within a folder": (
        plain("session/one", "{name},{text}", "file,text"),
        "manifest", "--columns audio=file,text=text --audio-dir session/one",
    ),
    "LJSpeech": (plain("wavs", "{name}|12|{text}"), "ljspeech", ""),
    "LJSpeech with a speaker": (plain("wavs", "{name}|{text}|anna"), "ljspeech", ""),
    "LJSpeech of four columns": (
        plain("wavs", "{name}|anna|en|{text}"), "manifest", "--columns audio=1,text=4 --audio-dir wavs"
    ),
    "LJSpeech with a header": (
        plain("wavs", "{name}|12|{text}", "id|number|text"),
        "manifest", "--columns text=text,id=id,audio=id --audio-dir wavs",
    ),
    "LJSpeech with paths": (plain("wavs", "wavs/{name}.wav|{text}"), "ljspeech", "--audio-dir .", "wavs/001"),
    "Thorsten": (plain("wavs", "{name}|{text}"), "ljspeech", ""),
    "Thorsten with lengths": (plain("wavs", "{name}|{text}|37"), "ljspeech", ""),
    "CSS10": (
        plain("emma", "emma/{name}.wav|12|{text}|1.5", name="transcript.txt"),
        "manifest", "--columns audio=1,text=3", "emma/001",
    ),
    "Common Voice": (
        plain("clips", "77\t{name}.wav\t{text}\tde", "client_id\tpath\tsentence\tlocale", "validated.tsv"),
        "common_voice", "", "001", "77",
    ),
    "Coqui": (
        plain("wavs", "wavs/{name}.wav|{text}|77", "audio_file|text|speaker_name"), "coqui", "", "wavs/001", "77"
    ),
    "Coqui with other columns": (
        plain("wavs", "wavs/{name}.wav|{text}|77|val", "audio_file|text|speaker|split"),
        "coqui", "", "wavs/001", "77", "val",
    ),
    "M-AILABS": (m_ailabs, "m_ailabs", "", "de_DE/by_book/female/karlsson/emma/001", "karlsson"),
    "M-AILABS, mixed": (m_ailabs_mixed, "m_ailabs", "", "by_book/mix/emma/001", "mix"),
    "MLS": (mls, "mls", "", "77_88_001", "77", "train"),
    "CML-TTS": (
        cml_tts, "manifest", "--columns audio=wav_filename,text=transcript,speaker=client_id",
        "train/audio/77/88/001", "77", "train",
    ),
    "lhotse": (lhotse, "lhotse", "", "001-1", "77", "train"),
    "lhotse with gzip": (lhotse_with_gzip, "lhotse", "", "001-1", "77", "train"),
    "lhotse with one gzip": (lhotse_with_one_gzip, "lhotse", "", "001-1", "77", "train"),
    "parquet": (
        parquet, "parquet", "--columns audio=audio,text=sentence,speaker=speaker_id",
        "train-00000-of-00001/000001", "77", "train",
    ),
    "parquet of paths": (
        parquet_of_paths, "parquet", "--columns audio=audio,text=sentence,speaker=speaker_id",
        "train-00000-of-00001/000001", "77", "train",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_layout_is_read_without_an_option(tmp_path: Path, kind: str) -> None:
    make, layout, found, *rest = LAYOUTS[kind]
    row_id, speaker, split = [*rest, *["001", "default", None][len(rest) :]]
    make(tmp_path)
    corpus = read_corpus(tmp_path)
    assert (corpus.reading.layout, corpus.reading.to_words()) == (layout, found)
    assert corpus.rejections == ()
    assert [row.text for row in corpus.utterances[:10]] == SENTENCES
    first = corpus.utterances[0]
    assert (first.id, first.speaker, first.split) == (row_id, speaker, split)
    lengths = [soundfile.info(corpus.root / row.audio).frames for row in corpus.utterances[:10]]
    assert lengths == list(range(80, 90))
    # What was found, given as options, reads the same.
    again = read_corpus(tmp_path, corpus.reading)
    assert (again.utterances, again.reading) == (corpus.utterances, corpus.reading)


@pytest.mark.parametrize(
    ("make", "remedy", "options"),
    [
        (
            plain("", "{name}.wav;{text}", "Datei;Text", encoding="cp1252"),
            "add --encoding cp1252 if line 2 is: 001.wav;Tür 1 öffnet",
            ReadOptions(encoding="cp1252"),
        ),
        (
            plain("wavs", "{name}|{text}", encoding="cp1252"),
            "add --encoding cp1252 if line 1 is: 001|Tür 1 öffnet",
            ReadOptions(encoding="cp1252"),
        ),
        (
            plain("", "{name}.wav;{text}", "Datei;Größe und Text", encoding="cp1252"),
            "add --encoding cp1252 if line 1 is: Datei;Größe und Text;",
            ReadOptions(encoding="cp1252", columns={"audio": "datei", "text": "größe und text"}),
        ),
        (plain("", "{name}.wav~{text}", "file~text"), "add --delimiter '~'", ReadOptions(delimiter="~")),
    ],
)
def test_what_cannot_be_guessed_is_asked_for_by_its_option(
    tmp_path: Path, make: Callable[[Path], None], remedy: str, options: ReadOptions
) -> None:
    make(tmp_path)
    with pytest.raises(LayoutError) as raised:
        read_corpus(tmp_path)
    _, second = str(raised.value).split("\n")
    assert second.startswith(remedy)
    corpus = read_corpus(tmp_path, options)
    assert [row.text for row in corpus.utterances] == SENTENCES
    assert corpus.rejections == ()


def test_sounds_may_lie_outside_of_the_folder_of_the_table(tmp_path: Path) -> None:
    table(tmp_path / "texts", "list.csv", "{name}.wav,{text}", "file,text")
    sounds(tmp_path / "sounds", "one")
    options = ReadOptions(audio_dir=str(tmp_path / "sounds" / "one"))
    corpus = read_corpus(tmp_path / "texts", options)
    assert corpus.root == (tmp_path / "sounds" / "one").resolve()
    first = corpus.utterances[0]
    assert (first.id, first.audio.name, first.where) == ("001", "001.wav", "list.csv:2")
    with pytest.raises(CorpusError, match=r"--audio-dir \.\./nowhere: no such folder"):
        read_corpus(tmp_path / "texts", ReadOptions(audio_dir="../nowhere"))


@pytest.mark.parametrize(
    ("audio_dir", "seen"),
    [("data/sounds", "sounds"), ("sounds", "sounds"), ("other/sounds", "../other/sounds"), ("link", "link")],
)
def test_the_folder_of_the_sounds_is_named_from_the_corpus_or_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audio_dir: str, seen: str
) -> None:
    table(tmp_path / "data", "list.csv", "{name}.wav,{text}", "file,text")
    sounds(tmp_path / "data" if audio_dir.endswith("sounds") and seen == "sounds" else tmp_path / "other", "sounds")
    (tmp_path / "data" / "link").symlink_to(tmp_path / "other" / "sounds")
    monkeypatch.chdir(tmp_path)
    corpus = read_corpus(Path("data"), ReadOptions(audio_dir=audio_dir))
    assert [row.text for row in corpus.utterances] == SENTENCES
    assert corpus.reading.audio_dir == seen


def test_columns_choose_among_those_that_are_there(tmp_path: Path) -> None:
    plain("wavs", "{name}|raw {text}|{text}")(tmp_path)
    raw = read_corpus(tmp_path, ReadOptions(columns={"text": "text"}))
    assert raw.utterances[0].text == f"raw {SENTENCES[0]}"
    assert raw.reading.to_words() == "--columns text=text"
    assert read_corpus(tmp_path).utterances[0].text == SENTENCES[0]


def test_given_columns_choose_no_layout_and_leave_the_speaker(tmp_path: Path) -> None:
    plain("clips", "clips/{name}.wav;{text};anna", "Datei;Text;Sprecher")(tmp_path)
    corpus = read_corpus(tmp_path, ReadOptions(columns={"audio": "datei", "text": "text"}))
    assert (corpus.reading.layout, corpus.utterances[0].speaker) == ("manifest", "anna")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_characters_without_a_byte_order_mark_are_little_endian(tmp_path: Path, encoding: str) -> None:
    plain("", "{name}.wav\t{text}", "file\ttext", encoding=f"{encoding}-le")(tmp_path)
    corpus = read_corpus(tmp_path, ReadOptions(encoding=encoding))
    assert [row.text for row in corpus.utterances] == SENTENCES


def test_an_empty_table_beside_the_one_with_the_columns_is_passed_over(tmp_path: Path) -> None:
    plain("wavs", "{name}|{text}")(tmp_path)
    (tmp_path / "notes.txt").touch()
    corpus = read_corpus(tmp_path, ReadOptions(columns={"audio": "1", "text": "2"}))
    assert [row.text for row in corpus.utterances] == SENTENCES


@pytest.mark.parametrize("table", ["recordings", "supervisions"])
@pytest.mark.parametrize("wrong", [[1], {"a": 1}, None])
def test_an_id_of_lhotse_that_is_no_string_rejects_its_rows(tmp_path: Path, table: str, wrong: object) -> None:
    lhotse(tmp_path)
    path = next(tmp_path.glob(f"*{table}*"))
    key = "id" if table == "recordings" else "recording_id"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), key: wrong}), *others]) + "\n")
    corpus = read_corpus(tmp_path)
    assert len(corpus.utterances) == len(SENTENCES) - 1
    assert "expected an id there" in corpus.rejections[0].detail


def test_a_layout_refuses_options_that_it_has_no_use_for(tmp_path: Path) -> None:
    text_beside_sound(tmp_path)
    with pytest.raises(CorpusError, match=r"a pairs corpus has no use for --delimiter ';'; leave it out"):
        read_corpus(tmp_path, ReadOptions("pairs", delimiter=";"))


@pytest.mark.parametrize(
    ("option", "audio_dir", "expected"),
    [
        ("sounds", "", "sounds"),
        ("", "", "home/xtts_pipeline"),
        ("", "{root}/outside", "outside"),
        ("", "in", "data/in"),
    ],
)
def test_sounds_of_parquet_files_go_to_the_users_cache_or_where_they_are_told(
    tmp_path: Path, option: str, audio_dir: str, expected: str
) -> None:
    parquet(tmp_path / "data")
    for folder in ("outside", "data/in"):
        (tmp_path / folder).mkdir()
    before = set(tmp_path.rglob("*"))
    options = ReadOptions(audio_dir=audio_dir.format(root=tmp_path))
    corpus = read_corpus(tmp_path / "data", options, sound_folder=tmp_path / option if option else None)
    assert (len(corpus.utterances), corpus.rejections) == (len(CLIPS), ())
    assert all((corpus.root / row.audio).is_file() for row in corpus.utterances)
    written = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(corpus.root) for path in written if path.is_file())
    assert corpus.root.is_relative_to(tmp_path / expected)
    again = read_corpus(tmp_path / "data", corpus.reading, sound_folder=tmp_path / option if option else None)
    assert (again.root, again.utterances) == (corpus.root, corpus.utterances)
    assert set(tmp_path.rglob("*")) - before == written


def test_a_part_of_a_recording_is_no_clip(tmp_path: Path) -> None:
    lhotse(tmp_path)
    path = tmp_path / "mine_supervisions_train.jsonl"
    path.write_text(path.read_text().replace('"start": 0.0', '"start": 0.5', 1))
    (rejection,) = read_corpus(tmp_path).rejections
    assert (rejection.where, "is a part of the recording" in rejection.detail) == (f"{path.name}:1", True)

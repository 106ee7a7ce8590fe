"""How a corpus was read: said by options, printed, stored in the manifest, and used by `verify-cache`."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.cache.corpora import SETTINGS, build, modification_times, write_corpus, write_metadata
from tests.calling import xtts
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.verify.recompute import check_sources
from xtts_pipeline.cli import main
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, LayoutError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A table in another encoding, with other column names, beside a folder of sounds."""
    root = write_corpus(tmp_path / "data")
    rows = "".join(f"clip-{number:03d}.wav;Tür {number}\n" for number in range(40))
    (root / "metadata.csv").unlink()
    (root / "Texte.csv").write_text(f"Datei;Text\n{rows}", encoding="cp1252")
    return root


def test_how_a_folder_is_read_is_printed_as_options(data: Path) -> None:
    words = ("preprocess", "--data", data, "--dry-run", "--jobs", 1, *SETTINGS, "--set=text.language=de")
    refused = xtts(*words).exception
    assert isinstance(refused, LayoutError)
    found, remedy = str(refused).split("\n")
    assert found == f"{data / 'Texte.csv'}: 40 lines are not UTF-8, the first is line 2"
    assert remedy.startswith("add --encoding cp1252 if line 2 is: clip-000.wav;Tür 0;")
    read = xtts(*words, "--encoding", "cp1252")
    options = "--columns audio=datei,text=text --audio-dir wavs --encoding cp1252"
    assert (read.stderr, read.exit_code) == (f"read by --layout manifest {options}\n", 0)


def test_the_manifest_has_how_a_folder_was_read_and_verification_reads_it_so(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(data, cache, reading=ReadOptions(encoding="cp1252"))
    (reading,) = load_manifest(cache).readings
    assert reading == ReadOptions("manifest", {"audio": "datei", "text": "text"}, "wavs", "", "cp1252")
    assert check_sources(cache, data, 3) == (3, ())


def test_sounds_named_from_the_current_folder_are_found_from_another(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    (data / "wavs").rename(tmp_path / "sounds")
    monkeypatch.chdir(tmp_path)
    build(data, cache, reading=ReadOptions(audio_dir="sounds", encoding="cp1252"))
    monkeypatch.chdir("/")
    assert load_manifest(cache).first_reading.audio_dir == "../sounds"
    assert check_sources(cache, data, 3) == (3, ())


def test_a_layout_that_says_all_leaves_the_manifest_as_it_was(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data"), tmp_path / "cache")
    assert "readings" not in (tmp_path / "cache" / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("column", "speakers", "given", "note"),
    [
        ("Who", ["ann", "bob"], "", "column who is not used; add --columns speaker=who if it names the speakers\n"),
        (
            "By", ["ann", "bob"], "audio=datei,text=text",
            "column by is not used; add --columns audio=datei,text=text,speaker=by if it names the speakers\n",
        ),
        ("Who", ["ann", "bob"], "speaker=who", ""),
        ("Narrator", ["ann", "bob"], "", ""),
        ("Who", ["ann"], "", ""),
        ("Who", [f"take {number}" for number in range(20)], "", ""),
        ("Rate", ["22050", "44100"], "", ""),
        ("Gender", ["m", "f"], "", ""),
        ("Part", ["train", "Test"], "", ""),
    ],
)  # fmt: skip
def test_a_column_that_may_name_the_speakers_is_noted(
    tmp_path: Path, column: str, speakers: list[str], given: str, note: str
) -> None:
    root = write_corpus(tmp_path / "data")
    (root / "metadata.csv").unlink()
    rows = "".join(
        f"clip-{number:03d}.wav;Text {number};{speakers[number * len(speakers) // 40]}\n" for number in range(40)
    )
    (root / "list.csv").write_text(f"Datei;Text;{column}\n{rows}")
    words = ("preprocess", "--data", root, "--dry-run", "--jobs", 1, *SETTINGS)
    read = xtts(*words, *(["--columns", given] if given else []))
    first, rest = read.stderr.split("\n", 1)
    assert (first.startswith("read by --layout manifest"), rest, read.exit_code) == (True, note, 0)


@pytest.mark.parametrize(("name", "prefix"), [("metadata.csv", ""), ("filelist.txt", "wavs/")])
def test_speakers_in_a_table_without_a_header_are_noted(tmp_path: Path, name: str, prefix: str) -> None:
    root = write_corpus(tmp_path / "data")
    (root / "metadata.csv").unlink()
    ending = ".wav" if prefix else ""
    rows = [
        f"{prefix}clip-{number:03d}{ending}|{'ann' if number % 2 else 'bob'}|Text {number}\n" for number in range(40)
    ]
    (root / name).write_text("".join(rows))
    words = ("preprocess", "--data", root, "--dry-run", "--jobs", 1, *SETTINGS)
    note = "column 2 is not used; add --columns speaker=2 if it names the speakers"
    assert xtts(*words).stderr.splitlines()[-1] == note
    read = xtts(*words, "--columns", "speaker=2")
    assert (read.exit_code, "not used" in read.stderr) == (0, False)


def test_an_error_of_a_layout_is_two_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_options: object) -> None:
        raise LayoutError("found   this", "do\tthat")

    monkeypatch.setattr(main, "cli", fail)
    with pytest.raises(SystemExit, match="2"):
        main._run(debug=False)
    assert capsys.readouterr().err == "xtts: found   this\ndo that\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--columns", "sound=file"], "sound: unknown; known are audio, text"),
        (["--columns", "audio"], "'audio' is not ROLE=COLUMN"),
        (["--columns", "text=a,audio=b,text=c"], "text is given twice; expected one column for each role"),
        (["--encoding", "cp99999"], "'cp99999' is no text encoding"),
    ],
)
def test_a_wrong_option_is_a_usage_error(data: Path, words: list[str], problem: str) -> None:
    result = xtts("preprocess", "--data", data, *words)
    assert (result.exit_code, problem in result.output) == (2, True)


def test_a_corpus_that_has_no_clip_for_validation_is_a_warning(tmp_path: Path) -> None:
    root = write_corpus(tmp_path / "data", 4)
    (root / "metadata.csv").unlink()
    rows = "".join(f"wavs/clip-{number:03d}.wav,clip {number},train\n" for number in range(4))
    (root / "list.csv").write_text(f"file,text,split\n{rows}")
    done = xtts("preprocess", "--data", root, "--cache", tmp_path / "cache", "--jobs", 1, *SETTINGS)
    assert "no clip is for validation, since the corpus names the split of all clips" in done.output


@pytest.mark.parametrize("is_known", [False, True])
def test_validation_clips_with_texts_of_the_training_are_a_warning(tmp_path: Path, is_known: bool) -> None:
    root = write_corpus(tmp_path / "data", 4)
    (root / "metadata.csv").unlink()
    texts = ["the one", "the other", "the one" if is_known else "a third", "a fourth"]
    rows = "".join(
        f"wavs/clip-{number:03d}.wav,{text},{split}\n"
        for number, (text, split) in enumerate(zip(texts, ("train", "train", "val", "val"), strict=True))
    )
    (root / "list.csv").write_text(f"file,text,split\n{rows}")
    done = xtts("preprocess", "--data", root, "--cache", tmp_path / "cache", "--jobs", 1, *SETTINGS)
    warning = "warning: 1 of 2 validation clips have the text of a training clip"
    assert (done.exit_code, warning in done.output) == (0, is_known)


@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--reshard"]])
def test_a_cache_of_another_corpus_is_refused_and_stays(tmp_path: Path, options: list[str]) -> None:
    data, cache = write_corpus(tmp_path / "data", 20), tmp_path / "cache"
    build(data, cache)
    before = modification_times(cache)
    write_corpus(tmp_path / "other", 40)
    write_metadata(tmp_path / "other", 40, changed={number: f"other words {number}" for number in range(40)})
    for path in (tmp_path / "other" / "wavs").iterdir():
        path.write_bytes(path.read_bytes() + bytes(2))
    refused = xtts("preprocess", "--data", tmp_path / "other", "--cache", cache, "--jobs", 1, *options)
    assert isinstance(refused.exception, CacheError)
    assert str(refused.exception).startswith(f"{cache}: holds 20 clips of another corpus, and {tmp_path / 'other'} has")
    assert modification_times(cache) == before


def test_a_dry_run_of_parquet_files_reuses_the_shards_of_a_finished_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    sounds = sorted((write_corpus(tmp_path / "data", 4) / "wavs").iterdir())
    texts = [f"clip {number}" for number in range(4)]
    table = pyarrow.table({"audio": [{"bytes": path.read_bytes(), "path": ""} for path in sounds], "text": texts})
    (tmp_path / "tables").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "tables" / "train.parquet")
    build(tmp_path / "tables", tmp_path / "cache")
    words = ("--data", tmp_path / "tables", "--cache", tmp_path / "cache", "--jobs", 1, "--json", *SETTINGS)
    foreseen = json.loads(xtts("preprocess", "--dry-run", *words).stdout)
    assert (foreseen["shards_to_write"], foreseen["bytes_to_write"]) == (0, 0)

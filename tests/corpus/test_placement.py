"""A sound that a table names is found where it lies, and never chosen among namesakes."""

import unicodedata
from pathlib import Path

import pytest

from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import LayoutError, Reason

NAMES = [f"{number:03d}.wav" for number in range(6)]


def corpus(root: Path, *folders: str, names: list[str] = NAMES, said: str = "{}") -> Path:
    """Make a table of bare names, and empty sounds with these names in each folder."""
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / folder / name).touch()
    rows = "".join(f"{said.format(name)},Text {number}\n" for number, name in enumerate(NAMES))
    (root / "list.csv").write_text(f"file,text\n{rows}", encoding="utf-8")
    return root


@pytest.mark.parametrize(("folders", "chosen"), [(("old takes", "wav"), "old takes"), (("x/a/y", "x/b/y"), "x/a")])
def test_names_that_two_folders_have_must_be_chosen_by_an_option(
    tmp_path: Path, folders: tuple[str, str], chosen: str
) -> None:
    corpus(tmp_path, *folders)
    with pytest.raises(LayoutError) as raised:
        read_corpus(tmp_path)
    found, remedy = str(raised.value).split("\n")
    first, second = folders
    assert found.endswith(
        f"6 of the first 6 names are those of several sounds, such as {first}/000.wav and {second}/000.wav"
    )
    quoted = f"'{first}'" if " " in first else first
    assert remedy == f"add --audio-dir {quoted} or --audio-dir {second}, or write the paths into the table"
    read = read_corpus(tmp_path, ReadOptions(audio_dir=chosen))
    assert ([row.audio.as_posix() for row in read.utterances], read.rejections) == ([f"{first}/{n}" for n in NAMES], ())


def test_a_path_in_the_table_chooses_among_namesakes(tmp_path: Path) -> None:
    corpus(tmp_path, "data/raw", "data/clean", said="/home/me/clean/{}")
    assert {row.audio.parent.as_posix() for row in read_corpus(tmp_path).utterances} == {"data/clean"}


def test_a_sound_where_the_table_says_has_no_namesake(tmp_path: Path) -> None:
    corpus(tmp_path, "", "denoised")
    assert [row.audio.as_posix() for row in read_corpus(tmp_path).utterances] == NAMES


def test_sounds_of_one_table_may_lie_in_two_folders(tmp_path: Path) -> None:
    corpus(tmp_path, "a", names=NAMES[:3])
    corpus(tmp_path, "b/deep", names=NAMES[3:])
    read = read_corpus(tmp_path)
    assert [row.audio.parent.as_posix() for row in read.utterances] == ["a"] * 3 + ["b/deep"] * 3
    assert (read.rejections, read.reading.audio_dir) == ((), "")


def test_a_single_namesake_is_one_rejected_row_that_names_both_paths(tmp_path: Path) -> None:
    corpus(tmp_path, "a", names=NAMES[:4])
    corpus(tmp_path, "b", names=NAMES[3:])
    read = read_corpus(tmp_path)
    (rejection,) = read.rejections
    assert (len(read.utterances), rejection.where, rejection.reason) == (5, "list.csv:5", Reason.BAD_ROW)
    expected = "write the path into the table, or name its folder by --audio-dir"
    assert rejection.detail == f"a/003.wav and b/003.wav both fit 003.wav; {expected}"


def test_a_row_too_long_for_the_sample_hides_no_folder(tmp_path: Path) -> None:
    corpus(tmp_path, "clips")
    table = tmp_path / "list.csv"
    table.write_text(table.read_text().replace("Text 0", "a " * 600_000))
    read = read_corpus(tmp_path)
    assert ([row.id for row in read.utterances], read.reading.audio_dir) == ([name[:3] for name in NAMES[1:]], "clips")
    assert [rejection.reason for rejection in read.rejections] == [Reason.BAD_ROW]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_fit_in_either_form_of_unicode(tmp_path: Path, form: str) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / unicodedata.normalize(form, "Größe é.wav")).touch()
    other = unicodedata.normalize("NFD" if form == "NFC" else "NFC", "Größe é.wav")
    (tmp_path / "list.csv").write_text(f"file,text\n{other},Text\n", encoding="utf-8")
    (row,) = read_corpus(tmp_path).utterances
    assert (tmp_path / row.audio).is_file()


@pytest.mark.parametrize("start", ["\n\n", "sep=;\n", "\ufeffsep=;\r\n\n", "sep=\t\n", "sep=\t \n"])
@pytest.mark.parametrize(("header", "columns"), [("Datei;Text", "audio=datei,text=text"), ("a;b", "audio=a,text=b")])
def test_rows_begin_behind_blank_lines_and_the_separator_line_of_excel(
    tmp_path: Path, start: str, header: str, columns: str
) -> None:
    corpus(tmp_path, "clips")
    rows = "".join(f"{name};Text, {number}\n" for number, name in enumerate(NAMES))
    table = f"{header}\n{rows};\n".replace(";", "\t" if "\t" in start else ";")
    (tmp_path / "list.csv").write_text(start + table, encoding="utf-8")
    read = read_corpus(tmp_path)
    assert (len(read.utterances), read.rejections) == (6, ())
    assert read.reading.to_words() == f"--columns {columns} --audio-dir clips"


@pytest.mark.parametrize("suffix", [".wave", ".oga", ".m4a", ".AIFF", ".sph", ""])
@pytest.mark.parametrize("folder", ["", "clips"])
def test_a_sound_that_the_table_names_exactly_is_found_whatever_its_suffix(
    tmp_path: Path, folder: str, suffix: str
) -> None:
    names = [f"{number:03d}{suffix}" for number in range(6)]
    corpus(tmp_path, folder, names=names)
    said = [f"{folder}/{name}".lstrip("/") for name in names]
    (tmp_path / "list.csv").write_text("file,text\n" + "".join(f"{name},Text\n" for name in said))
    read = read_corpus(tmp_path)
    assert ([row.audio.as_posix() for row in read.utterances], read.rejections) == (said, ())


def test_names_of_a_format_that_is_not_read_fit_the_converted_sounds(tmp_path: Path) -> None:
    for folder in ("", "clips"):
        corpus(tmp_path / f"in-{folder}", folder, names=[*NAMES[:3], *(f"{name[:3]}.m4a" for name in NAMES)])
        table = tmp_path / f"in-{folder}" / "list.csv"
        table.write_text(table.read_text().replace(".wav", ".m4a"))
        read = read_corpus(table.parent)
        assert [row.audio.name for row in read.utterances] == [*NAMES[:3], "003.m4a", "004.m4a", "005.m4a"]
        assert read.rejections == ()


def test_a_missing_sound_is_named_as_the_table_names_it(tmp_path: Path) -> None:
    corpus(tmp_path, "", names=["000.m4a"])
    (tmp_path / "list.csv").write_text("file,text\n000.m4a,Text\n007.m4a,Text\n")
    (rejection,) = read_corpus(tmp_path).rejections
    assert (rejection.reason, rejection.detail) == (
        Reason.AUDIO_MISSING,
        "no sound file 007.m4a; the nearest name there is 000.m4a",
    )


def test_a_folder_is_no_sound(tmp_path: Path) -> None:
    corpus(tmp_path, "")
    (tmp_path / "anna").mkdir()
    (tmp_path / "list.csv").write_text("file,text\nanna,Text\n000.wav,Text\n")
    assert [row.reason for row in read_corpus(tmp_path).rejections] == [Reason.AUDIO_MISSING]


def test_a_text_beside_a_sound_of_a_format_that_is_not_read_is_its_transcript(tmp_path: Path) -> None:
    for name in ("0.m4a", "1.m4a", "1.flac"):
        (tmp_path / name).touch()
        (tmp_path / f"{name[0]}.txt").write_text("Text")
    assert [row.audio.name for row in read_corpus(tmp_path).utterances] == ["0.m4a", "1.flac"]


def test_a_converted_sound_in_another_folder_is_taken_for_its_original(tmp_path: Path) -> None:
    corpus(tmp_path, "wavs")
    corpus(tmp_path, "originals", names=[name.replace("wav", "m4a") for name in NAMES])
    table = tmp_path / "list.csv"
    table.write_text(table.read_text().replace("wav", "m4a"))
    assert [row.audio.as_posix() for row in read_corpus(tmp_path).utterances] == [f"wavs/{name}" for name in NAMES]

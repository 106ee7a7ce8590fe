"""What a user sees of the speakers and languages of a corpus."""

import json
from pathlib import Path

import pytest

from tests.cache.corpora import SETTINGS, write_clip
from tests.calling import xtts
from xtts_pipeline.cli.clip_counts import clip_count_lines, like_speakers_warnings

COUNTS = ["speakers: ann lee 3, Ann Lee 2, bob 1", "languages: de 4, en 2"]
WARNING = "warning: speakers 'Ann Lee', 'ann lee' differ in case or spaces alone; if they are one, give it one name in "


def run(*words: object) -> tuple[str, str]:
    result = xtts(*words, *SETTINGS, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    speakers = ("ann lee", "ann lee", "ann lee", "Ann Lee", "Ann Lee", "bob")
    rows = ["audio,text,speaker,language"]
    for number, speaker in enumerate(speakers):
        write_clip(tmp_path / "data", f"c{number}")
        rows.append(f"wavs/c{number}.wav,one two,{speaker},{'de' if number < 4 else 'en'}")
    (tmp_path / "data" / "list.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "data"


def test_clips_of_each_speaker_and_language_are_shown_where_there_are_several(data: Path, tmp_path: Path) -> None:
    printed, _ = run("preprocess", "--data", data, "--cache", tmp_path / "cache", "--jobs", 1)
    assert printed.splitlines()[2:4] == COUNTS
    assert WARNING in printed
    for source in (("--data", data), ("--cache", tmp_path / "cache")):
        printed, warnings = run("stats", *source)
        assert [line.strip() for line in printed.splitlines()[1:3]] == COUNTS
        assert WARNING in warnings
        report = json.loads(run("stats", *source, "--json")[0])
        assert (report["speakers"], report["clips_by_language"]) == (3, {"de": 4, "en": 2})


def test_rows_that_the_user_left_out_are_not_called_unusable(data: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("wavs/c5\nwavs/c0\n")
    run("preprocess", "--data", data, "--cache", tmp_path / "cache", "--jobs", 1, "--exclude", tmp_path / "ids.txt")
    assert "4 clips, 0.00 hours, 2 speakers, 2 rows left out\n" in run("stats", "--cache", tmp_path / "cache")[0]


def test_one_speaker_needs_no_line() -> None:
    assert list(clip_count_lines({"ann": 7}, {"en": 7})) == []


@pytest.mark.parametrize("alike", [["Ann", "ann"], ["ann lee", "annlee"], ["STRASSE", "straße"]])
def test_names_that_differ_in_case_or_spaces_are_named(alike: list[str]) -> None:
    (warning,) = like_speakers_warnings(["bob", *alike])
    assert all(repr(name) in warning for name in alike)
    assert "bob" not in warning

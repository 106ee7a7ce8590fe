"""Exit codes and output of the program `xtts verify-cache`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.calling import start_xtts
from tests.damage import flip_bit

SHARD = "train-00001-of-00003.tfrecord"


def verify(*words: object) -> subprocess.CompletedProcess[str]:
    return start_xtts("verify-cache", *words)


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_sound_cache_exits_with_0(cache: Path, level: str) -> None:
    result = verify("--cache", cache, "--level", level, "--json")

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["valid"] is True


def test_a_flipped_bit_exits_with_1_and_names_the_file(cache: Path) -> None:
    flip_bit(cache / SHARD, -1)

    as_json, as_text = verify("--cache", cache, "--json"), verify("--cache", cache)

    assert as_json.returncode == as_text.returncode == 1
    assert {problem["kind"] for problem in json.loads(as_json.stdout)["problems"]} == {"checksum", "record"}
    assert as_text.stdout.startswith(f"checksum    {SHARD}: found ")
    assert as_text.stdout.splitlines()[-1].startswith("NOT VALID (full), 2 problems: ")


def test_no_cache_exits_with_2_and_one_line(tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        result = verify("--cache", folder, "--json")

        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        assert "run xtts preprocess" in result.stderr


def test_any_other_folder_exits_with_1(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")

    assert verify("--cache", tmp_path).returncode == 1


def test_deep_without_a_corpus_is_a_usage_error(cache: Path) -> None:
    result = verify("--cache", cache, "--level", "deep")

    assert result.returncode == 2
    assert "add --data DIR" in result.stderr


@pytest.mark.parametrize("options", [["--data", "corpus"], ["--level", "quick", "--data", "corpus"], ["--sample", "3"]])
def test_an_option_that_nothing_would_use_is_a_usage_error(cache: Path, options: list[str]) -> None:
    result = verify("--cache", cache, *options)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"xtts: {options[-2]}: only --level deep ")

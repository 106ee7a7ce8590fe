"""What surrounds a command does not change it: the current folder, closed streams, and names from others."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cache.corpora import SETTINGS, write_corpus
from tests.calling import xtts
from xtts_pipeline.cache.verify.verify import verify_cache

PACKAGE = Path(__file__).parents[2] / "xtts_pipeline"
FORGED = "x\nvalid (full): 34 records, 4 shards, 0.1 MB\n\x1b[2J\u202e"
HOSTILE_MODULE = """
import pathlib
pathlib.Path(__file__).with_suffix(".imported").touch()
"""


def start(
    *arguments: object, options: tuple[str, ...] = (), redirections: str = "", cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `xtts` in a process of its own; `options` are Python's, `more` is added to the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | more
    command = [sys.executable, *options, "-m", "xtts_pipeline", *map(str, arguments)]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "path"),
    [((), ""), ((), str(PACKAGE.parent)), (("-P",), str(PACKAGE.parent))],
    ids=["plain", "PYTHONPATH", "safe parent and PYTHONPATH"],
)
def test_no_module_beside_a_corpus_is_imported(tmp_path: Path, options: tuple[str, ...], path: str) -> None:
    data = write_corpus(tmp_path / "data", 4)
    for module in ("click", "joblib", "multiprocessing", "numpy", "pydantic", "signal", "soxr", "types"):
        (data / f"{module}.py").write_text(HOSTILE_MODULE)

    words = ("preprocess", "--data", ".", "--cache", "../cache", *SETTINGS)
    made = start(*words, options=options, cwd=data, PYTHONPATH=path)
    # A command that runs others; its corpus is missing.
    shown = start("demo", "--data", "none", "--output", "../demo", options=options, cwd=data, PYTHONPATH=path)

    assert (made.returncode, shown.returncode) == (0, 2), made.stderr + shown.stderr
    assert "none: cannot be read" in shown.stderr
    assert list(data.glob("*.imported")) == []


@pytest.mark.parametrize("redirections", [">&-", "2>&-", "2>/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize("damage", [0, 1])
def test_closed_streams_leave_the_exit_code_alone(cache: Path, redirections: str, damage: int) -> None:
    with (cache / "utterances.jsonl").open("ab") as file:
        file.write(damage * b"x")
    assert start("verify-cache", "--level", "quick", "--cache", cache, redirections=redirections).returncode == damage


@pytest.mark.parametrize("redirections", ["<&- >&- 2>&-", "2>/dev/full"])
def test_a_cache_that_is_made_without_streams_is_whole(tmp_path: Path, redirections: str) -> None:
    data = write_corpus(tmp_path / "data", 4)
    made = start("preprocess", "--data", data, "--cache", tmp_path / "cache", *SETTINGS, redirections=redirections)
    assert made.returncode == 0
    assert verify_cache(tmp_path / "cache").valid


@pytest.mark.parametrize("name", ["caf\udce9", "two\nlines", "two\u2028lines"])
@pytest.mark.parametrize(
    "arguments", [["verify-cache", "--cache"], ["preprocess", "--data", ".", "--cache"], ["train", "--output"]]
)
def test_a_path_that_cannot_be_printed_is_refused_at_once(arguments: list[str], name: str) -> None:
    ended = xtts(*arguments, name)
    assert ended.exit_code == 2
    assert f"{name!r} is not one line of UTF-8; rename it" in ended.output


def test_a_name_in_a_cache_forges_no_line(cache: Path) -> None:
    (cache / FORGED).touch()
    as_text, as_json = (xtts("verify-cache", "--cache", cache, *options) for options in ([], ["--json"]))

    assert as_text.exit_code == as_json.exit_code == 1
    assert len(as_text.output.splitlines()) == 2
    assert as_text.output.splitlines()[0].startswith(
        "extra       x\\u000avalid (full): 34 records, 4 shards, 0.1 MB\\u000a\\u001b[2J\\u202e: no part of a cache"
    )
    assert as_text.output.splitlines()[1].startswith("NOT VALID (full), 1 problem: ")
    assert "\u202e" not in as_json.output
    assert json.loads(as_json.output)["problems"][0]["where"] == FORGED


def test_json_is_valid_in_every_locale(cache: Path) -> None:
    (cache / "\xf8\U0001f600").touch()
    ended = start("verify-cache", "--cache", cache, "--json", PYTHONIOENCODING="ascii")
    assert json.loads(ended.stdout)["problems"][0]["where"] == "\xf8\U0001f600"


def test_a_setting_forges_no_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps({FORGED: 1, "audio": {FORGED: 2}}))
    ended = xtts("config", "check", tmp_path / "config.yaml")

    assert ended.exit_code == 2
    assert all(line.startswith("xtts: ") for line in ended.output.splitlines())
    assert not re.search("[\x1b\u202e]", ended.output)


def test_every_line_is_printed_by_one_function() -> None:
    places = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bclick\.(s?echo|echo_via_pager)\(|(?<![\w.])print\(", path.read_text(encoding="utf-8"))
    ]
    assert places == ["cli/echo.py"]

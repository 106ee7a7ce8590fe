"""`xtts report`: a page of clips, for people, and its findings, for programs."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from tests.cache.corpora import SETTINGS, build, make_config, write_corpus, write_metadata
from tests.calling import xtts
from xtts_pipeline.cache.format.tfrecord import record_starts
from xtts_pipeline.errors import CacheError


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    build(write_corpus(root / "data"), root / "cache", make_config("cache.store_waves=true"))
    return root


def report(*words: object) -> Result:
    return xtts("report", "--jobs", 1, *words)


def test_a_corpus_and_its_cache_have_the_same_clips_with_sounds_beside_the_page(root: Path, tmp_path: Path):
    results = {}
    for source in ("data", "cache"):
        settings = SETTINGS if source == "data" else []
        result = report(f"--{source}", root / source, "--output", tmp_path / source, "--json", *settings)
        assert result.exit_code == 0, result.output
        results[source] = json.loads(result.stdout)
        page = (tmp_path / source / "index.html").read_text(encoding="utf-8")
        files = {f"sounds/{file.name}" for file in (tmp_path / source / "sounds").iterdir()}
        assert {word.partition('"')[0] for word in page.split('data-src="')[1:]} == files
        assert len(page) < 20e6
    assert results["data"]["clips"] == results["cache"]["clips"] == 40
    assert [set(results[source]["strangest"]) for source in results] == [
        {"text_fit", "speed", "silence", "clipping", "snr", "level", "spectrum"}
    ] * 2


def test_a_cache_without_waves_has_no_sounds_and_no_level(root: Path, tmp_path: Path):
    build(root / "data", tmp_path / "cache")

    result = report("--cache", tmp_path / "cache", "--output", tmp_path / "page", "--json")

    assert set(json.loads(result.stdout)["strangest"]) == {"text_fit", "speed", "silence", "snr", "spectrum"}
    assert list((tmp_path / "page" / "sounds").iterdir()) == []


def test_a_shard_with_fewer_records_than_the_manifest_says_is_one_line(root: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    shutil.copytree(root / "cache", cache)
    shard = next(cache.glob("wave-train-*.tfrecord"))
    with shard.open("r+b") as file:
        file.truncate(record_starts(shard)[-1])

    result = report("--cache", cache, "--output", tmp_path / "page")

    assert isinstance(result.exception, CacheError)
    found = r"train-\S+\.tfrecord: found \d+ records?, expected \d+; run xtts verify-cache --cache \S+"
    assert re.fullmatch(rf"{cache}/{found}", str(result.exception))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected one of --data DIR, --cache DIR and --run DIR"),
        (["--data", "data", "--cache", "cache"], "expected one of --data DIR, --cache DIR and --run DIR"),
        (["--cache", "cache", "--set", "limits.max_seconds=3"], "need --data DIR"),
        (["--cache", "cache", "--output", "cache/page"], "choose another"),
        (["--data", "data", "--output", "data"], "not empty"),
    ],
)
def test_what_cannot_be_shown_is_an_error_that_writes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
):
    monkeypatch.chdir(root)

    result = report(*arguments)

    assert words in str(result.exception)
    assert sorted(path.name for path in root.iterdir()) == ["cache", "data"]


def test_the_summary_says_what_was_left_out_repeated_and_not_compared(tmp_path: Path):
    root = write_corpus(tmp_path / "data", 6)
    write_metadata(root, 6, changed={3: "the same", 4: "the same"})
    for number in (0, 1):
        (root / "wavs" / f"clip-{number:03d}.wav").write_bytes(b"")
    with (root / "metadata.csv").open("a") as table:
        table.write("clip-000\n")

    result = report("--data", root, "--output", tmp_path / "page", *SETTINGS)

    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if line.startswith("  ")] == [
        "  too few clips to compare them; expected 20 or more",
        "  Repeated sounds           1",
        "  Repeated texts            1",
        "  Similar texts             0",
        "  Left out                  3  2 audio_unreadable, 1 bad_row",
    ]

"""Rows that the user leaves out are rejected, and only their shards are written again."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cache.corpora import SETTINGS, build, make_config, write_corpus
from tests.calling import xtts
from tests.json_lines import read_json_lines
from xtts_pipeline.cache.format.manifest import UTTERANCES_NAME, load_manifest
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands.preprocess import _is_over_limit
from xtts_pipeline.cli.commands.verify_cache import verify
from xtts_pipeline.errors import CorpusError

CLIPS = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("excluded"), CLIPS)


def test_excluded_rows_are_rejected_and_a_repair_keeps_them_out(data: Path, tmp_path: Path) -> None:
    cache, ids = tmp_path / "cache", ["clip-003", "clip-031"]
    whole = build(data, cache)
    result = build(data, cache, excluded=[*ids, "unknown"])
    manifest = load_manifest(cache)
    assert (list(manifest.excluded), dict(manifest.rejected_by_reason)) == (ids, {"excluded": 2})
    assert 0 < result.shards_written <= 2 < whole.shards_written
    rejected = read_json_lines(cache / "rejected.jsonl")
    assert [(line["id"], line["reason"], line["where"]) for line in rejected] == [
        ("clip-003", "excluded", "metadata.csv:4"),
        ("clip-031", "excluded", "metadata.csv:32"),
    ]
    (cache / UTTERANCES_NAME).unlink()
    repaired = verify(cache, "full", data, None, repair=True, jobs=1)
    assert (repaired.valid, load_manifest(cache)) == (True, manifest)
    assert build(data, cache).manifest == whole.manifest


def test_the_bytes_depend_on_the_list_alone(data: Path, tmp_path: Path) -> None:
    config = make_config("cache.store_waves=true")
    build(data, tmp_path / "one", config)
    build(data, tmp_path / "one", config, excluded=["clip-007"])
    build(data, tmp_path / "two", config, excluded=["clip-007"])
    assert load_manifest(tmp_path / "one") == load_manifest(tmp_path / "two")
    assert verify_cache(tmp_path / "one", "full", 1).valid


def preprocess(data: Path, *words: object) -> Result:
    return xtts("preprocess", "--data", data, "--dry-run", "--jobs", 1, "--json", *SETTINGS, *words)


def test_excluded_rows_do_not_count_for_the_limit_and_unknown_ids_are_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("\ufeff# noisy\nclip-001\n\n  clip-002 \nclip-003\r\nclip-9\nclip-8\n", "utf-8")
    result = preprocess(data, "--cache", tmp_path / "cache", "--exclude", tmp_path / "ids.txt")
    assert (result.exit_code, result.stderr) == (
        0,
        "warning: --exclude: 2 of 5 ids are in no row, such as clip-8\n",
    )
    report = json.loads(result.stdout)
    assert (report["read"], report["kept"], report["rejected_by_reason"]) == (CLIPS, CLIPS - 3, {"excluded": 3})
    assert report["examples"]["excluded"]["id"] == "clip-001"


def test_a_share_of_exactly_the_limit_is_not_over_it() -> None:
    assert [_is_over_limit(rejected, 105, 5, 0.29) for rejected in (34, 35)] == [False, True]


@pytest.mark.parametrize(("content", "found"), [(None, "No such file or directory"), (b"\xff\xfe", "it is not UTF-8")])
def test_a_list_that_cannot_be_read_is_an_error(data: Path, tmp_path: Path, content: bytes | None, found: str) -> None:
    path = tmp_path / "ids.txt"
    if content is not None:
        path.write_bytes(content)
    error = preprocess(data, "--exclude", path).exception
    assert isinstance(error, CorpusError)
    assert str(error) == f"{path}: cannot be read ({found}); expected a text file with one id a line"

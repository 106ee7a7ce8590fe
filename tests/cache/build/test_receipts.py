"""Receipts are read completely or ignored."""

import os
from pathlib import Path

import pytest

from tests.cache.corpora import build, write_corpus
from tests.damage import flip_bit, forged
from xtts_pipeline.cache.build.receipts import load_receipt, receipt_bytes, receipt_path, source_stat
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.system.sealed_json import canonical_json, seal_json, strip_seal


def test_a_receipt_comes_back_as_it_was_written(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data", 4), tmp_path / "cache")
    name = ShardName("train", 0, 1)
    receipt = load_receipt(tmp_path / "cache", name)
    assert receipt is not None
    assert receipt_bytes(receipt) == receipt_path(tmp_path / "cache", name).read_bytes()
    assert [clip.is_kept for clip in receipt.rows] == [True] * len(receipt.rows)


def test_a_damaged_or_foreign_receipt_is_ignored(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data", 1), tmp_path / "cache")
    name = ShardName("train", 0, 1)
    path = receipt_path(tmp_path / "cache", name)
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        flip_bit(path, *divmod(bit, 8))
        assert load_receipt(tmp_path / "cache", name) is None
        flip_bit(path, *divmod(bit, 8))
    other = ShardName("train", 1, 2)
    receipt_path(tmp_path / "cache", other).write_bytes(data)
    assert load_receipt(tmp_path / "cache", other) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("records", 5), ("records", -1), ("bytes", -1), ("frames", -1), ("tokens", 10**30), ("shard_checksum", "x")],
)
def test_a_receipt_that_cannot_be_true_is_ignored_though_its_seal_is_right(
    tmp_path: Path, key: str, value: object
) -> None:
    build(write_corpus(tmp_path / "data", 4), tmp_path / "cache")
    name = ShardName("train", 0, 1)
    with forged(receipt_path(tmp_path / "cache", name)) as content:
        (content if key in content else content["rows"][0])[key] = value
    assert load_receipt(tmp_path / "cache", name) is None
    # The shard is written again, and the cache is the same.
    manifest = load_manifest(tmp_path / "cache")
    assert build(tmp_path / "data", tmp_path / "cache").manifest == manifest


def test_a_stripped_seal_leaves_the_content() -> None:
    content = {"bytes": 1, "rows": [{"checksum": "f" * 32}]}
    assert strip_seal(seal_json(content)).decode() == canonical_json(content)
    with pytest.raises(ValueError, match="no checksum"):
        strip_seal(b'{"bytes":1}\n')


def test_an_irregular_file_has_no_identity(tmp_path: Path) -> None:
    assert source_stat(tmp_path) is None
    assert source_stat(tmp_path / "absent") is None
    assert source_stat(Path("/dev/zero")) is None
    (tmp_path / "file").write_bytes(b"abc")
    found = source_stat(tmp_path / "file")
    assert found is not None
    assert found.bytes == 3


def test_a_pipe_or_an_endless_file_is_no_receipt(tmp_path: Path) -> None:
    name = ShardName("train", 0, 1)
    path = receipt_path(tmp_path, name)
    path.parent.mkdir()
    os.mkfifo(path)
    assert load_receipt(tmp_path, name) is None
    path.unlink()
    path.touch()
    os.truncate(path, 1 << 40)
    assert load_receipt(tmp_path, name) is None

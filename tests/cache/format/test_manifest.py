"""The manifest: one byte sequence for one content, checked completely before use."""

import errno
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.damage import flip_bit
from xtts_pipeline.cache.format import manifest as module
from xtts_pipeline.cache.format.manifest import (
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    Statistics,
    buckets_of,
    cache_settings,
    config_differences,
    file_checksum,
    fingerprint,
    load_manifest,
    manifest_bytes,
    record_spec,
)
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.sealed_json import canonical_json, seal_json, unseal_json

CHECKSUM = "0" * 32
SYMBOLS = ("a", "b")
READING = {"layout": "ljspeech", "columns": {}, "audio_dir": "", "delimiter": "", "encoding": "nope"}
ONE_SHAPE = load_config(overrides=["data.buckets=null"])


def make_manifest(config: Config | None = None) -> Manifest:
    config = (config or Config()).with_settings("data", buckets=None)
    spread = Statistics(1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0)
    return Manifest(
        format_version=2,
        fingerprint=fingerprint(config, SYMBOLS),
        fields=record_spec(config).fields,
        audio=config.audio,
        text=config.text,
        limits=config.limits,
        cache=config.cache,
        symbols=SYMBOLS,
        speakers=("ljspeech",),
        languages=("en",),
        layout="ljspeech",
        counts=Counts(4, 3, 1),
        rejected_by_reason={"audio_missing": 1},
        shards=(
            ShardEntry("train-00000-of-00002.tfrecord", "train", 2, 500_000, CHECKSUM),
            ShardEntry("train-00001-of-00002.tfrecord", "train", 0, 0, CHECKSUM),
            ShardEntry("val-00000-of-00001.tfrecord", "val", 1, 150_000, CHECKSUM),
        ),
        statistics={"seconds": spread, "frames": spread, "tokens": spread},
        files={"utterances.jsonl": FileEntry(10, CHECKSUM), "rejected.jsonl": FileEntry(3, CHECKSUM)},
    )


def write(folder: Path, content: dict[str, object]) -> None:
    content.pop("checksum", None)
    (folder / "manifest.json").write_bytes(seal_json(content))


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    manifest = make_manifest()
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(manifest))
    assert load_manifest(tmp_path) == manifest


def test_a_manifest_that_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MANIFEST_BYTES", 10_000)
    made, left_out = make_manifest(), tuple(f"clip-{number:06d}" for number in range(1_000))
    many = replace(
        made,
        counts=Counts(1_004, 3, 1_001),
        rejected_by_reason={"audio_missing": 1, "excluded": 1_000},
        excluded=left_out,
        files={**made.files, "rejected.jsonl": FileEntry(100_000, CHECKSUM)},
    )
    with pytest.raises(CacheError, match=r"1000 ids that are left out, expected at most 10000; leave out fewer clips"):
        manifest_bytes(many)


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(manifest_bytes(make_manifest()))
    for bit in range(0, 8 * path.stat().st_size, 7):
        flip_bit(path, *divmod(bit, 8))
        with pytest.raises(CacheError):
            load_manifest(tmp_path)
        flip_bit(path, *divmod(bit, 8))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("counts", "kept"), 4, "counts.read: found 4, expected 5"),
        (("counts", "kept"), True, "counts.kept"),
        (("counts", "kept"), -1, "counts.kept"),
        (("shards", 0, "records"), 3, "counts.kept: found 3, expected 4"),
        (("shards", 0, "name"), "../x.tfrecord", "not a shard's name"),
        (("shards", 0, "name"), "val-00000-of-00002.tfrecord", "split"),
        (("shards", 1, "records"), 1, "1 records in 0 bytes"),
        (("shards", 0, "bytes"), 200_000, r"2 records in 200000 bytes, expected at least \d{6} bytes"),
        (("shards", 0, "records"), 10**30, "shards.0.records"),
        (("files", "utterances.jsonl", "bytes"), 8, "utterances.jsonl has 3 lines in 8 bytes"),
        (("files", "rejected.jsonl", "bytes"), 2, "rejected.jsonl has 1 lines in 2 bytes"),
        (("fingerprint",), "0" * 64, "fingerprint"),
        (("audio", "mel_bins"), 40, "fields"),
        (("audio", "hop_samples"), 0, "hop_samples"),
        (("rejected_by_reason",), {"because": 1}, "rejected_by_reason"),
        (("symbols",), ["a", "a"], "symbols"),
        (("readings",), [READING], "readings: 'nope' is no text encoding"),
        (("readings",), [{**READING, "encoding": ""}] * 2, "readings: found 2, expected 1"),
        (("statistics", "frames", "p50"), 9.0, "statistics.frames"),
        (("files",), {}, "files"),
        (("format_version",), 1, "format_version 1, expected 2"),
        (("surplus",), 1, "surplus"),
        (("shards",), {}, "shards"),
    ],
)
def test_a_resealed_manifest_with_a_wrong_value_is_refused_and_named(
    tmp_path: Path, path: tuple[str | int, ...], value: object, message: str
) -> None:
    content = json.loads(manifest_bytes(make_manifest()))
    *parents, key = path
    place = content
    for parent in parents:
        place = place[parent]
    place[key] = value
    write(tmp_path, content)
    with pytest.raises(CacheError, match=message):
        load_manifest(tmp_path)


def test_a_missing_setting_is_not_filled_with_its_default(tmp_path: Path) -> None:
    content = json.loads(manifest_bytes(make_manifest()))
    del content["cache"]["seed"]
    write(tmp_path, content)
    with pytest.raises(CacheError, match="missing keys"):
        load_manifest(tmp_path)


@pytest.mark.parametrize("data", [b"", b"[]\n", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":NaN}\n', b"null\n"])
def test_data_that_is_no_sealed_object_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(CacheError, match=r"manifest\.json: found"):
        load_manifest(tmp_path)


def test_no_folder_and_no_manifest_are_said_apart(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="no such folder"):
        load_manifest(tmp_path / "absent")
    with pytest.raises(CacheError, match="no finished cache"):
        load_manifest(tmp_path)


def test_the_fingerprint_follows_every_setting_that_changes_a_record() -> None:
    reference = fingerprint(ONE_SHAPE, SYMBOLS)
    overrides = [
        "audio.trim_db=30.0",
        "audio.floor=1e-4",
        "text.blank=true",
        "text.lowercase=false",
        "limits.max_text_length=201",
    ]
    for override in overrides:
        config = load_config(overrides=["data.buckets=null", override])
        assert fingerprint(config, SYMBOLS) != reference, override
    assert fingerprint(ONE_SHAPE, ("a",)) != reference


def test_config_differences_name_setting_and_both_values() -> None:
    manifest = make_manifest()
    assert config_differences(manifest, Config()) == []
    config = load_config(overrides=["audio.trim_db=30.0", "cache.seed=5", "training.steps=7"])
    assert config_differences(manifest, config) == ["audio.trim_db: the cache has null, the config 30.0"]


def test_an_earlier_spelling_of_the_same_language_is_no_difference() -> None:
    config = load_config(base={"text": {"language": "DE"}})
    assert config_differences(make_manifest(config), load_config(overrides=["text.language=german"])) == []
    assert len(config_differences(make_manifest(config), Config())) == 1


def test_sums_hold_from_the_start() -> None:
    with pytest.raises(ValueError, match=r"counts\.read"):
        replace(make_manifest(), counts=Counts(5, 3, 1))


def test_sealed_content_is_one_canonical_line() -> None:
    data = seal_json({"b": 1.5, "a": "ä\u2028"})
    assert data.endswith(b"\n")
    assert data.startswith('{"a":"ä\u2028","b":1.5,"checksum":"'.encode())
    assert unseal_json(data) == {"b": 1.5, "a": "ä\u2028"}
    assert canonical_json({"b": [1, None], "a": True}) == '{"a":true,"b":[1,null]}'


def test_an_empty_file_has_a_checksum(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    assert file_checksum(tmp_path / "empty") == "99aa06d3014798d86001c324468d497f"


def test_a_disk_that_fails_under_a_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped file would end the process by SIGBUS."""

    class Failing(io.FileIO):
        def readinto(self, _buffer: object, /) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "shard").write_bytes(b"abc")
    monkeypatch.setattr(module, "open_regular_file", Failing)
    with pytest.raises(OSError, match="Input/output error"):
        file_checksum(tmp_path / "shard")


def test_a_name_that_claims_more_shards_than_are_listed_is_refused_at_once(tmp_path: Path) -> None:
    content = unseal_json(manifest_bytes(make_manifest()))
    content["shards"][2]["name"] = "val-00000-of-999999999.tfrecord"
    write(tmp_path, content)
    with pytest.raises(CacheError, match="shards of the val split: found 1, expected 999999999"):
        load_manifest(tmp_path)


def test_a_pipe_has_no_checksum(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        file_checksum(tmp_path / "pipe")


def test_buckets_enter_the_fingerprint_and_the_differences_only_where_there_are_several() -> None:
    choices = ("null", "[[200, 880]]", "[[100, 440], [200, 880]]", "[[90, 440], [200, 880]]")
    none, one, *several = (
        fingerprint(load_config(overrides=[f"data.buckets={buckets}"]), SYMBOLS) for buckets in choices
    )
    assert none == one
    assert len({none, *several}) == 3

    manifest = make_manifest()
    assert config_differences(manifest, load_config(overrides=["data.buckets=[[200, 880]]"])) == []
    assert config_differences(manifest, load_config(overrides=["data.buckets=auto"])) == []
    config = load_config(overrides=["data.buckets=[[100, 440], [200, 880]]"])
    assert config_differences(manifest, config) == [
        "data.buckets: the cache has null, the config [[100, 440], [200, 880]]"
    ]
    assert config_differences(manifest, load_config(base=cache_settings(manifest))) == []


def test_auto_must_be_chosen_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="expected pairs"):
        buckets_of(load_config(overrides=["data.buckets=auto"]))

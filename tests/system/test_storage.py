"""Caches in a store, tested with TensorFlow's in-memory file system ram://, and copies between stores."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from tests.cache.corpora import build, cache_bytes, write_corpus, write_metadata
from tests.damage import flip_bit
from tests.data.reading import training_dataset
from tests.model.conftest import MODEL
from xtts_pipeline.cache import copy as copies
from xtts_pipeline.cache.build.folder import locked_folder
from xtts_pipeline.cache.copy import copy_cache, stage_cache
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, Manifest, file_checksum, load_manifest
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.main import cli
from xtts_pipeline.cli.options import STORED_CACHE_FOLDER, cache_option, stored_cache_option
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system import storage
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.storage import StoredPath, check_local, folder_path, is_stored, open_stored

WriteCache = Callable[..., Manifest]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoredPath]:
    """A separate folder in memory."""
    place = StoredPath(f"ram://{tmp_path.name}/caches")
    yield place
    if place.is_dir():
        tf.io.gfile.rmtree(f"ram://{tmp_path.name}")


def copy(source: Path, target: Path, jobs: int = 2) -> copies.CopyReport:
    return copy_cache(source, target, jobs, lambda _: None, nobody_waits)


def nobody_waits(line: str) -> None:
    pytest.fail(line)


def test_a_path_with_a_scheme_keeps_both_slashes_and_others_stay_as_they_were() -> None:
    path = folder_path("gs://bucket/folder//cache/")
    assert is_stored(path)
    assert str(path) == os.fspath(path) == "gs://bucket/folder/cache"
    assert str(path / "manifest.json") == "gs://bucket/folder/cache/manifest.json"
    assert (path / "a" / "b").name == "b"
    assert str((path / "a").parent) == str(path)
    assert str((path / "a" / "b").relative_to(path)) == "a/b"
    for local in ("cache", "/a/b", "../c:/d", "C:x"):
        assert type(folder_path(local)) is type(Path())
        assert folder_path(local) == Path(local)


@pytest.mark.parametrize("uri", ["file:///mnt/share/cache", "file:/mnt/share/cache", "file:////mnt/share//cache/"])
def test_a_uri_of_a_local_file_is_its_path(uri: str) -> None:
    path = folder_path(uri)
    assert type(path) is type(Path())
    assert str(path) == "/mnt/share/cache"


@pytest.mark.parametrize("uri", ["hdfs:///a/b", "hdfs://", "hdfs:///", "hdfs:////a"])
def test_a_store_without_a_name_is_a_usage_error(uri: str) -> None:
    with pytest.raises(ValueError, match=f"{uri} names no store; expected hdfs://NAME/FOLDER"):
        folder_path(uri)
    refused = CliRunner().invoke(cli, ["verify-cache", "--cache", uri])
    assert refused.exit_code == 2
    assert f"Invalid value for '--cache': {uri} names no store" in refused.output


@pytest.mark.parametrize("option", ["--stage", "--output", "--data"])
def test_local_only_options_refuse_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(cli, ["train", option, "gs://bucket/x"])
    assert refused.exit_code == 2
    expected = f"Invalid value for '{option}': gs://bucket/x lies in a store; expected a file or folder of this machine"
    assert expected in refused.output
    assert not list(tmp_path.iterdir())


def test_a_stored_file_reads_as_a_local_one(store: StoredPath) -> None:
    content = np.random.default_rng(0).bytes(20_000_000)  # more than two buffers
    with (store / "file").write() as file:
        file.write(content)
    with open_stored(store / "file") as file:
        assert file.read(3) == content[:3]
        assert file.seek(0, 2) == len(content)
        assert file.seek(9_000_000) == 9_000_000
        assert file.read() == content[9_000_000:]
    assert (store / "file").read_bytes() == content
    assert (store / "file").stat().st_size == len(content)
    assert [path.name for path in store.iterdir()] == ["file"]
    assert (store.is_dir(), (store / "file").is_dir(), (store / "none").exists()) == (True, False, False)
    with pytest.raises(FileNotFoundError) as caught:
        open_stored(store / "none")
    assert caught.value.filename == str(store / "none")


def test_a_stored_file_is_asked_for_its_size_once(store: StoredPath, monkeypatch: pytest.MonkeyPatch) -> None:
    with (store / "file").write() as file:
        file.write(b"content")
    asked, ask = [], tf.io.gfile.stat

    def note_and_ask(path: str) -> Any:
        asked.append(path)
        return ask(path)

    monkeypatch.setattr(tf.io.gfile, "stat", note_and_ask)
    assert read_regular_file(store / "file", 7) == b"content"
    assert asked == [str(store / "file")]
    with pytest.raises(OSError, match="found 7 bytes, expected at most 6"):
        read_regular_file(store / "file", 6)
    with pytest.raises(OSError, match="no regular file"):
        read_regular_file(store, 6)


def test_a_stored_file_that_cannot_be_opened_is_closed_without_another_error(store: StoredPath) -> None:
    file = storage._StoredFile.__new__(storage._StoredFile)
    with pytest.raises(FileNotFoundError):
        storage._StoredFile.__init__(file, store / "none", None)
    file.close()  # as Python does when it throws the object away
    assert file.closed


def test_an_unknown_store_is_a_clear_error() -> None:
    with pytest.raises(CacheError, match="nowhere://a: this TensorFlow opens no such store, it knows file, gs, ram"):
        verify_cache(folder_path("nowhere://a"))


def test_google_cloud_storage_needs_nothing_more_than_tensorflow() -> None:
    assert "gs" in tf.io.gfile.get_registered_schemes()


@pytest.mark.parametrize("buckets", [None, ((9, 12), (16, 24))])
def test_a_pushed_cache_is_verified_and_read_as_the_local_one(
    tmp_path: Path, store: StoredPath, write_cache: WriteCache, buckets: Any
) -> None:
    manifest = write_cache(tmp_path / "cache", buckets=buckets)
    report = copy(tmp_path / "cache", store)
    assert report.files == report.copied_files == len(manifest.shards) + 3
    for level in ("quick", "full"):
        local, stored = (verify_cache(folder, level) for folder in (tmp_path / "cache", store))  # type: ignore[arg-type]
        assert stored == local
        assert stored.valid
    assert load_manifest(store) == manifest
    batches = [
        [
            batch["mel"].numpy()
            for batch in training_dataset(folder, manifest, batch_size=2, seed=3, data=DataConfig(), epochs=1)
        ]
        for folder in (tmp_path / "cache", store)
    ]
    np.testing.assert_array_equal(batches[0], batches[1])
    assert len(batches[0])


def test_damage_in_a_store_is_found(cache: Path, store: StoredPath) -> None:
    copy(cache, store)
    path = store / load_manifest(cache).shards[0].name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.write() as file:
        file.write(content)
    assert not verify_cache(store).valid
    path.unlink()
    assert [problem.kind.value for problem in verify_cache(store, "quick").problems] == ["missing"]


def test_a_second_push_copies_nothing_and_reads_no_shard(
    cache: Path, store: StoredPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(cache, store)
    monkeypatch.setattr(copies, "is_file_of", lambda path, _entry: pytest.fail(f"{path} was read"))
    report = copy(cache, store)
    assert (report.copied_files, report.copied_bytes) == (0, 0)
    assert "nothing to copy" in report.to_text()


def test_a_push_copies_changed_files_and_removes_surplus_ones(
    tmp_path: Path, store: StoredPath, write_cache: WriteCache
) -> None:
    before = write_cache(tmp_path / "before", shards=3)
    after = write_cache(tmp_path / "after", shards=2)
    assert "replaced" not in copy(tmp_path / "before", store).to_text()
    report = copy(tmp_path / "after", store)
    kept = {shard.name for shard in before.shards} & {shard.name for shard in after.shards}
    assert kept == {"val-00000-of-00001.tfrecord"}
    assert sorted(report.removed) == [f"train-0000{number}-of-00003.tfrecord" for number in range(3)]
    assert report.to_text().endswith("; replaced another cache")
    assert report.copied_files == 2 + 1 + 1  # shards, utterances.jsonl and the manifest; what was rejected is the same
    assert verify_cache(store).valid


class Broken(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.parametrize("is_first", [True, False])
def test_an_interrupted_push_leaves_no_cache_and_the_next_one_copies_the_rest(
    tmp_path: Path, store: StoredPath, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    if not is_first:
        write_cache(tmp_path / "old", shards=2)
        copy(tmp_path / "old", store)
    write_cache(tmp_path / "cache", shards=3)
    left, whole = 2, copies._copy

    def break_off(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Broken
        whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(copies, "_copy", break_off)
        with pytest.raises(Broken):
            copy(tmp_path / "cache", store, jobs=1)
    assert not (store / MANIFEST_NAME).exists()
    assert not verify_cache(store).valid
    report = copy(tmp_path / "cache", store)
    assert report.files - report.copied_files >= 2
    assert verify_cache(store).valid


def test_a_file_that_fails_half_way_is_not_left_behind(cache: Path, store: StoredPath) -> None:
    shard = cache / load_manifest(cache).shards[0].name
    flip_bit(shard, -1)
    with pytest.raises(CacheError, match=rf"{shard}: found checksum .* run xtts verify-cache --cache {cache}"):
        copy(cache, store)
    assert not (store / shard.name).exists()
    assert not (store / MANIFEST_NAME).exists()
    with pytest.raises(CacheError, match="found checksum"):
        copy(cache, cache.parent / "local")
    assert not (cache.parent / "local" / shard.name).exists()


def test_a_cache_that_is_not_whole_is_not_pushed(cache: Path, store: StoredPath) -> None:
    (cache / load_manifest(cache).shards[1].name).unlink()
    with pytest.raises(CacheError, match="no such file; run xtts verify-cache"):
        copy(cache, store)
    assert not store.is_dir()


def test_a_foreign_target_is_refused(cache: Path, store: StoredPath, tmp_path: Path) -> None:
    with (store / "thesis.txt").write() as file:
        file.write(b"years")
    with pytest.raises(CacheError, match=r"holds thesis\.txt, which is no part of a cache"):
        copy(cache, store)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years")
    with pytest.raises(CacheError, match=r"holds thesis\.txt, which is no part of a cache"):
        copy(cache, tmp_path / "other")


def test_staging_copies_once_and_finishes_an_interrupted_copy(cache: Path, store: StoredPath, tmp_path: Path) -> None:
    copy(cache, store)
    copied: list[int] = []
    staged = stage_cache(store, tmp_path / "staging", 2, copied.append, nobody_waits)
    assert staged.parent == tmp_path / "staging"
    assert verify_cache(staged).valid
    shards = load_manifest(cache).shards
    assert sum(copied) >= sum(shard.bytes for shard in shards)
    assert stage_cache(store, tmp_path / "staging", 2, lambda _: pytest.fail("copied again"), nobody_waits) == staged

    # As a killed copy leaves it: no manifest, a file under way, and one of the right size with other bytes.
    (staged / MANIFEST_NAME).unlink()
    (staged / f".{shards[0].name}.0123abcd.tmp").write_bytes(b"half")
    (staged / shards[0].name).unlink()
    (staged / shards[1].name).write_bytes(b"\0" * shards[1].bytes)
    copied.clear()
    assert stage_cache(store, tmp_path / "staging", 2, copied.append, nobody_waits) == staged
    assert sum(copied) == shards[0].bytes + shards[1].bytes
    assert verify_cache(staged).valid


def test_another_cache_is_staged_beside_the_first(tmp_path: Path, write_cache: WriteCache) -> None:
    places = set()
    for shards in (2, 3):
        write_cache(tmp_path / f"cache-{shards}", shards=shards)
        places.add(stage_cache(tmp_path / f"cache-{shards}", tmp_path / "staging", 2, lambda _: None, nobody_waits))
    assert len(places) == 2
    assert all(verify_cache(place).valid for place in places)


def test_a_full_disk_is_found_before_any_change(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_cache(tmp_path / "before", shards=3)
    write_cache(tmp_path / "after", shards=2)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(CacheError, match="the disk has 10 B free"):
        copy(tmp_path / "after", tmp_path / "before")
    assert load_manifest(tmp_path / "before") == before
    assert verify_cache(tmp_path / "before").valid


def test_errors_name_options_of_the_command(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="is a file or lies under one, expected a folder; choose another DST"):
        copy(cache, tmp_path / "file")
    with pytest.raises(CacheError, match="is a file or lies under one, expected a folder; choose another --stage"):
        stage_cache(cache, tmp_path / "file", 2, lambda _: None, nobody_waits)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(CacheError, match="make room or choose another DST"):
        copy(cache, tmp_path / "copy")
    with pytest.raises(CacheError, match="make room or choose another --stage"):
        stage_cache(cache, tmp_path / "staging", 2, lambda _: None, nobody_waits)


def test_a_copy_reports_that_it_waits(cache: Path, tmp_path: Path) -> None:
    is_held, is_waited_for, lines = threading.Event(), threading.Event(), []

    def hold() -> None:
        with locked_folder(tmp_path / "copy"):
            is_held.set()
            is_waited_for.wait(300)

    def on_wait(line: str) -> None:
        lines.append(line)
        is_waited_for.set()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(300)
    (tmp_path / "copy" / ".gitignore").touch()  # the folder is in use, so it stays when the other process has gone
    report = copy_cache(cache, tmp_path / "copy", 2, lambda _: None, on_wait)
    holder.join()
    assert lines == [f"{tmp_path / 'copy'}: waiting for another process that writes this cache"]
    assert report.copied_files == report.files


def test_a_copy_over_a_local_cache_removes_its_receipts(tmp_path: Path) -> None:
    data, made = write_corpus(tmp_path / "data", count=12), tmp_path / "made"
    for folder, texts in ((tmp_path / "cache", {3: "other words"}), (made, {})):
        write_metadata(data, 12, changed=texts)
        build(data, folder)
    assert list((made / "receipts").iterdir())
    report = copy(tmp_path / "cache", made)
    assert report.copied_files
    assert load_manifest(made) == load_manifest(tmp_path / "cache")
    assert not list((made / "receipts").iterdir())
    assert verify_cache(made).valid
    write_metadata(data, 12, changed={3: "other words"})
    build(data, made)  # and preprocess goes on from there
    assert verify_cache(made).valid
    assert cache_bytes(made) == cache_bytes(tmp_path / "cache")


def test_checksums_of_stored_and_local_files_are_the_same(cache: Path, store: StoredPath) -> None:
    copy(cache, store)
    for shard in load_manifest(cache).shards:
        assert file_checksum(store / shard.name) == file_checksum(cache / shard.name) == shard.checksum


def test_commands_that_write_a_cache_refuse_a_store() -> None:
    @click.command()
    @cache_option
    def writes(cache: Path) -> None: ...

    @click.command()
    @stored_cache_option
    def reads(cache: Path) -> None:
        click.echo(f"{type(cache).__name__} {cache}")

    refused = CliRunner().invoke(writes, ["--cache", "gs://bucket/cache"])
    assert refused.exit_code == 2
    assert "gs://bucket/cache lies in a store; expected a folder of this machine" in refused.output
    assert CliRunner().invoke(reads, ["--cache", "gs://bucket/cache"]).output == "StoredPath gs://bucket/cache\n"
    assert STORED_CACHE_FOLDER.convert("a/b", None, None) == Path("a/b")
    with pytest.raises(CacheError, match="gs://b/c: lies in a store, expected a folder of this machine; go home"):
        check_local(folder_path("gs://b/c"), "go home")


PROGRAM = """
    import sys
    from xtts_pipeline.cli.main import cli

    def xtts(*arguments):
        try:
            cli(list(arguments), standalone_mode=False, prog_name="xtts")
        except SystemExit as error:
            print(error.code)

    xtts("cache", "push", "cache", "ram://bucket/cache", "--json")
    xtts("verify-cache", "--cache", "ram://bucket/cache", "--json")
    settings = [f"--set={setting}" for setting in sys.argv[1:]]
    for output, more in (("direct", []), ("staged", ["--stage", "staging"])):
        xtts("train", "--cache", "ram://bucket/cache", "--output", output, "--steps", "2", "--json", *settings, *more)
"""


def test_the_command_line_pushes_proves_and_trains_from_a_store_and_from_its_copy(
    tmp_path: Path, write_cache: WriteCache
) -> None:
    write_cache(tmp_path / "cache")
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    names = (
        "width",
        "heads",
        "encoder_layers",
        "decoder_layers",
        "feedforward_width",
        "flow_layers",
    )
    settings = [f"model.{name}={getattr(MODEL, name)}" for name in names] + ["model.voice_latents=0"]
    settings += [
        "training.batch_size=4",
        "training.jit_compile=false",
        "training.sample_every_evaluations=null",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "program.py", *settings]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pushed, proved, direct, staged = map(json.loads, done.stdout.splitlines())
    assert pushed["target"] == "ram://bucket/cache"
    assert proved["valid"]
    assert direct["weights_sha256"] == staged["weights_sha256"]
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "program.py", "direct", "staged", "staging"}
    (place,) = (tmp_path / "staging").iterdir()
    assert verify_cache(place).valid

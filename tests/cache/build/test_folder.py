"""The locked cache folder: one writer at a time, no foreign files touched, no empty cache left behind."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from xtts_pipeline.cache.build.folder import check_folder, existing_counts, format_bytes, locked_folder
from xtts_pipeline.errors import CacheError


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with locked_folder(cache) as work_folder:
        (work_folder.parent / "manifest.json").touch()
        imports = "from pathlib import Path; from xtts_pipeline.cache.build.folder import locked_folder"
        command = f"{imports}; locked_folder(Path({str(cache)!r})).__enter__()"
        second = subprocess.run(
            [sys.executable, "-c", command], capture_output=True, text=True, timeout=300, check=False
        )
        assert "another process writes this cache" in second.stderr
        # A second lock of this process would be its own.
        check = command.replace("locked_folder", "check_folder").replace(".__enter__()", "")
        dry = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=300, check=False)
        assert "another process writes this cache" in dry.stderr
    with locked_folder(cache):
        pass


def test_a_writer_that_waits_goes_on_after_the_first_has_failed(tmp_path: Path) -> None:
    cache, waits = tmp_path / "cache", threading.Event()

    def second() -> bool:
        with locked_folder(cache, on_wait=lambda _: waits.set()) as work_folder:
            return work_folder.is_dir()

    with ThreadPoolExecutor(1) as threads:
        with suppress(RuntimeError), locked_folder(cache):
            waiting = threads.submit(second)
            assert waits.wait(60)
            raise RuntimeError  # the first one removes the empty folder
        assert waiting.result(60)


def test_a_lock_and_work_left_by_a_dead_process_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".work-0123abcd").mkdir()
    (tmp_path / ".work-0123abcd" / "beat-host-1").touch()
    (tmp_path / ".manifest.json.0123abcd.tmp").touch()
    with locked_folder(tmp_path) as work_folder:
        assert {path.name for path in tmp_path.iterdir()} == {".lock", "receipts", work_folder.name}


def lock(folder: Path) -> None:
    with locked_folder(folder):
        pass


opening = pytest.mark.parametrize("open_folder", [lock, check_folder])


@opening
@pytest.mark.parametrize("name", ["notes.txt", "train-1-of-2.tfrecord", ".git"])
def test_a_foreign_folder_is_not_changed(tmp_path: Path, name: str, open_folder: Callable[[Path], None]) -> None:
    (tmp_path / name).touch()
    with pytest.raises(CacheError, match=f"holds {name}, which is no part of a cache; choose another --cache$"):
        open_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@opening
def test_a_folder_of_recordings_is_never_to_be_removed(tmp_path: Path, open_folder: Callable[[Path], None]) -> None:
    (tmp_path / "takes" / "day 1").mkdir(parents=True)
    with pytest.raises(CacheError, match=r"holds takes/, which is no part of a cache; choose another --cache$"):
        open_folder(tmp_path)
    (tmp_path / "takes").rename(tmp_path / "manifest.json")
    with pytest.raises(CacheError, match=r"manifest.json: a folder, expected a file; choose another --cache$"):
        open_folder(tmp_path)


def test_a_gitignore_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").touch()
    with locked_folder(tmp_path):
        pass


@opening
@pytest.mark.parametrize("place", ["file", "file/cache"])
def test_a_file_in_the_folders_place_is_named(tmp_path: Path, place: str, open_folder: Callable[[Path], None]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="is a file or lies under one"):
        open_folder(tmp_path / place)


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "cache")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc/cache", "/sys/cache"])
def test_a_folder_that_cannot_be_made_is_a_one_line_error(folder: str) -> None:
    with pytest.raises(CacheError, match="cannot be written"), locked_folder(Path(folder)):
        pass


def test_a_failed_run_leaves_no_empty_cache(tmp_path: Path) -> None:
    def fail() -> None:
        with locked_folder(tmp_path / "cache"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_layout_is_read_from_the_names_of_shards(tmp_path: Path) -> None:
    for name in (
        "train-00000-of-00002",
        "train-00001-of-00002",
        "val-00000-of-00001",
        "test-00000-of-00001",
        "test-00000-of-00002",
    ):
        (tmp_path / f"{name}.tfrecord").touch()
    assert existing_counts(tmp_path) == {"train": (2, 2), "val": (1, 1)}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_850_000_000, "1.85 GB"), (2 * 10**12, "2 TB")]
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_links_target_is_not_changed(tmp_path: Path) -> None:
    victim, cache = tmp_path / "victim", tmp_path / "cache"
    victim.mkdir()
    cache.mkdir()
    (victim / "thesis.txt").write_text("years of work")
    (cache / "receipts").symlink_to(victim)
    with pytest.raises(CacheError, match="receipts: a link, pipe or the like, expected a folder"), locked_folder(cache):
        pass
    assert (victim / "thesis.txt").read_text() == "years of work"


def test_a_foreign_receipts_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts" / "taxes.pdf").write_text("paid")
    with (
        pytest.raises(CacheError, match=r"holds receipts/taxes.pdf, which is no part of a cache"),
        locked_folder(tmp_path),
    ):
        pass
    assert (tmp_path / "receipts" / "taxes.pdf").read_text() == "paid"


@pytest.mark.parametrize("name", ["manifest.json", "train-00000-of-00001.tfrecord", ".lock"])
def test_a_pipe_in_a_files_place_is_refused_unopened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(CacheError, match="expected a file"), locked_folder(tmp_path):
        pass

"""A file or a folder appears whole, or not at all."""

import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from xtts_pipeline.system.atomic_files import atomic_folder, atomic_write, write_output


def test_of_two_processes_that_write_one_folder_the_later_one_alone_is_seen(tmp_path: Path) -> None:
    folder, stack = tmp_path / "cache", ExitStack()
    first = stack.enter_context(atomic_folder(folder))
    (first / "early").write_text("of the first")
    with atomic_folder(folder) as second:
        (second / "whole").write_text("of the second")
        with pytest.raises(FileNotFoundError):
            (first / "late").write_text("of the first")
        assert list(tmp_path.iterdir()) == [tmp_path / ".cache.partial"]
    with pytest.raises(OSError, match=r"another process has begun to write it: .*/cache'$"):
        stack.close()
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_that_appears_while_another_process_begins_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(atomic_folder(tmp_path / "cache"))
        (first / "whole").write_text("of the first")
        rename = Path.rename

        def renamed_late(path: Path, target: Path) -> Path:
            monkeypatch.setattr(Path, "rename", rename)
            stack.close()  # the first process gives the folder its name at this moment
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", renamed_late)
        with suppress(OSError), atomic_folder(tmp_path / "cache"):
            pass
    assert (tmp_path / "cache" / "whole").read_text() == "of the first"


def test_what_a_killed_process_left_is_not_in_the_folder(tmp_path: Path) -> None:
    left = tmp_path / ".cache.partial" / "0123abcd"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    with atomic_folder(tmp_path / "cache") as partial:
        (partial / "whole").write_text("whole")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["cache", "cache/whole"]


def test_an_error_names_the_file_that_the_user_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as full, atomic_write(tmp_path / "speech.wav"):
        raise OSError(28, "No space left on device")
    with pytest.raises(FileNotFoundError) as missing, atomic_write(tmp_path / "none" / "speech.wav"):
        pass
    with pytest.raises(FileNotFoundError) as inner, atomic_folder(tmp_path / "cache") as partial:
        (partial / "none" / "shard").write_text("")
    names = [Path(error.value.filename).relative_to(tmp_path).as_posix() for error in (full, missing, inner)]
    assert names == ["speech.wav", "none/speech.wav", "cache/none/shard"]
    assert not list(tmp_path.iterdir())


def test_an_output_gets_its_folder_is_whole_and_a_pipe_or_link_stays(tmp_path: Path) -> None:
    write_output(tmp_path / "new" / "speech.wav", b"speech")
    (tmp_path / "link").symlink_to("new/later.wav")
    write_output(tmp_path / "link", b"later")
    assert (tmp_path / "new" / "later.wav").read_bytes() == b"later"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        write_output(tmp_path / "file" / "speech.wav", b"speech")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["later.wav", "speech.wav"]


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_writer_whose_work_folder_is_gone_changes_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()

    def write_late() -> None:
        with atomic_write(tmp_path / "file", work) as file:
            file.write(b"late")
            shutil.rmtree(work)

    with pytest.raises(FileNotFoundError):
        write_late()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is synced and renamed, in order."""
    found: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        found.append("sync folder" if path == tmp_path else "sync content")
        fsync(descriptor)

    def watched_rename(path: Path, target: Path) -> Path:
        found.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    return found


def test_a_file_is_synced_before_its_rename_and_its_folder_after(tmp_path: Path, events: list[str]) -> None:
    with atomic_write(tmp_path / "file") as file:
        file.write(b"content")
    assert events == ["sync content", "rename", "sync folder"]


def test_all_of_a_folder_is_synced_before_its_rename_and_its_parent_after(tmp_path: Path, events: list[str]) -> None:
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "one").write_bytes(b"1")
        (folder / "two").write_bytes(b"2")
    assert events == ["sync content"] * 3 + ["rename", "sync folder"]

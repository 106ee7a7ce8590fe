"""A file or a folder appears whole, or not at all."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from xtts_pipeline.system.atomic_files import atomic_folder


def test_of_two_processes_that_write_one_folder_the_later_one_alone_is_seen(tmp_path: Path) -> None:
    folder, stack = tmp_path / "cache", ExitStack()
    first = stack.enter_context(atomic_folder(folder))
    (first / "early").write_text("of the first")
    with atomic_folder(folder) as second:
        (second / "whole").write_text("of the second")
        with pytest.raises(FileNotFoundError):
            (first / "late").write_text("of the first")
        assert list(tmp_path.iterdir()) == [tmp_path / ".cache.partial"]
    with pytest.raises(FileNotFoundError):
        stack.close()
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert list(tmp_path.iterdir()) == [folder]


def test_what_a_killed_process_left_is_not_in_the_folder(tmp_path: Path) -> None:
    left = tmp_path / ".cache.partial" / "0123abcd"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    with atomic_folder(tmp_path / "cache") as partial:
        (partial / "whole").write_text("whole")
    assert [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*"))] == ["cache", "cache/whole"]

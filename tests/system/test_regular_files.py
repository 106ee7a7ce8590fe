"""Files that others made are opened only if they are regular, of a limited size, and no link where links matter."""

import os
from pathlib import Path

import pytest

from xtts_pipeline.system.regular_files import open_to_append, read_regular_file


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link"])
def test_only_a_regular_file_is_read_or_appended_to(tmp_path: Path, kind: str) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"kept")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(target)
    else:
        path = Path("/dev/zero")
    with pytest.raises(OSError, match=r"no regular file|a link, expected a regular file|Is a directory|No such device"):
        open_to_append(path)
    with pytest.raises(OSError, match=r"no regular file|a link, expected a regular file|Is a directory") as caught:
        read_regular_file(path, 4, follow_links=False)
    assert caught.value.filename == str(path)
    assert target.read_bytes() == b"kept"


def test_a_link_is_read_unless_links_are_refused_and_the_limit_holds(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert read_regular_file(tmp_path / "link", 7) == b"content"
    with pytest.raises(OSError, match="found 7 bytes, expected at most 6"):
        read_regular_file(tmp_path / "link", 6)


def test_a_file_that_is_created_to_append_to_it_is_not_executable(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        open_to_append(tmp_path / "file").close()
    finally:
        os.umask(umask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644

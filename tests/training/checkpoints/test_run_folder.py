"""The files of a run's folder that name other folders."""

from pathlib import Path

import pytest

from xtts_pipeline.errors import OutputError
from xtts_pipeline.training.checkpoints.run_folder import CACHE_NAME, read_cache_path


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"", "it names nothing"), (b"\n../c\n", "it names nothing"), (b"\xff\n", "it is not UTF-8")],
)
def test_a_damaged_path_is_not_taken_for_the_current_folder(tmp_path: Path, content: bytes, found: str) -> None:
    (tmp_path / CACHE_NAME).write_bytes(content)
    remedy = "remove it, and name the cache with --cache"
    with pytest.raises(OutputError, match=rf"/cache\.txt: cannot be read \({found}\); {remedy}$"):
        read_cache_path(tmp_path)


def test_a_path_that_is_too_long_is_refused_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / CACHE_NAME).write_bytes(b"/x\n" * 100_000)
    with pytest.raises(OutputError, match=r"cannot be read \(found 300000 bytes, expected at most 65536\); remove it"):
        read_cache_path(tmp_path)

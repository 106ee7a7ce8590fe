"""The memory that a machine and its control group leave a process."""

from pathlib import Path

import pytest

from xtts_pipeline.diagnosis import machine


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    return tmp_path


def test_without_a_limit_it_is_what_the_machine_has_left(group: Path) -> None:
    free = machine.memory_limit_bytes()
    assert free > 1 << 20
    (group / "memory.max").write_text("max\n")
    assert machine.memory_limit_bytes() == pytest.approx(free, rel=0.2)


def test_pages_of_files_that_nobody_needs_count_as_free(group: Path) -> None:
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("3000\n")
    assert machine.memory_limit_bytes() == 2_000
    (group / "memory.stat").write_text("anon 1000\ninactive_file 1800\n")
    assert machine.memory_limit_bytes() == 3_800
    (group / "memory.current").write_text("9000\n")
    assert machine.memory_limit_bytes() == 0


def test_the_first_version_of_control_groups_is_asked_too(group: Path) -> None:
    folder = group / "memory"
    folder.mkdir()
    for name, text in (("limit_in_bytes", "5000"), ("usage_in_bytes", "4000"), ("stat", "inactive_file 1\ntotal_inactive_file 500")):
        (folder / f"memory.{name}").write_text(text)
    assert machine.memory_limit_bytes() == 1_500

"""Memory and cores that the machine and its control groups leave a process."""

from pathlib import Path

import pytest

from xtts_pipeline.system import machine


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "own")
    return tmp_path


def test_without_a_limit_free_memory_counts(group: Path) -> None:
    free = machine.memory_limit_bytes()
    assert free > 1 << 20
    (group / "memory.max").write_text("max\n")
    assert machine.memory_limit_bytes() == pytest.approx(free, rel=0.2)


def test_page_cache_counts_as_free(group: Path) -> None:
    (group / "memory.max").write_text("5000\n")
    (group / "memory.current").write_text("3000\n")
    assert machine.memory_limit_bytes() == 2_000
    (group / "memory.stat").write_text("anon 1000\ninactive_file 1800\n")
    assert machine.memory_limit_bytes() == 3_800
    (group / "memory.stat").write_text("anon 1000\ninactive_file 1800\nactive_file 200\n")
    assert machine.memory_limit_bytes() == 4_000
    (group / "memory.current").write_text("9000\n")
    assert machine.memory_limit_bytes() == 0


def test_control_groups_of_version_1_are_read(group: Path) -> None:
    folder = group / "memory"
    folder.mkdir()
    for name, text in (
        ("limit_in_bytes", "5000"),
        ("usage_in_bytes", "4000"),
        ("stat", "inactive_file 1\ntotal_inactive_file 500"),
    ):
        (folder / f"memory.{name}").write_text(text)
    assert machine.memory_limit_bytes() == 1_500


def test_the_smallest_limit_of_nested_groups_counts(group: Path) -> None:
    job = group / "slurm" / "job_1"
    job.mkdir(parents=True)
    (group / "own").write_text("0::/slurm/job_1\n")
    (job / "memory.max").write_text("3000\n")
    (job / "memory.current").write_text("1000\n")
    (group / "slurm" / "memory.max").write_text("9000\n")
    assert machine.memory_limit_bytes() == 2_000
    (job / "cpu.max").write_text("150000 100000\n")
    (group / "slurm" / "cpu.max").write_text("max 100000\n")
    assert machine.usable_cores().quota == 1.5


def test_cpu_quotas_of_version_1_are_read(group: Path) -> None:
    (group / "cpu").mkdir()
    (group / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert machine.usable_cores().quota is None
    (group / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (group / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert machine.usable_cores().quota == 0.5

"""Measure what the machine grants this process: cores, memory and the speed of reading files.

Reads Linux's own files.
"""

import errno
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")
# For versions 2 and 1 of control groups: the controller's folder, the limit and the usage.
_CGROUP_MEMORY = (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
_OWN_GROUPS = Path("/proc/self/cgroup")
_READ_BYTES = 1 << 20
_SAMPLED_PAGES = 256
_PROCESSORS = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Cores:
    """Cores of the machine, of the affinity mask, and of the control group's quota (None: no limit)."""

    machine: int
    allowed: int
    quota: float | None

    @property
    def usable(self) -> float:
        """Number of cores that this process can keep busy."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)

    @property
    def limit(self) -> str | None:
        """Why this process cannot use every core; None if it can."""
        if self.allowed < self.machine:
            return f"affinity leaves {self.allowed} of {self.machine} cores"
        if self.quota is not None and self.quota < self.machine:
            return f"a control group leaves {self.quota:g} of {self.machine} cores"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the cores as `--json` prints them."""
        return {**asdict(self), "usable": self.usable}


@dataclass(frozen=True)
class DiskSpeed:
    """Share of the files in the page cache, and the read speed from disk and from memory.

    disk_mb_per_second is None where the page cache cannot be emptied: a file system in memory or on a network.
    """

    cached_share: float | None
    disk_mb_per_second: float | None
    cached_mb_per_second: float


def usable_cores() -> Cores:
    """Return the cores of the machine and those that this process may use.

    Unlike joblib.cpu_count, keeps fractional quotas and sees the limits of nested control groups.
    """
    return Cores(os.cpu_count() or 1, len(os.sched_getaffinity(0)), _cgroup_cores())


@cache
def has_bfloat16_products() -> bool:
    """Return whether the processor has instructions for products of bfloat16 (AVX-512 BF16)."""
    return "avx512_bf16" in (_read(_PROCESSORS) or "").split()


def processor_name() -> str:
    """Return the name of the processor, or of its architecture where the system does not tell."""
    lines = (_read(_PROCESSORS) or "").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def memory_limit_bytes() -> int:
    """Return the memory that this process can use: the least of free memory and its control groups' limits."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    limits = [1024 * int(lines["MemAvailable"].split()[0])]
    for controller, limit_name, used_name in _CGROUP_MEMORY:
        for group in _own_groups(controller):
            limit, used = _read(group / limit_name), _read(group / used_name)
            if limit is not None and limit.isdigit():
                limits.append(int(limit) - max(int(used or 0) - _reclaimable_bytes(_read(group / "memory.stat")), 0))
    return max(min(limits), 0)


def _own_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its parents, the outermost first.

    `controller` names one of version 1, such as `memory`; version 2 has one tree for all: pass "". Inside a container
    the tree begins at the container's own group, and the name outside leads nowhere.
    """
    root = _CGROUP / controller
    yield root
    for line in (_read(_OWN_GROUPS) or "").splitlines():
        _, controllers, name = line.split(":", 2)
        if controller in controllers.split(","):
            group = root
            for part in Path(name).parts[1:]:
                group = group / part
                yield group


def _reclaimable_bytes(statistics: str | None) -> int:
    """Return the page cache that a control group counts as used and frees on demand."""
    values = dict(line.split() for line in (statistics or "").splitlines())
    return sum(int(values.get(f"total_{name}", values.get(name, 0))) for name in ("inactive_file", "active_file"))


def measure_disk(files: Sequence[Path], most_bytes: int) -> DiskSpeed:
    """Evict the files from the page cache, then read up to `most_bytes` of them twice: from disk and from memory."""
    cached = _cached_share(files)
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = _cached_share(files)
    first, second = _read_speed(files, most_bytes), _read_speed(files, most_bytes)
    return DiskSpeed(cached, first if left is not None and left < 0.1 else None, second)


def _cgroup_cores() -> float | None:
    """Return the smallest quota of this process's control groups, in cores; None without a limit."""
    grants = [(_read(group / "cpu.max") or "max").split() for group in _own_groups("")]
    grants += [
        [_read(group / "cpu.cfs_quota_us") or "-1", _read(group / "cpu.cfs_period_us") or "100000"]
        for group in _own_groups("cpu")
    ]
    return min((int(grant[0]) / int(grant[1]) for grant in grants if grant[0].isdigit()), default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cached_share(files: Sequence[Path]) -> float | None:
    """Return the share of sampled pages in the page cache, or None if the file system cannot tell."""
    hits = pages = 0
    for file in files:
        with file.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            count = min(max(_SAMPLED_PAGES // len(files), 1), max(size // 4096, 1))
            for offset in range(0, size, max(size // count, 1)):
                try:
                    hits += os.preadv(opened.fileno(), [bytearray(1)], offset, os.RWF_NOWAIT) == 1
                except BlockingIOError:
                    pass
                except OSError as error:
                    if error.errno == errno.EOPNOTSUPP:
                        return None
                    raise
                pages += 1
    return hits / max(pages, 1)


def _read_speed(files: Sequence[Path], most_bytes: int) -> float:
    """Return the sequential read speed of the files in MB per second."""
    done, started = 0, time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while done < most_bytes and (piece := opened.read(_READ_BYTES)):
                done += len(piece)
    return done / 1e6 / max(time.perf_counter() - started, 1e-9)

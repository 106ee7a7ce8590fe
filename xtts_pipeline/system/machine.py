"""What the machine lends this process: cores, memory, and how fast its files can be read.

Linux's own files and calls; what another system lacks is None.
"""

import errno
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")
# Of the second and the first version of control groups: the controller's folder, the limit, and what is used.
_CGROUP_MEMORY = (("", "memory.max", "memory.current"), ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))
_OWN_GROUPS = Path("/proc/self/cgroup")
_READ_BYTES = 1 << 20
_SAMPLED_PAGES = 256


@dataclass(frozen=True)
class Cores:
    """machine counts all, allowed those of the affinity mask, quota what a control group grants (None: no limit)."""

    machine: int
    allowed: int
    quota: float | None

    @property
    def usable(self) -> float:
        """How many this process can keep busy."""
        return self.allowed if self.quota is None else min(self.allowed, self.quota)

    @property
    def limit(self) -> str | None:
        """What keeps some from this process, in words."""
        if self.allowed < self.machine:
            return f"affinity leaves {self.allowed} of {self.machine} cores"
        if self.quota is not None and self.quota < self.machine:
            return f"a control group leaves {self.quota:g} of {self.machine} cores"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {**asdict(self), "usable": self.usable}


@dataclass(frozen=True)
class DiskSpeed:
    """How much of the files lay in the page cache, and how fast a part of them came from the disk and from memory.

    disk_mb_per_second is None where the page cache cannot be emptied: a file system in memory, or over a network.
    """

    cached_share: float | None
    disk_mb_per_second: float | None
    cached_mb_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return asdict(self)


def usable_cores() -> Cores:
    """Return how many cores there are and how many of them this process may use."""
    return Cores(os.cpu_count() or 1, len(os.sched_getaffinity(0)), _cgroup_cores())


def memory_limit_bytes() -> int:
    """Return the memory that this process can have: what is free, or what its control group leaves it, whichever is less."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    limits = [1024 * int(lines["MemAvailable"].split()[0])]
    for controller, limit_name, used_name in _CGROUP_MEMORY:
        for group in _own_groups(controller):
            limit, used = _read(group / limit_name), _read(group / used_name)
            if limit is not None and limit.isdigit():
                limits.append(int(limit) - max(int(used or 0) - _reclaimable_bytes(_read(group / "memory.stat")), 0))
    return max(min(limits), 0)


def _own_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it, the outermost first.

    `controller` is one of the first version, such as `memory`; empty for the second, which has one tree for all. Within a container the
    tree begins at its own group, whose name outside leads nowhere.
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
    """Return what a control group counts as used and gives back when it is asked for: pages of files."""
    values = dict(line.split() for line in (statistics or "").splitlines())
    return sum(int(values.get(f"total_{name}", values.get(name, 0))) for name in ("inactive_file", "active_file"))


def measure_disk(files: Sequence[Path], most_bytes: int) -> DiskSpeed:
    """Read the beginnings of the files from the disk, then again from memory; the files are put out of the page cache for it."""
    cached = _cached_share(files)
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = _cached_share(files)
    first, second = _read_speed(files, most_bytes), _read_speed(files, most_bytes)
    return DiskSpeed(cached, first if left is not None and left < 0.1 else None, second)


def _cgroup_cores() -> float | None:
    """Return the least of what this process's control groups grant, in cores; None where none limits it."""
    grants = [(_read(group / "cpu.max") or "max").split() for group in _own_groups("")]
    grants += [
        [_read(group / "cpu.cfs_quota_us") or "-1", _read(group / "cpu.cfs_period_us") or "100000"]
        for group in _own_groups("cpu")
    ]
    return min((int(grant[0]) / int(grant[1]) for grant in grants if grant[0].isdigit()), default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _cached_share(files: Sequence[Path]) -> float | None:
    """Return which share of a sample of pages can be read without waiting for a disk, or None if the file system cannot say."""
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
    """Return how many MB of the files come in a second, in large pieces one after the other."""
    done, started = 0, time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while done < most_bytes and (piece := opened.read(_READ_BYTES)):
                done += len(piece)
    return done / 1e6 / max(time.perf_counter() - started, 1e-9)

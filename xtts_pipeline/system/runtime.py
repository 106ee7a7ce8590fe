"""Prepare the process for TensorFlow: environment variables, XLA flags, compile cache and native log.

TensorFlow's C++ side writes to file descriptor 2: start-up lines that nobody asked for, and the only record of XLA
compilations. `NativeLog` sends descriptor 2 to a file and reads it; Python's stderr keeps the terminal.
"""

import fcntl
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from typing import IO, Self

from xtts_pipeline.errors import output_errors
from xtts_pipeline.system.stderr import open_stderr
from xtts_pipeline.system.storage import user_cache

# In TensorFlow 2.21 device_compilation_profiler logs, at level 1, each XLA compilation or load from the compile cache;
# buffer_assignment logs the memory of each compiled program.
_COMPILATION = re.compile(
    rb"device_compilation_profiler\.cc:\d+\] Compiled (?:__inference_)?(?P<name>\S+?)(?:_\d+)? \d+ times, "
    rb"compile time: (?P<us>\d+) us"
)
_PROGRAM = re.compile(rb"buffer_assignment\.cc:\d+\] Assigning buffers to module (?:a_inference_(?P<name>\S+?)_\d+__)?")
_PROGRAM_MEMORY = re.compile(
    rb"buffer_assignment\.cc:\d+\] +total allocation: +(?P<size>[\d.]+)(?P<unit>B|KiB|MiB|GiB|TiB)"
)
_UNIT_BYTES = {b"B": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30, b"TiB": 1 << 40}
_LOGGED_MODULES = ("device_compilation_profiler=1", "buffer_assignment=1")

# Waits for a line on stdin. The end of file in its place means that this process has died; then its last fatal line is
# repeated, such as "F0000 00:00:1795 8817 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --no_such_flag".
_WATCH = r"""read -r _ || tail -n 200 /dev/fd/{log} |
    sed -n 's/^F[0-9]\{{4\}} [^]]*\] /xtts: TensorFlow has ended the command: /p' | tail -n 1 >&2"""

# By device. oneDNN took a fused step from 0.36 s to 0.31 s on a CPU. On an H100, XLA spent half of the compile time on
# trials of its own kernels for matrix products, and they were no faster than cuBLAS: docs/benchmarks/gpu.md.
XLA_FLAGS: dict[str, tuple[str, ...]] = {
    "CPU": ("--xla_cpu_use_onednn=true",),
    "GPU": ("--xla_gpu_enable_triton_gemm=false",),
}

_CACHE_FLAG = "--tf_xla_persistent_cache_directory"
# About a hundred compiled steps: one of a network of 10 M parameters took 25 MB.
MAX_COMPILE_CACHE_BYTES = 2 << 30
_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia")


def visible_gpus() -> list[str] | None:
    """Return the GPUs of CUDA_VISIBLE_DEVICES, as numbers or names; None if it is not set: all are visible.

    As in CUDA, the list ends at the first entry that names no GPU, such as -1.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    entries = (entry.strip() for entry in visible.split(","))
    return list(takewhile(lambda entry: entry.isdecimal() or entry.startswith(("GPU-", "MIG-")), entries))


def has_gpu() -> bool:
    """Return whether this process has an NVIDIA GPU, judged by device files, without importing TensorFlow."""
    # WSL has one device file for all GPUs.
    return visible_gpus() != [] and (any(_DEVICES.glob("nvidia[0-9]*")) or (_DEVICES / "dxg").exists())


def gpu_count() -> int:
    """Return the number of NVIDIA GPUs for this process, judged by device files."""
    if not has_gpu():
        return 0
    visible = visible_gpus()
    return max(1, len(list(_DEVICES.glob("nvidia[0-9]*")))) if visible is None else len(visible)


@dataclass(frozen=True)
class Environment:
    """TensorFlow's start settings: expected device, XLA flags, and the compile cache (None: no cache)."""

    device: str
    xla_flags: str
    compile_cache: Path | None

    def __str__(self) -> str:
        kept = f", compiled programs in {self.compile_cache}" if self.compile_cache else ""
        return f"{self.device}, XLA_FLAGS={self.xla_flags!r}{kept}"


def prepare_environment() -> Environment:
    """Set the variables that TensorFlow reads at import and return them; a user's XLA_FLAGS come last and win.

    On a GPU compiled programs are kept between processes. A `--tf_xla_persistent_cache_directory` in TF_XLA_FLAGS wins;
    an empty one turns the cache off. On a CPU the user decides: a program's key does not name the processor.
    TF_CPP_MIN_LOG_LEVEL is overridden: compilations are logged at INFO, and the log goes to a file.
    """
    device = "GPU" if has_gpu() else "CPU"
    modules = [module for module in os.environ.get("TF_CPP_VMODULE", "").split(",") if module]
    if "tensorflow" not in sys.modules and not set(_LOGGED_MODULES) <= set(modules):
        # Else the first process would take all memory of a GPU, and no other could speak beside a training.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
        os.environ["TF_CPP_VMODULE"] = ",".join([*modules, *_LOGGED_MODULES])
        os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS[device], os.environ.get("XLA_FLAGS", "")]).strip()
        if device == "GPU":
            _keep_compiled_programs(os.environ["XLA_FLAGS"])
    flags = re.findall(rf"""{_CACHE_FLAG}=("[^"]*"|'[^']*'|\S*)""", os.environ.get("TF_XLA_FLAGS", ""))
    kept = flags[-1].strip("\"'") if flags else ""
    return Environment(device, os.environ.get("XLA_FLAGS", ""), Path(kept) if kept else None)


def _keep_compiled_programs(xla_flags: str) -> None:
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if _CACHE_FLAG in flags:
        return
    cache = user_cache()
    if cache is None:
        return
    root = cache / "xla"
    folder = root / _machine_digest(xla_flags)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_oldest(root, MAX_COMPILE_CACHE_BYTES)
    except OSError:
        # Without a writable home the only loss is compile time.
        return
    os.environ["TF_XLA_FLAGS"] = f"{flags} {_CACHE_FLAG}={shlex.quote(str(folder))}".strip()


def _machine_digest(xla_flags: str) -> str:
    """Return a hash of what TensorFlow's key of a compiled program omits: its version, GPU, driver and flags."""
    found = []
    for distribution in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            found.append(f"{distribution} {version(distribution)}")
        except PackageNotFoundError:
            continue
    for file in (_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))):
        # Skip the lines that differ between two GPUs of one model.
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
        found += [line for line in lines if line.startswith(("NVRM", "Model"))]
    return hashlib.sha256("\n".join([*found, xla_flags]).encode()).hexdigest()[:16]


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the least recently used files below a folder until at most `most_bytes` are left."""
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process removes files too
            continue
        if path.is_file():
            files.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= most_bytes:
            break
        path.unlink(missing_ok=True)
        left -= size


class NativeLog:
    """Context manager that sends file descriptor 2 to a file; Python's sys.stderr keeps the terminal.

    With a path the file is kept; without, it is temporary. `echo` repeats native lines on the real stderr when they are
    read. If native code ends the process, its last words are repeated there. Child processes inherit the file as
    stderr. Raises OutputError if the path cannot be written.
    """

    def __init__(self, path: Path | None = None, *, echo: bool = False) -> None:
        self._path, self._echo = path, echo
        self._unread = b""
        self._compilations: Counter[str] = Counter()
        self._compile_seconds: defaultdict[str, float] = defaultdict(float)
        self._program_bytes: dict[str, int] = {}
        self._assigned = ""
        self.environment = Environment("CPU", "", None)

    def __enter__(self) -> Self:
        self.environment = prepare_environment()
        with ExitStack() as undo:
            self._terminal = _open_terminal()
            undo.callback(os.close, self._terminal)
            self._log = undo.enter_context(self._open())
            # Append and read by position: native threads write to this open file at any time.
            fcntl.fcntl(self._log.fileno(), fcntl.F_SETFL, fcntl.fcntl(self._log.fileno(), fcntl.F_GETFL) | os.O_APPEND)
            self._position = os.fstat(self._log.fileno()).st_size
            undo.enter_context(_repeating_last_words(self._log.fileno(), self._terminal))
            undo.callback(setattr, sys, "stderr", sys.stderr)
            if sys.stderr is None or sys.stderr is sys.__stderr__:
                # Never closed: logging handlers may keep it.
                sys.stderr = open_stderr(os.dup(self._terminal), "utf-8", closefd=True)
            os.dup2(self._log.fileno(), 2)
            undo.callback(os.dup2, self._terminal, 2)
            undo.callback(self.read)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def read(self) -> None:
        """Parse what native code has written since the last call."""
        size = os.fstat(self._log.fileno()).st_size
        # A user may have truncated the file.
        self._position = min(self._position, size)
        new = os.pread(self._log.fileno(), size - self._position, self._position)
        self._position += len(new)
        if self._echo:
            with suppress(OSError), os.fdopen(os.dup(self._terminal), "wb") as terminal:
                terminal.write(new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        for line in lines:
            self._parse(line)

    def _parse(self, line: bytes) -> None:
        if found := _COMPILATION.search(line):
            self._compilations[found["name"].decode()] += 1
            self._compile_seconds[found["name"].decode()] += int(found["us"]) / 1e6
        elif found := _PROGRAM.search(line):
            self._assigned = (found["name"] or b"").decode()
        elif self._assigned and (found := _PROGRAM_MEMORY.search(line)):
            size = round(float(found["size"]) * _UNIT_BYTES[found["unit"]])
            self._program_bytes[self._assigned] = max(size, self._program_bytes.get(self._assigned, 0))

    def compile_seconds(self, function: str) -> float:
        """Return the total XLA compile time of a function, by its Python name."""
        self.read()
        return self._compile_seconds[function]

    def program_bytes(self, function: str) -> int | None:
        """Return the memory of a function's largest XLA program: arguments, results and temporaries.

        None if none was compiled, for example because it came from the compile cache.
        """
        self.read()
        return self._program_bytes.get(function)

    def compilations(self) -> dict[str, int]:
        """Return how often XLA has compiled each function since this log began, by Python name."""
        self.read()
        return dict(self._compilations)

    def _open(self) -> IO[bytes]:
        if self._path is None:
            return tempfile.TemporaryFile(buffering=0)
        with output_errors(self._path, "choose another --output"):
            return self._path.open("ab+", buffering=0)


@contextmanager
def _repeating_last_words(log: int, terminal: int) -> Iterator[None]:
    """Repeat the last fatal line of a log on a terminal if this process ends within the block.

    TensorFlow aborts the process on an unknown XLA flag, for example. So another process, a shell, waits for that.
    """
    watch = None
    with suppress(OSError):  # a container without a shell
        watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH.format(log=log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=terminal,
            pass_fds=[log],
            start_new_session=True,  # Ctrl-C must not end it before this process
        )
    try:
        yield
    finally:
        if watch is not None:
            watch.communicate(b"\n")


def _open_terminal() -> int:
    """Return a duplicate of descriptor 2, or of the null device if the process has none."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)

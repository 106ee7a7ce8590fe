"""The process around TensorFlow: what must be set before its import, and its native log.

XLA's flags and the cache of what it has compiled are chosen here and nowhere else.

TensorFlow's C++ side writes to file descriptor 2. There stand its start-up lines, which no user asked for, and the only
record of each XLA compilation. So descriptor 2 goes to a file, Python's own stderr keeps the terminal, and `NativeLog` reads the file.
"""

import fcntl
import hashlib
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from xtts_pipeline.errors import OutputError

# device_compilation_profiler logs one line for each XLA compilation, or loading of one from the compile cache, and nothing else, at
# level 1; buffer_assignment logs what memory each compiled program takes (TensorFlow 2.21).
_COMPILATION = re.compile(
    rb"device_compilation_profiler\.cc:\d+\] Compiled (?:__inference_)?(?P<name>\S+?)(?:_\d+)? \d+ times, compile time: (?P<us>\d+) us"
)
_PROGRAM = re.compile(rb"buffer_assignment\.cc:\d+\] Assigning buffers to module (?:a_inference_(?P<name>\S+?)_\d+__)?")
_PROGRAM_MEMORY = re.compile(
    rb"buffer_assignment\.cc:\d+\] +total allocation: +(?P<size>[\d.]+)(?P<unit>B|KiB|MiB|GiB|TiB)"
)
_UNIT_BYTES = {b"B": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30, b"TiB": 1 << 40}
_LOGGED_MODULES = ("device_compilation_profiler=1", "buffer_assignment=1")

# By device. oneDNN's matrix products took a fused step from 0.36 s to 0.31 s on a CPU. On a GPU no flag has been measured to help.
XLA_FLAGS: dict[str, tuple[str, ...]] = {"CPU": ("--xla_cpu_use_onednn=true",), "GPU": ()}

_CACHE_FLAG = "--tf_xla_persistent_cache_directory"
# Some hundred compiled steps: a network of 10 M parameters took 25 MB.
MAX_COMPILE_CACHE_BYTES = 2 << 30
_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia")


def visible_gpus() -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES lets this process see, as numbers or names; None where it is not set, so that all are seen.

    As CUDA reads it, the list ends at the first entry that names none, such as -1.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return None
    entries = (entry.strip() for entry in visible.split(","))
    return list(takewhile(lambda entry: entry.isdecimal() or entry.startswith(("GPU-", "MIG-")), entries))


def has_gpu() -> bool:
    """Return whether an NVIDIA GPU is there for this process, as its device files say: TensorFlow need not be imported to know."""
    # Windows' subsystem for Linux has one device for all GPUs.
    return visible_gpus() != [] and (any(_DEVICES.glob("nvidia[0-9]*")) or (_DEVICES / "dxg").exists())


def gpu_count() -> int:
    """Return how many NVIDIA GPUs there are for this process, by the same signs."""
    if not has_gpu():
        return 0
    visible = visible_gpus()
    return max(1, len(list(_DEVICES.glob("nvidia[0-9]*")))) if visible is None else len(visible)


@dataclass(frozen=True)
class Environment:
    """What TensorFlow is started with: the device that is expected, XLA's flags, and where compiled programs are kept (None: nowhere)."""

    device: str
    xla_flags: str
    compile_cache: Path | None

    def __str__(self) -> str:
        kept = f"compiled programs in {self.compile_cache}" if self.compile_cache else "compiled programs not kept"
        return f"{self.device}, XLA_FLAGS={self.xla_flags!r}, {kept}"


def prepare_environment() -> Environment:
    """Set what TensorFlow reads once, at import, and return it; a user's own XLA_FLAGS come last and win.

    On a GPU compiled programs are kept from one process to the next, unless the user's TF_XLA_FLAGS have a
    `--tf_xla_persistent_cache_directory`, which wins (`=` and nothing after it: none are kept). On a CPU that is left to the
    user: the key of a program does not say which processor its machine code is for.
    TF_CPP_MIN_LOG_LEVEL is overridden: compilations are logged at INFO, and the log goes to a file anyway.
    """
    device = "GPU" if has_gpu() else "CPU"
    modules = [module for module in os.environ.get("TF_CPP_VMODULE", "").split(",") if module]
    if "tensorflow" not in sys.modules and not set(_LOGGED_MODULES) <= set(modules):
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
        os.environ["TF_CPP_VMODULE"] = ",".join([*modules, *_LOGGED_MODULES])
        os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS[device], os.environ.get("XLA_FLAGS", "")]).strip()
        if device == "GPU":
            _keep_compiled_programs(os.environ["XLA_FLAGS"])
    flags = dict(flag.partition("=")[::2] for flag in os.environ.get("TF_XLA_FLAGS", "").split())
    kept = flags.get(_CACHE_FLAG)
    return Environment(device, os.environ.get("XLA_FLAGS", ""), Path(kept) if kept else None)


def _keep_compiled_programs(xla_flags: str) -> None:
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if _CACHE_FLAG in flags:
        return
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xtts" / "xla"
        folder = root / _machine_digest(xla_flags)
        folder.mkdir(parents=True, exist_ok=True)
        remove_oldest(root, MAX_COMPILE_CACHE_BYTES)
    except (OSError, RuntimeError):
        # No home, or one that cannot be written to, costs compilations, nothing else.
        return
    os.environ["TF_XLA_FLAGS"] = f"{flags} {_CACHE_FLAG}={folder}".strip()


def _machine_digest(xla_flags: str) -> str:
    """Return a name for what a compiled program depends on and TensorFlow's key for it leaves out: its version, GPU, driver and flags."""
    found = []
    for distribution in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            found.append(f"{distribution} {version(distribution)}")
        except PackageNotFoundError:
            continue
    for file in (_DRIVER / "version", *sorted(_DRIVER.glob("gpus/*/information"))):
        # Without the lines that tell one GPU from another of its kind.
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
        found += [line for line in lines if line.startswith(("NVRM", "Model"))]
    return hashlib.sha256("\n".join([*found, xla_flags]).encode()).hexdigest()[:16]


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove files beneath a folder, the one longest unused first, until no more than `most_bytes` are left."""
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process is at it too
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
    """Sends file descriptor 2 to a file while active; Python's sys.stderr stays where it was.

    With a path the file is kept there, for the day the process dies in native code; without, it is temporary. `echo` repeats the native
    lines on the real stderr when they are read. Processes started meanwhile have the file as their stderr.
    Raises OutputError if the path cannot be written.
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
            # Appending, and read by position: native threads write to this same open file at any moment.
            fcntl.fcntl(self._log.fileno(), fcntl.F_SETFL, fcntl.fcntl(self._log.fileno(), fcntl.F_GETFL) | os.O_APPEND)
            self._position = os.fstat(self._log.fileno()).st_size
            undo.callback(setattr, sys, "stderr", sys.stderr)
            if sys.stderr is None or sys.stderr is sys.__stderr__:
                # Never closed: logging handlers made meanwhile keep it.
                sys.stderr = os.fdopen(os.dup(self._terminal), "w", buffering=1, encoding="utf-8", errors="replace")
            os.dup2(self._log.fileno(), 2)
            undo.callback(os.dup2, self._terminal, 2)
            undo.callback(self.read)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def read(self) -> None:
        """Take in what native code has written since the last call."""
        size = os.fstat(self._log.fileno()).st_size
        # Somebody may have emptied the file, to keep it small.
        self._position = min(self._position, size)
        new = os.pread(self._log.fileno(), size - self._position, self._position)
        self._position += len(new)
        if self._echo:
            with os.fdopen(os.dup(self._terminal), "wb") as terminal:
                terminal.write(new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if found := _COMPILATION.search(line):
            self._compilations[found["name"].decode()] += 1
            self._compile_seconds[found["name"].decode()] += int(found["us"]) / 1e6
        elif found := _PROGRAM.search(line):
            self._assigned = (found["name"] or b"").decode()
        elif self._assigned and (found := _PROGRAM_MEMORY.search(line)):
            size = round(float(found["size"]) * _UNIT_BYTES[found["unit"]])
            self._program_bytes[self._assigned] = max(size, self._program_bytes.get(self._assigned, 0))

    def compile_seconds(self, function: str) -> float:
        """Return how long XLA has worked on a function, by its Python name."""
        self.read()
        return self._compile_seconds[function]

    def program_bytes(self, function: str) -> int | None:
        """Return the memory of the largest program that XLA has made of a function: arguments, results and what lies between.

        None if none was compiled, as where it came from the compile cache.
        """
        self.read()
        return self._program_bytes.get(function)

    def compilations(self) -> dict[str, int]:
        """Return how often XLA has compiled each function since this log began, by the function's Python name."""
        self.read()
        return dict(self._compilations)

    def _open(self) -> IO[bytes]:
        if self._path is None:
            return tempfile.TemporaryFile(buffering=0)
        try:
            return self._path.open("ab+", buffering=0)
        except OSError as error:
            raise OutputError(f"{self._path}: cannot be written ({error.strerror}); choose another --output") from None


def _open_terminal() -> int:
    """Return a new descriptor of what descriptor 2 is; of nowhere, where the process was started without one."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)

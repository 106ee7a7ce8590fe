"""The process around TensorFlow: what must be set before its import, and its native log.

TensorFlow's C++ side writes to file descriptor 2. There stand its start-up lines, which no user asked for, and the only
record of each XLA compilation. So descriptor 2 goes to a file, Python's own stderr keeps the terminal, and `NativeLog` reads the file.
"""

import fcntl
import os
import re
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from xtts_pipeline.errors import OutputError

# device_compilation_profiler logs one line for each XLA compilation, and nothing else, at level 1 (TensorFlow 2.21).
_COMPILATION = re.compile(rb"device_compilation_profiler\.cc:\d+\] Compiled (?:__inference_)?(\S+?)(?:_\d+)? \d+ times")
_COMPILATION_MODULE = "device_compilation_profiler=1"

# oneDNN's matrix products took a fused step from 0.36 s to 0.31 s on a CPU; a GPU ignores the flag.
XLA_FLAGS = ("--xla_cpu_use_onednn=true",)


def prepare_environment() -> None:
    """Set what TensorFlow reads once, at import; a user's own XLA_FLAGS come last and win.

    TF_CPP_MIN_LOG_LEVEL is overridden: compilations are logged at INFO, and the log goes to a file anyway.
    """
    modules = [module for module in os.environ.get("TF_CPP_VMODULE", "").split(",") if module]
    if "tensorflow" in sys.modules or _COMPILATION_MODULE in modules:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    os.environ["TF_CPP_VMODULE"] = ",".join([*modules, _COMPILATION_MODULE])
    os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()


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

    def __enter__(self) -> Self:
        prepare_environment()
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._undo.__exit__(kind, error, trace)

    def read(self) -> None:
        """Take in what native code has written since the last call."""
        new = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size - self._position, self._position)
        self._position += len(new)
        if self._echo:
            with os.fdopen(os.dup(self._terminal), "wb") as terminal:
                terminal.write(new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        for line in lines:
            found = _COMPILATION.search(line)
            if found:
                self._compilations[found.group(1).decode()] += 1

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

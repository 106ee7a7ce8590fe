"""The process around TensorFlow: what must be set before its import, and its native log.

TensorFlow's C++ side writes to file descriptor 2. There stand its start-up lines, which no user asked for, and the only
record of each XLA compilation. So descriptor 2 goes to a file, Python's own stderr keeps the terminal, and `NativeLog` reads the file.
"""

import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

# device_compilation_profiler logs one line for each XLA compilation, and nothing else, at level 1 (TensorFlow 2.21).
_COMPILATION = re.compile(rb"device_compilation_profiler\.cc:\d+\] Compiled (?:__inference_)?(\S+?)(?:_\d+)? \d+ times")
_COMPILATION_MODULE = "device_compilation_profiler=1"

# oneDNN's matrix products took a fused step from 0.36 s to 0.31 s on a CPU; a GPU ignores the flag.
XLA_FLAGS = ("--xla_cpu_use_onednn=true",)


def prepare_environment() -> None:
    """Set what TensorFlow reads once, at import; a user's own XLA_FLAGS come last and win."""
    if "tensorflow" in sys.modules:
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    modules = [module for module in os.environ.get("TF_CPP_VMODULE", "").split(",") if module]
    os.environ["TF_CPP_VMODULE"] = ",".join([*modules, _COMPILATION_MODULE])
    os.environ["XLA_FLAGS"] = " ".join([*XLA_FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()


class NativeLog:
    """Sends file descriptor 2 to a file while active; Python's sys.stderr stays where it was.

    With a path the file is kept there, for the day the process dies in native code; without, it is temporary.
    `echo` repeats the native lines on the real stderr when they are read.
    """

    def __init__(self, path: Path | None = None, echo: bool = False) -> None:
        self._path, self._echo = path, echo
        self._unread = b""
        self._compilations: Counter[str] = Counter()

    def __enter__(self) -> Self:
        prepare_environment()
        sys.stderr.flush()
        self._file = self._path.open("ab+", buffering=0) if self._path else tempfile.TemporaryFile(buffering=0)
        self._position = self._file.seek(0, os.SEEK_END)
        self._terminal = os.dup(2)
        self._python_stderr = sys.stderr
        # Whatever Python prints goes on to the terminal; only native code still writes to descriptor 2.
        is_plain = sys.stderr is sys.__stderr__
        sys.stderr = os.fdopen(os.dup(self._terminal), "w", buffering=1, encoding="utf-8", errors="replace") if is_plain else sys.stderr
        os.dup2(self._file.fileno(), 2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.read()
        os.dup2(self._terminal, 2)
        if sys.stderr is not self._python_stderr:
            sys.stderr.close()
            sys.stderr = self._python_stderr
        os.close(self._terminal)
        self._file.close()

    def read(self) -> None:
        """Take in what native code has written since the last call."""
        self._file.seek(self._position)
        new = self._file.read()
        self._position += len(new)
        if self._echo and new:
            os.write(self._terminal, new)
        *lines, self._unread = (self._unread + new).split(b"\n")
        for line in lines:
            found = _COMPILATION.search(line)
            if found:
                self._compilations[found.group(1).decode()] += 1

    def compilations(self) -> dict[str, int]:
        """Return how often XLA has compiled each function since this log began, by the function's Python name."""
        self.read()
        return dict(self._compilations)

"""The gate to TensorFlow: redirect its native log, then import the code that needs it.

TensorFlow's C++ code writes to file descriptor 2 from its import on, so the redirection must come before the import.
A command therefore imports no module that needs TensorFlow. It names such a module as text and reaches it from here:

    report = with_tensorflow("xtts_pipeline.perf.diagnose.gpu:diagnose_gpu", cache, manifest, config, echo=debug)

    with tensorflow("xtts_pipeline.inference.synthesizer", echo=debug) as (log, inference):
        synthesizer = inference.Synthesizer.load(run)

Write the names as string literals: a test imports each one that stands in `cli/`.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xtts_pipeline.system.runtime import Environment, NativeLog
from xtts_pipeline.system.storage import is_stored
from xtts_pipeline.system.terminal import echo_line


def _announce(_: Environment) -> None:
    if sys.stderr.isatty():
        echo_line("starting TensorFlow")


@contextmanager
def tensorflow(
    module: str,
    *,
    log_path: Path | None = None,
    echo: bool = False,
    before_import: Callable[[Environment], None] = _announce,
) -> Iterator[tuple[NativeLog, Any]]:
    """Yield TensorFlow's native log and the named module, imported while descriptor 2 goes to the log.

    The log goes to a temporary file unless `log_path` is given; `echo` repeats it on stderr. The import takes seconds;
    `before_import` says so, by default on a terminal only. Descriptor 2 is restored at the end of the block, so all
    work with TensorFlow belongs inside it.
    Raises OutputError if `log_path` cannot be written.
    """
    with NativeLog(log_path, echo=echo) as log:
        before_import(log.environment)
        imported = importlib.import_module(module)
        if not echo:
            # It counts the traces of a method for all objects together, so three voices look like one that retraces.
            logging.getLogger("tensorflow").setLevel(logging.ERROR)
        yield log, imported


def with_tensorflow(
    target: str,
    *args: Any,
    log_path: Path | None = None,
    echo: bool = False,
    before_import: Callable[[Environment], None] = _announce,
    **kwargs: Any,
) -> Any:
    """Call `function(log, *args, **kwargs)` for the target "package.module:function", and return its result.

    The function's first parameter is the `NativeLog`, which counts compilations; `log_path`, `echo` and `before_import`
    are those of `tensorflow`.
    """
    module, _, function = target.partition(":")
    with tensorflow(module, log_path=log_path, echo=echo, before_import=before_import) as (log, imported):
        return getattr(imported, function)(log, *args, **kwargs)


@contextmanager
def reaching_stores(*paths: Path) -> Iterator[None]:
    """Redirect TensorFlow's log where a path lies in a store; for local paths TensorFlow is not even imported."""
    if not any(map(is_stored, paths)):
        yield
        return
    with NativeLog():
        yield

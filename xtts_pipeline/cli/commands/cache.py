"""`xtts cache push`, and `xtts train --stage`: caches copied to a store and from one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Never

from tqdm import tqdm

from xtts_pipeline.cache.copy import CopyReport, copy_cache, stage_cache
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.system.storage import is_stored

STAGING_JOBS = 8


def push(source: Path, target: Path, jobs: int) -> CopyReport:
    """Copy a cache to a store or folder. Raises CacheError as `copy_cache` does."""
    with reaching_stores(source, target), _byte_bar("push") as bar:
        return copy_cache(source, target, jobs, bar.update, _note)


def stage(source: Path, folder: Path) -> Path:
    """Return a whole local copy of the cache under `folder`. Raises CacheError as `stage_cache` does."""
    with _byte_bar("stage") as bar:
        return stage_cache(source, folder, STAGING_JOBS, bar.update, _note)


@contextmanager
def reaching_stores(*paths: Path) -> Iterator[None]:
    """Keep TensorFlow's own lines out of sight where a path lies in a store; elsewhere it is not even imported."""
    if not any(map(is_stored, paths)):
        yield
        return
    with NativeLog():
        yield


@contextmanager
def _byte_bar(what: str) -> Iterator["tqdm[Never]"]:
    with tqdm(
        unit="B", unit_scale=True, desc=what, disable=not sys.stderr.isatty(), file=sys.stderr, smoothing=0
    ) as bar:
        yield bar


def _note(line: str) -> None:
    """Write a line for people, above any bar."""
    tqdm.write(line, file=sys.stderr)

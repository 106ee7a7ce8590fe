"""`xtts cache push`, and the copy of `xtts train --stage`: caches copied to a store and from one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Never

import click
from tqdm import tqdm

from xtts_pipeline.cache.copy import copy_cache, stage_cache
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import COUNT, STORED_CACHE_FOLDER, json_option, print_report
from xtts_pipeline.system.terminal import escape

STAGING_JOBS = 8


@click.group(cls=SummaryGroup)
def cache() -> None:
    """Copy caches to a store or to another folder."""


@cache.command(example="xtts cache push cache/ gs://bucket/cache")
@click.argument("source", type=STORED_CACHE_FOLDER, metavar="SRC")
@click.argument("target", type=STORED_CACHE_FOLDER, metavar="DST")
@click.option("--jobs", type=COUNT, default=8, show_default=True, help="Number of files that are copied at a time.")
@json_option
def push(source: Path, target: Path, jobs: int, as_json: bool) -> None:
    """Copy the cache SRC to DST, such as gs://bucket/cache.

    The manifest is copied last, so that an incomplete copy is never taken for a cache.
    """
    with reaching_stores(source, target), _byte_bar("push") as bar:
        report = copy_cache(source, target, jobs, bar.update, _note)
    print_report(report, as_json)


def stage(source: Path, folder: Path) -> Path:
    """Return a whole local copy of the cache under `folder`. Raises CacheError as `stage_cache` does."""
    with _byte_bar("stage") as bar:
        return stage_cache(source, folder, STAGING_JOBS, bar.update, _note)


@contextmanager
def _byte_bar(name: str) -> Iterator["tqdm[Never]"]:
    is_quiet = not sys.stderr.isatty()
    with tqdm(unit="B", unit_scale=True, desc=name, disable=is_quiet, file=sys.stderr, smoothing=0) as bar:
        yield bar


def _note(line: str) -> None:
    """Write a line on stderr, above any bar."""
    tqdm.write(escape(line), file=sys.stderr)

"""`xtts verify-cache`: prove that a cache is whole, by names and sizes, by its bytes, or by computing clips again."""

import os

# OpenBLAS starts its threads at import, and only a process of one thread can be forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from xtts_pipeline.cache.format.manifest import REJECTED_NAME, load_manifest
from xtts_pipeline.cache.verify.verify import Level, VerifyReport
from xtts_pipeline.cache.verify.verify import verify_cache as verify_bytes
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    Choice,
    jobs_option,
    json_option,
    print_report,
    print_warnings,
    stored_cache_option,
)
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.storage import check_local
from xtts_pipeline.system.terminal import counted, echo_line

DEFAULT_SAMPLE = 20


@click.command("verify-cache", cls=DocumentedCommand, example="xtts verify-cache --cache cache/ --level quick")
@stored_cache_option
@click.option(
    "--level",
    type=Choice(["quick", "full", "deep"]),
    default="full",
    show_default=True,
    help="What is checked: names and sizes; every byte; every byte, and a sample that is computed again from --data.",
)
@click.option("--data", type=FOLDER, help="Folder of the corpus, for --level deep and --repair.")
@click.option("--sample", type=COUNT, help=f"Clips that --level deep computes again.  [default: {DEFAULT_SAMPLE}]")
@click.option("--repair", is_flag=True, help="Rebuild what is broken from --data, then verify again.")
@jobs_option("Number of processes that read shards.")
@json_option
def verify_cache(
    cache: Path, level: Level, data: Path | None, sample: int | None, repair: bool, jobs: int, as_json: bool
) -> None:
    """Prove that a cache is what its manifest says.

    Exit code 0 if it is, 1 if it is not, 2 if there is no such folder.
    """
    report = verify(cache, level, data, sample, repair=repair, jobs=jobs)
    print_report(report, as_json, is_true=report.valid)


def verify(
    cache: Path, level: Level, data: Path | None, sample: int | None, *, repair: bool, jobs: int
) -> VerifyReport:
    """Return every problem of the cache; with `repair`, every problem that is left after the repair from `data`.

    Raises CacheError if there is no such folder, nothing in it, or no manifest to repair by; ConfigError if `data` is
    needed and missing, or if an option is given that the level does not use.
    """
    _check_options(level, data, sample, repair=repair)
    if repair:
        check_local(cache, "repair the cache that was pushed there, and push it again")
    with reaching_stores(cache):
        return _verify(cache, level, data, sample, repair=repair, jobs=jobs)


def _verify(
    cache: Path, level: Level, data: Path | None, sample: int | None, *, repair: bool, jobs: int
) -> VerifyReport:
    proof: Literal["quick", "full"] = "quick" if level == "quick" else "full"
    report = verify_bytes(cache, proof, jobs)
    if data is None:
        return report
    # Late: it imports SciPy, which takes as long as verifying a small cache.
    from xtts_pipeline.cache.verify.recompute import check_sources, repair_cache

    def repaired(found: VerifyReport) -> VerifyReport:
        kept = load_manifest(cache).counts.kept
        files = repair_cache(cache, found.problems, data, jobs)
        left = load_manifest(cache).counts.kept
        if left < kept:  # The new cache is valid, however few clips the corpus gave.
            print_warnings([f"{cache}: had {counted(kept, 'clip')}, the corpus gives {left}; see its {REJECTED_NAME}"])
        return replace(verify_bytes(cache, proof, jobs), repaired=tuple(sorted({*found.repaired, *files})))

    def compared(found: VerifyReport) -> VerifyReport:
        if load_manifest(cache).mels_from is not None:
            echo_line(f"{cache}: a model predicted its mels, so only texts and waves are compared with the corpus")
        sampled, problems = check_sources(cache, data, sample or DEFAULT_SAMPLE)
        return replace(found, problems=problems, sampled=sampled)

    if repair and not report.valid:
        report = repaired(report)
    if level == "deep" and report.valid:
        report = compared(report)
        if repair and not report.valid:
            report = repaired(report)
            report = compared(report) if report.valid else report
    return replace(report, level=level)


def _check_options(level: Level, data: Path | None, sample: int | None, *, repair: bool) -> None:
    """Raise ConfigError where options contradict each other: an ignored option would look like a passed check."""
    reads_corpus = level == "deep" or repair
    if data is None and reads_corpus:
        raise ConfigError(f"{'--repair' if repair else '--level deep'}: no corpus to compare with; add --data DIR")
    if data is not None and not reads_corpus:
        raise ConfigError("--data: only --level deep and --repair read the corpus; add one of them or leave --data out")
    if sample is not None and level != "deep":
        raise ConfigError("--sample: only --level deep recomputes clips; add it or leave --sample out")

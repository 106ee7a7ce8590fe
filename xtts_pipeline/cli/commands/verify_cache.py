"""`xtts verify-cache`: prove a cache, from a glance at its names to recomputing it."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from xtts_pipeline.cache.verify.verify import Level, VerifyReport, verify_cache
from xtts_pipeline.cli.commands.cache import reaching_stores
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.storage import check_local

DEFAULT_SAMPLE = 20


def verify(
    cache: Path, *, level: Level, data: Path | None, sample: int | None, repair: bool, jobs: int
) -> VerifyReport:
    """Return every problem of the cache; with `repair`, of the cache after what was broken has been written again from `data`.

    `sample` is 20 clips unless given. Raises CacheError if there is no such folder, nothing in it, or no manifest to repair by;
    ConfigError if `data` is needed and not given, or if an option is given that the level does not use.
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
    report = verify_cache(cache, proof, jobs)
    if data is None:
        return report
    # Here: the writer's modules, which need the decoder and the resampler, are no part of a plain proof.
    from xtts_pipeline.cache.verify.recompute import check_sources, repair_cache

    def mended(found: VerifyReport) -> VerifyReport:
        repaired = repair_cache(cache, found.problems, data, jobs)
        return replace(verify_cache(cache, proof, jobs), repaired=tuple(sorted({*found.repaired, *repaired})))

    def compared(found: VerifyReport) -> VerifyReport:
        check = check_sources(cache, data, sample or DEFAULT_SAMPLE)
        return replace(found, problems=check.problems, sampled=check.sampled)

    if repair and not report.valid:
        report = mended(report)
    if level == "deep" and report.valid:
        report = compared(report)
        if repair and not report.valid:
            report = mended(report)
            report = compared(report) if report.valid else report
    return replace(report, level=level)


def _check_options(level: Level, data: Path | None, sample: int | None, *, repair: bool) -> None:
    """Raise ConfigError where options contradict each other: one that is ignored would pass for a proof."""
    reads_corpus = level == "deep" or repair
    if data is None and reads_corpus:
        raise ConfigError(f"{'--repair' if repair else '--level deep'}: no corpus to compare with; add --data DIR")
    if data is not None and not reads_corpus:
        raise ConfigError("--data: only --level deep and --repair read the corpus; add one of them or leave --data out")
    if sample is not None and level != "deep":
        raise ConfigError("--sample: only --level deep recomputes clips; add it or leave --sample out")

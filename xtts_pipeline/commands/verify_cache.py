"""`xtts verify-cache`: prove a cache, from a glance at its names to recomputing it."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from xtts_pipeline.cache.verify import VerifyReport, verify_cache
from xtts_pipeline.errors import ConfigError


def verify(
    cache: Path, *, level: Literal["quick", "full", "deep"], data: Path | None, sample: int, repair: bool, jobs: int
) -> VerifyReport:
    """Return every problem of the cache; with `repair`, of the cache after what was broken has been written again from `data`.

    Raises CacheError if there is no such folder, nothing in it, or no manifest to repair by; ConfigError if `data` is needed and not given.
    """
    if data is None and (level == "deep" or repair):
        raise ConfigError(f"{'--repair' if repair else '--level deep'}: no corpus to compare with; add --data DIR")
    proof: Literal["quick", "full"] = "quick" if level == "quick" else "full"
    report = verify_cache(cache, proof, jobs)
    if data is None:
        return report
    # Here: the writer's modules, which need the decoder and the resampler, are no part of a plain proof.
    from xtts_pipeline.cache.recompute import check_sources, repair_cache

    if repair and not report.valid:
        repair_cache(cache, report.problems, data, jobs)
        report = verify_cache(cache, proof, jobs)
    if level == "deep" and report.valid:
        report = replace(report, problems=tuple(check_sources(cache, data, sample)))
    return report

"""`xtts verify-cache`: prove a cache, from a glance at its names to recomputing it."""

from pathlib import Path
from typing import Literal

from xtts_pipeline.cache.verify import VerifyReport, verify_cache


def verify(
    cache: Path, *, level: Literal["quick", "full", "deep"], data: Path | None, sample: int, repair: bool, jobs: int
) -> VerifyReport:
    """Return every problem of the cache. Raises CacheError if there is no such folder or nothing in it."""
    return verify_cache(cache, "quick" if level == "quick" else "full", jobs)

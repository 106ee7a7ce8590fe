"""`xtts preprocess`: a corpus in, a cache out, every row accounted for."""

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from xtts_pipeline.cache.build import BuildOptions, BuildResult, build_cache
from xtts_pipeline.cache.folder import locked_folder
from xtts_pipeline.cache.plan import take_in
from xtts_pipeline.cache.pool import local_pool
from xtts_pipeline.cache.receipts import SourceCheck
from xtts_pipeline.config import Config
from xtts_pipeline.corpus.read import read_corpus


@dataclass(frozen=True)
class PreprocessReport:
    """What a run of preprocess did."""

    build: BuildResult
    seconds: float
    max_rejected: float

    @property
    def is_over_limit(self) -> bool:
        """Whether a larger share of the rows was rejected than allowed."""
        counts = self.build.manifest.counts
        return counts.rejected > self.max_rejected * counts.read

    def to_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        manifest, build = self.build.manifest, self.build
        return {
            "read": manifest.counts.read,
            "kept": manifest.counts.kept,
            "rejected": manifest.counts.rejected,
            "shards_written": build.shards_written,
            "shards_reused": build.shards_reused,
            "seconds": round(self.seconds, 3),
            "clips_per_second": round(manifest.counts.read / self.seconds, 1),
            "layout": manifest.layout,
            "splits": {split: manifest.split_records(split) for split in ("train", "val", "test")},
            "rejected_by_reason": dict(manifest.rejected_by_reason),
            "stage_seconds": {stage: round(seconds, 3) for stage, seconds in build.stage_seconds.items()},
            "settings_changed": list(build.settings_changed),
        }

    def to_text(self) -> str:
        """Return what is printed without `--json`."""
        manifest = self.build.manifest
        counts = manifest.counts
        lines = [
            f"{manifest.layout}: read {counts.read} = kept {counts.kept} + rejected {counts.rejected}",
            f"shards: {self.build.shards_written} written, {self.build.shards_reused} reused",
            f"{self.seconds:.1f} s, {counts.read / self.seconds:.0f} clips/s",
        ]
        return "\n".join(lines)


def preprocess(
    data: Path,
    cache: Path,
    config: Config,
    *,
    jobs: int,
    max_rejected: float,
    layout: str,
    shards: int | None,
    reshard: bool,
    check: SourceCheck,
    val_data: Path | None,
    dry_run: bool,
    backend: Literal["local", "dask"],
    scheduler: str | None,
    progress: bool,
) -> PreprocessReport:
    """Make the cache, or bring it up to date, and return what was done.

    Raises CorpusError for a corpus that cannot be used at all, CacheError for a folder that cannot be written.
    """
    with locked_folder(cache) as work_folder:
        corpora = [
            read_corpus(root, layout if place == 0 else "auto", config.text.language) for place, root in enumerate([data, val_data]) if root
        ]
        intake = take_in(corpora, config)
        options = BuildOptions(partial(local_pool, jobs), jobs, check, shards, reshard)
        with tqdm(total=len(intake.rows), unit="clip", disable=not progress, file=sys.stderr, smoothing=0) as bar:
            build = build_cache(cache, work_folder, intake, config, options, lambda rows: bar.update(rows) and None)
    return PreprocessReport(build, process_seconds(), max_rejected)


def process_seconds() -> float:
    """Return how long this process has lived, imports included."""
    try:
        status = Path("/proc/self/stat").read_text(encoding="ascii")
    except OSError:
        return time.perf_counter() - _IMPORTED_AT
    start_ticks = int(status.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


_IMPORTED_AT = time.perf_counter()

"""Estimate a build from texts, headers and a short timed sample. Writes nothing."""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xtts_pipeline.cache.build.bucketing import (
    RowLengths,
    buckets_of_rows,
    judge_rows,
    rejections_of,
    resolve_buckets,
)
from xtts_pipeline.cache.build.build import BuildOptions, current_receipts, planned_bytes
from xtts_pipeline.cache.build.folder import existing_counts
from xtts_pipeline.cache.build.plan import CorpusIndex, choose_validation_row, lay_out, plan_shards
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.workers import ExampleMaker
from xtts_pipeline.cache.format.manifest import buckets_of
from xtts_pipeline.config.schema import Bucket, Config
from xtts_pipeline.corpus.utterance import examples_by_reason

SAMPLE_CLIPS = 64  # at least, if there are so many
SAMPLE_SECONDS = 2.0
LEAST_SAMPLE_CLIPS = 9  # for a median


@dataclass(frozen=True)
class BuildEstimate:
    """What a build would read, keep and write, judged by texts and headers; `hours` are of the kept clips.

    `buckets` is empty if one shape holds every record.
    """

    layout: str
    read: int
    kept: int
    rejected: int
    rejected_by_reason: dict[str, int]
    examples: dict[str, dict[str, str]]
    hours: float
    buckets: tuple[Bucket, ...]
    shards: dict[str, int]
    shards_to_write: int
    bytes_to_write: int
    free_bytes: int
    estimated_seconds: float


def estimate_build(folder: Path, index: CorpusIndex, config: Config, options: BuildOptions) -> BuildEstimate:
    """Judge every row by its text and sound header, and time a short sample."""
    config = resolve_buckets(config, folder, index, reshard=options.reshard)
    existing = existing_counts(folder) if folder.is_dir() else {}
    plan = plan_shards(index, config.cache, existing, options.train_shards, reshard=options.reshard)
    layout = lay_out(index, plan, choose_validation_row(index, config.cache, ()))
    current = current_receipts(folder, layout, index, config, options)
    stale = [name for name in layout if name not in current]
    verdicts = judge_rows(index, config, config.limits)
    rejections = rejections_of(index, verdicts)
    reasons = Counter(rejection.reason.value for rejection in rejections)
    kept = {
        row.id: verdict for row, verdict in zip(index.rows, verdicts, strict=True) if isinstance(verdict, RowLengths)
    }
    sizes = planned_bytes(layout, config, buckets_of_rows(index, config, verdicts))
    rows_to_make = [row for name in stale for row in layout[name]]
    return BuildEstimate(
        layout=index.layout,
        read=index.read,
        kept=len(kept),
        rejected=len(rejections),
        rejected_by_reason=dict(sorted(reasons.items())),
        examples=examples_by_reason(rejections),
        hours=round(sum(lengths.seconds for lengths in kept.values()) / 3600, 3),
        buckets=buckets_of(config),
        shards=dict(Counter(name.split for name in layout)),
        shards_to_write=len(stale),
        bytes_to_write=sum(sizes[name] for name in stale),
        free_bytes=shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if path.is_dir())).free,
        estimated_seconds=round(
            _seconds_per_clip(rows_to_make, index, config) * len(rows_to_make) / max(min(options.jobs, len(stale)), 1),
            1,
        ),
    )


def _seconds_per_clip(rows: Sequence[PlannedRow], index: CorpusIndex, config: Config) -> float:
    """Return the median worker time for a clip, measured on clips spread over the rows.

    A mean would multiply a pause of the machine by the number of clips.
    """
    if not rows:
        return 0.0
    maker = ExampleMaker(index.roots, config, index.symbols)
    maker.make(rows[0])  # warm-up: builds filters and tables
    sample = rows[:: max(1, len(rows) // SAMPLE_CLIPS)]
    times: list[float] = []
    for row in sample:
        start = time.perf_counter()
        maker.make(row)
        times.append(time.perf_counter() - start)
        if sum(times) > SAMPLE_SECONDS and len(times) >= LEAST_SAMPLE_CLIPS:
            break
    return float(np.median(times))

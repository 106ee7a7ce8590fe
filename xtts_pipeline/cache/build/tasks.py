"""What parent and workers say to each other: a shard to write, and what came of it.

Imports no sound library: a rerun that writes nothing must start at once.
"""

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xtts_pipeline.cache.build.plan import PlannedRow
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.config.schema import AudioConfig, Bucket, LimitsConfig, TextConfig
from xtts_pipeline.errors import CacheError, Reason

CLIP_SECONDS = 60.0  # how long a clip may take; a minute of speech takes a fifth of a second
BEAT_PREFIX = "beat-"


@dataclass(frozen=True)
class ShardTask:
    """All that a worker must know to write one shard. `condemned` are clips not to be touched again, with their reasons."""

    folder: Path
    work_folder: Path
    name: ShardName
    rows: tuple[PlannedRow, ...]
    roots: tuple[Path, ...]
    audio: AudioConfig
    text: TextConfig
    limits: LimitsConfig
    buckets: tuple[Bucket, ...]
    symbols: tuple[str, ...]
    fingerprint: str
    clip_seconds: float = CLIP_SECONDS
    condemned: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class ShardResult:
    """What the parent learns of a finished shard; the rest is in its receipt."""

    name: ShardName
    rows: int
    stage_seconds: Mapping[str, float]


class ClipOutOfMemoryError(Exception):
    """A clip, named by its id, took more memory than there is; it must be tried alone."""


def write_error(path: Path, error: OSError) -> CacheError:
    """Return the one line for a file of the cache that cannot be written."""
    remedy = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "mend that"
    return CacheError(f"{path}: cannot be written ({error.strerror}); {remedy} and run again, finished shards are kept")

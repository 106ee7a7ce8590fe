"""Shards: their file names, and which utterance goes into which shard and split.

Knows ids and names, not the content of records.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.config.schema import CacheConfig

WAVE_PREFIX = "wave-"
# Nine digits are enough; int() refuses numbers of thousands of digits.
_NAME = re.compile(rf"({'|'.join(SPLITS)})-([0-9]{{5,9}})-of-([0-9]{{5,9}})(?:-bucket([0-9]))?\.tfrecord")


@dataclass(frozen=True, order=True)
class ShardName:
    """One shard, `SPLIT-NUMBER-of-COUNT`: one file, or one file for each bucket."""

    split: str
    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.split}-{self.number:05d}-of-{self.count:05d}"

    def file(self, bucket: int | None = None) -> str:
        """Return the name of the shard's only file, or of a bucket's file."""
        return f"{self}.tfrecord" if bucket is None else f"{self}-bucket{bucket}.tfrecord"

    def files(self, bucket_count: int) -> list[str]:
        """Return the names of all files of the shard, in the order of the buckets."""
        return [self.file()] if bucket_count == 1 else [self.file(bucket) for bucket in range(bucket_count)]

    def wave_files(self, bucket_count: int) -> list[str]:
        """Return the names of the shard's wave files, in the order of `files`."""
        return [WAVE_PREFIX + name for name in self.files(bucket_count)]


def parse_shard_file(name: str) -> tuple[ShardName, int | None] | None:
    """Return the shard and the bucket of a shard file's name, or None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    shard, bucket = ShardName(match[1], int(match[2]), int(match[3])), None if match[4] is None else int(match[4])
    return (shard, bucket) if shard.file(bucket) == name and shard.number < shard.count else None


def parse_shard_name(name: str) -> ShardName | None:
    """Return the shard of a shard file's or a wave file's name, or None for any other name."""
    parsed = parse_shard_file(name.removeprefix(WAVE_PREFIX))
    return parsed and parsed[0]


def digest_of(seed: int, utterance_id: str) -> bytes:
    """Return SHA-256 of `seed:id`, which decides the split, the shard and the order within the shard."""
    return hashlib.sha256(f"{seed}:{utterance_id}".encode()).digest()


def split_of(digest: bytes, config: CacheConfig) -> str:
    """Return the split chosen by the digest's first 8 bytes, read as a number in [0, 1)."""
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < config.validation_share:
        return "val"
    return "test" if position < config.validation_share + config.test_share else "train"


def shard_of(digest: bytes, shard_count: int) -> int:
    """Return the shard number chosen by the digest's second 8 bytes."""
    return int.from_bytes(digest[8:16], "big") % shard_count


def default_shard_count(rows: int, records_per_shard: int) -> int:
    """Return the number of shards of a split of `rows` rows in a new cache; 0 without rows.

    A small split gets up to 4, so that workers and readers can share it.
    """
    return max(-(-rows // records_per_shard), min(4, -(-rows // 16)))


@dataclass(frozen=True)
class ShardPlan:
    """Number of shards of each split; splits without rows are absent."""

    counts: Mapping[str, int]

    def names(self) -> list[ShardName]:
        """Return every shard of the plan, ordered by name."""
        return sorted(
            ShardName(split, number, count) for split, count in self.counts.items() for number in range(count)
        )

    def shard(self, split: str, digest: bytes) -> ShardName:
        """Return the shard of an utterance with this digest."""
        count = self.counts[split]
        return ShardName(split, shard_of(digest, count), count)

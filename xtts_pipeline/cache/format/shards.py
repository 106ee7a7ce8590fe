"""Shard files: their names, which utterance goes where, and how a file appears whole or not at all.

Knows ids and paths, not what is in a record.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.config.schema import CacheConfig

# Nine digits are more shards than there are records; a number of thousands of digits would be an error of int's own.
_NAME = re.compile(rf"({'|'.join(SPLITS)})-([0-9]{{5,9}})-of-([0-9]{{5,9}})(?:-bucket([0-9]))?\.tfrecord")


@dataclass(frozen=True, order=True)
class ShardName:
    """One shard's place: `SPLIT-NUMBER-of-COUNT`. It is one file, or one a bucket where there are several."""

    split: str
    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.split}-{self.number:05d}-of-{self.count:05d}"

    def file(self, bucket: int | None = None) -> str:
        """Return the name of the shard's one file, or of a bucket's."""
        return f"{self}.tfrecord" if bucket is None else f"{self}-bucket{bucket}.tfrecord"

    def files(self, bucket_count: int) -> list[str]:
        """Return the names of all its files, in the order of the buckets."""
        return [self.file()] if bucket_count == 1 else [self.file(bucket) for bucket in range(bucket_count)]


def parse_shard_file(name: str) -> tuple[ShardName, int | None] | None:
    """Return the shard and the bucket that a file name says, or None if it is not exactly the name of a shard's file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    shard, bucket = ShardName(match[1], int(match[2]), int(match[3])), None if match[4] is None else int(match[4])
    return (shard, bucket) if shard.file(bucket) == name and shard.number < shard.count else None


def parse_shard_name(name: str) -> ShardName | None:
    """Return the shard that a file name says, whatever its bucket, or None if it is not exactly the name of a shard's file."""
    parsed = parse_shard_file(name)
    return parsed and parsed[0]


def digest_of(seed: int, utterance_id: str) -> bytes:
    """Return SHA-256 of `seed:id`: the one source of splits, shards and the order within a shard."""
    return hashlib.sha256(f"{seed}:{utterance_id}".encode()).digest()


def split_of(digest: bytes, config: CacheConfig) -> str:
    """Return the split that the digest's first 8 bytes, as a number in [0, 1), choose."""
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < config.validation_share:
        return "val"
    return "test" if position < config.validation_share + config.test_share else "train"


def shard_of(digest: bytes, shard_count: int) -> int:
    """Return the number of the shard that the digest's second 8 bytes choose."""
    return int.from_bytes(digest[8:16], "big") % shard_count


def default_shard_count(rows: int, records_per_shard: int) -> int:
    """Return how many shards a split of so many rows gets when its cache is made; 0 for none.

    A small split still gets up to 4, so that workers and readers have something to share.
    """
    return max(-(-rows // records_per_shard), min(4, -(-rows // 16)))


@dataclass(frozen=True)
class ShardPlan:
    """How many shards each split has; splits without rows are absent."""

    counts: Mapping[str, int]

    def names(self) -> list[ShardName]:
        """Return every shard of the plan, in the order of their names."""
        return sorted(
            ShardName(split, number, count) for split, count in self.counts.items() for number in range(count)
        )

    def shard(self, split: str, digest: bytes) -> ShardName:
        """Return the shard of an utterance with this digest."""
        count = self.counts[split]
        return ShardName(split, shard_of(digest, count), count)

"""The shuffle's figures for a perfect shuffle, for none, and for that of training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.mixing import epoch_orders, repeats, shard_spread, shards_in_batch
from xtts_pipeline.cache.format.manifest import Manifest

SHARDS, RECORDS, BATCH = 20, 100, 16
SHARD_OF = np.repeat(np.arange(SHARDS), RECORDS)


def test_a_perfect_shuffle_is_spread_and_comes_from_everywhere() -> None:
    random = np.random.default_rng(0)
    first, second = (random.permutation(SHARDS * RECORDS) for _ in range(2))
    assert shard_spread(first, SHARD_OF) == pytest.approx(1.0, abs=0.05)
    assert shards_in_batch(first, SHARD_OF, BATCH) == pytest.approx(1.0, abs=0.05)
    assert repeats(first, second, len(SHARD_OF)) == pytest.approx(0.0, abs=0.1)


def test_no_shuffle_is_neither() -> None:
    order = np.arange(SHARDS * RECORDS)
    assert shard_spread(order, SHARD_OF) == pytest.approx(1 / SHARDS, rel=0.01)
    assert shards_in_batch(order, SHARD_OF, BATCH) < 0.15
    assert repeats(order, order, len(SHARD_OF)) == pytest.approx(1.0)


def test_a_record_that_an_epoch_leaves_out_counts_nowhere() -> None:
    assert repeats(np.array([0, 1, 2]), np.array([0, 2, 3]), 4) == pytest.approx(1.0)


def test_training_mixes_more_with_a_larger_buffer_and_anew_in_each_epoch(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    manifest = write_cache(tmp_path / "cache", train=200, shards=25)
    shard_of = np.repeat(np.arange(25), [shard.records for shard in manifest.shards_of("train")])
    small, large = (epoch_orders(manifest, 0, 4, buffer, epochs=2) for buffer in (1, 200))
    assert shard_spread(small[0], shard_of) < 0.6
    assert shard_spread(large[0], shard_of) > 0.8
    assert shards_in_batch(small[0], shard_of, 4) > 0.9, "eight shards are read at once"
    for first, second in (small, large):
        assert abs(repeats(first, second, 200)) < 0.5
        assert sorted(first) == sorted(set(first.tolist()))

"""Shards: an utterance's place depends on its id and the seed only, and files are atomic."""

import pytest

from xtts_pipeline.cache.format.shards import (
    ShardName,
    ShardPlan,
    default_shard_count,
    digest_of,
    parse_shard_file,
    parse_shard_name,
    shard_of,
    split_of,
)
from xtts_pipeline.config.schema import CacheConfig

IDS = [f"clip-{number}" for number in range(4_000)]


def test_names_come_back() -> None:
    name = ShardName("train", 3, 52)
    assert name.file() == "train-00003-of-00052.tfrecord"
    assert parse_shard_name(name.file()) == name
    assert parse_shard_file(name.file()) == (name, None)
    assert name.files(1) == [name.file()]
    assert name.files(2) == ["train-00003-of-00052-bucket0.tfrecord", "train-00003-of-00052-bucket1.tfrecord"]
    assert [parse_shard_file(file) for file in name.files(2)] == [(name, 0), (name, 1)]


@pytest.mark.parametrize(
    "name",
    [
        "train-00052-of-00052.tfrecord",
        "train-3-of-52.tfrecord",
        "dev-00000-of-00001.tfrecord",
        "train-000001-of-00002.tfrecord",
        "train-00000-of-00002-bucket.tfrecord",
        "train-00000-of-00002-bucket10.tfrecord",
        "train-00002-of-00002-bucket0.tfrecord",
        "x",
        f"train-00000-of-{'9' * 5_000}.tfrecord",
    ],
)
def test_other_names_are_no_shards(name: str) -> None:
    assert parse_shard_name(name) is None


def test_shares_are_kept_and_no_split_shifts_when_a_share_grows() -> None:
    small, large = CacheConfig(validation_share=0.05, test_share=0.1), CacheConfig(validation_share=0.1, test_share=0.1)
    splits = [split_of(digest_of(0, utterance_id), small) for utterance_id in IDS]
    assert abs(splits.count("val") / len(IDS) - 0.05) < 0.02
    assert abs(splits.count("test") / len(IDS) - 0.1) < 0.02
    for utterance_id, split in zip(IDS, splits, strict=True):
        if split == "val":
            assert split_of(digest_of(0, utterance_id), large) == "val"


def test_a_place_depends_on_id_and_seed_alone() -> None:
    places = {seed: [shard_of(digest_of(seed, utterance_id), 52) for utterance_id in IDS] for seed in (0, 1)}
    assert places[0] != places[1]
    assert set(places[0]) == set(range(52))


@pytest.mark.parametrize(
    ("rows", "count"), [(0, 0), (1, 1), (16, 1), (17, 2), (64, 4), (1_024, 4), (1_025, 5), (13_100, 52)]
)
def test_default_shard_counts(rows: int, count: int) -> None:
    assert default_shard_count(rows, 256) == count


def test_a_plan_lists_its_shards_in_the_order_of_their_names() -> None:
    plan = ShardPlan({"val": 1, "train": 12})
    names = [str(name) for name in plan.names()]
    assert names == sorted(names)
    assert len(names) == 13

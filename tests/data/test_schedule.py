from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.data.schedule import batch_sizes, bucket_order, mean_batch_size


def specs(*frames: int) -> list[RecordSpec]:
    return [RecordSpec(max_text_length=10, max_mel_frames=count, mel_bins=4, pad_value=-11.5) for count in frames]


@pytest.mark.parametrize(
    ("frames", "accumulation_steps", "expected"),
    [
        ((880,), 1, [16]),
        ((440, 660, 880), 1, [32, 21, 16]),
        ((440, 660, 880), 4, [32, 20, 16]),
        ((880, 880), 1, [16, 16]),  # they differ in text alone
    ],
)
def test_batches_of_all_buckets_hold_about_as_many_frames(
    frames: tuple[int, ...], accumulation_steps: int, expected: list[int]
) -> None:
    assert batch_sizes(specs(*frames), 16, accumulation_steps) == expected


def test_the_mean_batch_has_the_clips_of_an_epoch_over_its_batches(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    manifest = write_cache(tmp_path, train=60, buckets=((16, 12), (16, 24)))
    short, long = (manifest.split_records("train", bucket) for bucket in range(2))
    assert mean_batch_size(manifest, [8, 4]) == pytest.approx(60 / (short / 8 + long / 4))


def test_an_epoch_has_every_batch_of_every_bucket_once() -> None:
    for epoch in range(3):
        assert np.bincount(bucket_order([5, 0, 11], 3, epoch)).tolist() == [5, 0, 11]


def test_the_order_is_that_of_seed_and_epoch_for_ever() -> None:
    assert bucket_order([2, 3, 3], seed=7, epoch=2).tolist() == [2, 1, 0, 2, 2, 0, 1, 1]
    orders = {tuple(bucket_order([20, 20], seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


def test_buckets_are_mixed_over_the_whole_epoch() -> None:
    is_second = bucket_order([3_000, 1_000], seed=0, epoch=0) == 1
    # A share of 1/4 in each tenth of the epoch, within 4 standard deviations of chance.
    assert np.abs(is_second.reshape(10, -1).mean(axis=1) - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 400)

"""Measure how global the shuffle of the training records is, from a cache's manifest; no record is read.

    python benchmarks/mixing.py --cache cache --shuffle-records 256 2048 8192

Prints three figures of an epoch, each the mean over --epochs:
`spread`: the standard deviation of the positions of a shard's records over that of all positions. 1 is perfect; near 0,
records that lie together on the disk come together.
`shards`: the number of shards in a batch over that of a perfect shuffle.
`repeats`: the correlation of a record's positions in two consecutive epochs; 0 is perfect.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.system.runtime import NativeLog


def shard_spread(order: np.ndarray, shard_of: np.ndarray) -> float:
    """Return the spread of the shards' records over an epoch; `order` holds record numbers, int [records]."""
    place = places(order, len(shard_of))
    came = place >= 0
    deviations = [place[came & (shard_of == shard)].std() for shard in np.unique(shard_of)]
    return float(np.mean(deviations) / np.arange(len(order)).std())


def shards_in_batch(order: np.ndarray, shard_of: np.ndarray, batch_size: int) -> float:
    """Return the mean number of shards in a batch over that of records drawn at random."""
    batches = order[: len(order) // batch_size * batch_size].reshape(-1, batch_size)
    found = np.mean([len(np.unique(shard_of[batch])) for batch in batches])
    share = np.bincount(shard_of) / len(shard_of)
    return float(found / (1.0 - (1.0 - share) ** batch_size).sum())


def repeats(first: np.ndarray, second: np.ndarray, records: int) -> float:
    """Return the correlation of the records' positions in two epochs, over those in both."""
    before, after = places(first, records), places(second, records)
    both = (before >= 0) & (after >= 0)
    return float(np.corrcoef(before[both], after[both])[0, 1])


def places(order: np.ndarray, records: int) -> np.ndarray:
    """Return each record's position in the epoch, int [records]; -1 if it is left out."""
    place = np.full(records, -1)
    place[order] = np.arange(len(order))
    return place


def epoch_orders(
    manifest: Manifest, bucket: int, batch_size: int, shuffle_records: int, epochs: int
) -> list[np.ndarray]:
    """Return the record numbers of each epoch, in training order."""
    from xtts_pipeline.data.cached import CachedSource

    config = Config(data=DataConfig(shuffle_records=shuffle_records), training=TrainingConfig(seed=0))
    source = CachedSource(Path(), manifest)
    order = source.order(config, bucket, batch_size)
    numbers = source.record_numbers(order).take(epochs * order.batches_per_epoch * batch_size)
    found = np.fromiter(numbers.as_numpy_iterator(), np.int64)
    return list(found.reshape(epochs, -1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--bucket", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--shuffle-records", type=int, nargs="+", default=[1, 256, 2_048, 8_192])
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    manifest = load_manifest(arguments.cache)
    sizes = [shard.records for shard in manifest.shards_of("train", arguments.bucket)]
    shard_of = np.repeat(np.arange(len(sizes)), sizes)
    print(f"{sum(sizes)} training records in {len(sizes)} shards, batches of {arguments.batch_size}\n")
    print("| data.shuffle_records | spread | shards | repeats |\n|---|---|---|---|")
    with NativeLog():
        for shuffle_records in arguments.shuffle_records:
            orders = epoch_orders(manifest, arguments.bucket, arguments.batch_size, shuffle_records, arguments.epochs)
            spread = np.mean([shard_spread(order, shard_of) for order in orders])
            shards = np.mean([shards_in_batch(order, shard_of, arguments.batch_size) for order in orders])
            pairs = [repeats(first, second, len(shard_of)) for first, second in pairwise(orders)]
            print(f"| {shuffle_records} | {spread:.2f} | {shards:.2f} | {np.mean(pairs):.2f} |", flush=True)


if __name__ == "__main__":
    main()

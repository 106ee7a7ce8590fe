"""Read one bucket of a cache as training and validation do."""

from pathlib import Path

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.schedule import StreamPosition


def training_dataset(
    folder: Path,
    manifest: Manifest,
    *,
    batch_size: int,
    seed: int,
    data: DataConfig,
    bucket: int = 0,
    start_epoch: int = 0,
    skip_batches: int = 0,
    epochs: int | None = None,
    rows: range | None = None,
) -> tf.data.Dataset:
    config = Config(training=TrainingConfig(seed=seed), data=data)
    position = StreamPosition(start_epoch, skip_batches)
    source = CachedSource(folder, manifest)
    return source.training_dataset(source.order(config, bucket, batch_size, position, rows, epochs))


def validation_dataset(
    folder: Path, manifest: Manifest, split: str, batch_size: int, bucket: int = 0
) -> tf.data.Dataset:
    return CachedSource(folder, manifest).validation_dataset(bucket, batch_size, split)

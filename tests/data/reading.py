"""Read one bucket of a cache as training and validation do."""

from pathlib import Path

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.order import TrainingOrder
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.data.source import Source

DATA = DataConfig()


def training_dataset(
    folder: Path,
    manifest: Manifest,
    *,
    batch_size: int,
    seed: int = 0,
    data: DataConfig = DATA,
    bucket: int = 0,
    start_epoch: int = 0,
    skip_batches: int = 0,
    epochs: int | None = None,
    rows: range | None = None,
) -> tf.data.Dataset:
    config = Config(training=TrainingConfig(seed=seed), data=data)
    position = StreamPosition(start_epoch, skip_batches)
    source = CachedSource(folder, manifest)
    return whole_epochs(source, source.order(config, bucket, batch_size, position, rows), epochs)


def whole_epochs(source: Source, order: TrainingOrder, epochs: int | None) -> tf.data.Dataset:
    """Return the batches of `order` to the end of an epoch; without `epochs` they do not end."""
    dataset = source.training_dataset(order)
    return dataset if epochs is None else dataset.take(epochs * order.batches_per_epoch - order.position.batch)


def validation_dataset(
    folder: Path, manifest: Manifest, split: str, batch_size: int, bucket: int = 0
) -> tf.data.Dataset:
    return CachedSource(folder, manifest).validation_dataset(bucket, batch_size, split)


def operations(dataset: tf.data.Dataset) -> set[str]:
    """Return the types of all operations of the dataset's graph, with those of its functions."""
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return {node.op for node in nodes}

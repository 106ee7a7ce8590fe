"""The schedule of an epoch: the batch size of each bucket, the order of the buckets, and a run's position in it.

No TensorFlow: `xtts train` checks batch sizes before it imports TensorFlow, and a checkpoint's state holds a position.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.strict_json import STRICT

# The number of a batch in the whole stream must fit into an int64.
_Count = Annotated[int, Field(ge=0, lt=1 << 31)]


@dataclass(frozen=True, config=STRICT)
class StreamPosition:
    """The next batch of a stream of training batches; epoch and batch count from 0."""

    epoch: _Count = 0
    batch: _Count = 0

    def moved(self, batches: int, batches_per_epoch: int) -> "StreamPosition":
        """Return the position so many batches later, or earlier if negative, but none before the first."""
        place = self.epoch * batches_per_epoch + self.batch + batches
        return StreamPosition(*divmod(max(0, place), batches_per_epoch))


START = StreamPosition()


def batch_parts(settings: TrainingConfig, devices: int) -> int:
    """Return the number of equal parts of a batch, one for each accumulation step of each device.

    Raises ConfigError if the batch cannot be shared so.
    """
    parts = settings.accumulation_steps * devices
    if settings.clips_per_batch % parts:
        by = f"{devices} devices in {settings.accumulation_steps} parts each (training.accumulation_steps)"
        raise ConfigError(
            f"training.batch_size={settings.batch_size} cannot be shared by {by}, expected a multiple of {parts}; "
            "set another size"
        )
    return parts


def batch_sizes(specs: Sequence[RecordSpec], batch_size: int, parts: int) -> list[int]:
    """Return the batch size of each bucket, the largest bucket last, so that all batches cost about the same.

    The largest bucket has `batch_size` rows; a smaller one fills the same number of padded frames. Each size is a
    multiple of `parts`, the number of accumulation steps times devices.
    """
    frames = batch_size * specs[-1].max_mel_frames
    return [frames // spec.max_mel_frames // parts * parts for spec in specs]


def mean_batch_size(manifest: Manifest, sizes: Sequence[int]) -> float:
    """Return the mean clips of a training batch over an epoch, whose buckets have batches of these sizes."""
    clips = [manifest.split_records("train", bucket) for bucket in range(len(sizes))]
    return sum(clips) / sum(found / rows for found, rows in zip(clips, sizes, strict=True))


def unfilled_buckets(manifest: Manifest, batch_size: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """Yield (bucket, training clips, batch size) of each bucket that has training clips, but fewer than one batch."""
    for bucket, rows in enumerate(batch_sizes(bucket_specs(manifest), batch_size, parts)):
        found = manifest.split_records("train", bucket)
        if 0 < found < rows:
            yield bucket, found, rows


def is_filled(manifest: Manifest, batch_size: int, parts: int) -> bool:
    """Return whether each bucket with training clips fills a batch."""
    return not any(unfilled_buckets(manifest, batch_size, parts))


def bucket_order(batches: Sequence[int], seed: int, epoch: int) -> np.ndarray:
    """Return the shuffled bucket of each batch of an epoch, int [sum(batches)], from the arguments alone."""
    labels = np.repeat(np.arange(len(batches)), batches)
    # NumPy guarantees these raw bits across versions, but not the result of Generator.permutation.
    return labels[np.argsort(np.random.PCG64([seed, epoch]).random_raw(len(labels)), kind="stable")]

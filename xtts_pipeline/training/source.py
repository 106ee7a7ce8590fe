"""What training reads: a cache that has been proved, as batches for the compiled step."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from xtts_pipeline.cache.dataset import training_dataset, validation_dataset
from xtts_pipeline.cache.manifest import Manifest, record_spec
from xtts_pipeline.config import Config
from xtts_pipeline.errors import CacheError
from xtts_pipeline.model.network import Batch
from xtts_pipeline.training.checkpoint import CacheIdentity
from xtts_pipeline.training.step import to_batch

_UNREADABLE = (tf.errors.DataLossError, tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)


@dataclass(frozen=True)
class Source:
    """A cache that training may read: its folder and its proved manifest."""

    folder: Path
    manifest: Manifest

    def identity(self) -> CacheIdentity:
        """Return what a checkpoint keeps of it."""
        manifest = self.manifest
        return CacheIdentity(manifest.fingerprint, record_spec(manifest), manifest.symbols, manifest.speakers, manifest.languages)

    @property
    def validation_clips(self) -> int:
        """How many clips the validation split has; 0 for none."""
        return self.manifest.split_records("val")

    def training_batches(self, config: Config, signature: Batch) -> Iterator[Batch]:
        """Yield shuffled batches without end. Raises CacheError if a shard is not what the manifest says."""
        settings = config.training
        dataset = training_dataset(self.folder, self.manifest, batch_size=settings.batch_size, seed=settings.seed, data=config.data)
        return self._read(dataset, signature)

    def validation_batches(self, batch_size: int, signature: Batch) -> Iterator[Batch]:
        """Yield the validation split once, always in the same order. Raises CacheError as `training_batches` does."""
        return self._read(validation_dataset(self.folder, self.manifest, "val", batch_size), signature)

    def _read(self, dataset: tf.data.Dataset, signature: Batch) -> Iterator[Batch]:
        try:
            for fields in dataset:
                yield to_batch(fields, signature)
        except _UNREADABLE as error:
            found = error.message.splitlines()[0]
            raise CacheError(f"{self.folder}: a record cannot be read ({found}); run xtts verify-cache --cache {self.folder}") from None

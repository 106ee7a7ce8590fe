"""The stream of batches that training reads: all buckets mixed, from a cache (cached.py) or a corpus (online.py)."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.identity import CacheIdentity, records_digest
from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, record_spec
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import to_batch
from xtts_pipeline.data.order import TrainingOrder
from xtts_pipeline.data.schedule import START, StreamPosition, bucket_order
from xtts_pipeline.errors import CheckpointError, XttsError
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.text.tokens import PAD_ID

Fields = dict[str, tf.Tensor]

_UNREADABLE = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnknownError,  # what a failing disk is to TensorFlow
    # Raised for an object store that is unreachable or refuses access.
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)


class Source(ABC):
    """A folder and its manifest, read as batches. Subclasses read single buckets; this class mixes the buckets."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    @abstractmethod
    def training_dataset(self, order: TrainingOrder) -> tf.data.Dataset:
        """Return shuffled, augmented batches of one bucket. Raises CacheError if it does not fill a batch."""

    @abstractmethod
    def validation_dataset(self, bucket: int, batch_size: int) -> tf.data.Dataset:
        """Return the validation records of a bucket once; rows of length 0 fill the last batch."""

    @abstractmethod
    def bucket_clips(self, order: TrainingOrder, batches: int) -> list[tuple[str, bool]]:
        """Return id and finiteness of each clip of the stream's next `batches` batches."""

    @abstractmethod
    def bucket_left_out(self, order: TrainingOrder) -> list[str]:
        """Return the ids of the clips that no batch of the position's epoch holds."""

    @property
    @abstractmethod
    def wait_advice(self) -> str:
        """The remedy if training waits for this source."""

    @abstractmethod
    def explain(self, error: tf.errors.OpError) -> XttsError:
        """Return the error for clips that TensorFlow could not read, after a look whether the folder is at fault."""

    def check_unchanged(self) -> None:  # noqa: B027 (a corpus has no digest: its clips are checked one by one)
        """Raise TrainingError if the folder is no longer what it was when the run started."""

    def identity(self) -> CacheIdentity:
        """Return what a checkpoint keeps of the cache."""
        manifest, spoken = self.manifest, tuple[str, ...]()
        if len(manifest.speakers) > 1 and len(manifest.languages) > 1:
            counts = {speaker: Counter[str]() for speaker in manifest.speakers}
            for speaker, language in self.clip_voices():
                counts[speaker][language] += 1
            first = manifest.languages[0]  # of a speaker without a kept clip
            spoken = tuple(max(sorted(each), key=each.__getitem__, default=first) for each in counts.values())
        names = manifest.symbols, manifest.speakers, manifest.languages
        return CacheIdentity(manifest.fingerprint, record_spec(manifest), *names, spoken)

    @abstractmethod
    def clip_voices(self) -> Iterable[tuple[str, str]]:
        """Return speaker and language of each clip."""

    @property
    def specs(self) -> tuple[RecordSpec, ...]:
        """The static shape of each bucket's records, the largest last; a cache without buckets has one."""
        return bucket_specs(self.manifest)

    @property
    def validation_clips(self) -> int:
        """The number of clips of the validation split."""
        return self.manifest.split_records("val")

    @property
    def filled_buckets(self) -> int:
        """The number of buckets with training records, which is the number of shapes in an epoch."""
        return sum(self.manifest.split_records("train", bucket) > 0 for bucket in range(len(self.specs)))

    def records_digest(self) -> str:
        """Return the digest of what this source reads."""
        return records_digest(self.manifest)

    def order(
        self,
        config: Config,
        bucket: int,
        batch_size: int,
        position: StreamPosition = START,
        rows: range | None = None,
    ) -> TrainingOrder:
        """Return the training stream of a bucket, see `TrainingOrder`."""
        return TrainingOrder(self.folder, self.manifest, config, bucket, batch_size, position, rows)

    def batches_per_epoch(self, signatures: Sequence[Any]) -> int:
        """Return the number of training batches in an epoch, of all buckets together."""
        return sum(self._bucket_batches(signatures))

    def training_batches(
        self,
        config: Config,
        signatures: Sequence[Any],
        position: StreamPosition = START,
        rows: Sequence[range] | None = None,
    ) -> Iterator[Any]:
        """Yield shuffled batches without end from `position` on, each of one bucket and its signature.

        In an epoch each bucket has as many batches as its records fill, in the order of `bucket_order`. `rows` are the
        rows of each bucket's batches that this process trains on; None for all. Raises CacheError if a bucket has
        records, but fewer than one batch, or if a shard does not match the manifest, and CheckpointError if the epoch
        has no batch at the position.
        """
        batches, seed, epoch = self._bucket_batches(signatures), config.training.seed, position.epoch
        self.check_position(position, sum(batches))
        records = [self.manifest.split_records("train", bucket) for bucket in range(len(signatures))]
        skipped = np.bincount(bucket_order(batches, seed, epoch)[: position.batch], minlength=len(batches)).tolist()

        def stream(bucket: int) -> Iterator[Batch]:
            batch_size, own_rows = signatures[bucket].tokens.shape[0], None if rows is None else rows[bucket]
            begin = StreamPosition(epoch, skipped[bucket])
            dataset = self.training_dataset(self.order(config, bucket, batch_size, begin, own_rows))
            return self._read(iter(dataset.with_options(_read_ahead())), signatures[bucket])

        # A bucket without records has no stream; without any record the first stream raises the error.
        streams = [stream(bucket) if found or not any(records) else iter(()) for bucket, found in enumerate(records)]
        order = chain.from_iterable(self._epoch_order(batches, seed, later) for later in count(epoch))
        return (next(streams[bucket]) for bucket in islice(order, position.batch, None))

    def check_position(self, position: StreamPosition, epoch_batches: int) -> None:
        """Raise CheckpointError if an epoch of so many batches has none at the position."""
        if position.batch >= max(epoch_batches, 1):
            found = f"an epoch has {epoch_batches} batches, but the checkpoint goes on with batch {position.batch}"
            raise CheckpointError(f"{self.folder}: {found}; use an earlier step")

    def batch_clips(
        self, config: Config, signatures: Sequence[Any], positions: Sequence[StreamPosition]
    ) -> list[list[tuple[str, bool]]]:
        """Return, for each training batch asked for, the id of each clip and whether its mel is finite.

        Reads the records again, each bucket of an epoch once, from the first to the last batch asked for.
        """
        batches, seed = self._bucket_batches(signatures), config.training.seed
        asked: list[tuple[int, int, int]] = []
        for position in positions:
            order = bucket_order(batches, seed, position.epoch)
            bucket = int(order[position.batch])
            asked.append((position.epoch, bucket, int((order[: position.batch] == bucket).sum())))
        found: dict[tuple[int, int, int], list[tuple[str, bool]]] = {}
        for epoch, bucket in {place[:2] for place in asked}:
            numbers = [number for *where, number in asked if where == [epoch, bucket]]
            first, rows = min(numbers), signatures[bucket].tokens.shape[0]
            stream = self.order(config, bucket, rows, StreamPosition(epoch, first))
            with self._explaining():
                clips = self.bucket_clips(stream, max(numbers) + 1 - first)
            for number in numbers:
                found[epoch, bucket, number] = clips[rows * (number - first) : rows * (number - first + 1)]
        return [found[place] for place in asked]

    def left_out(self, config: Config, signatures: Sequence[Any], epoch: int) -> list[str]:
        """Return the ids of the clips of all buckets that no training batch of an epoch holds."""
        with self._explaining():
            return [
                name
                for bucket, signature in enumerate(signatures)
                if self.manifest.split_records("train", bucket)
                for name in self.bucket_left_out(
                    self.order(config, bucket, signature.tokens.shape[0], StreamPosition(epoch))
                )
            ]

    def validation_batches(self, signatures: Sequence[Any]) -> Iterator[Batch]:
        """Yield the validation split once, bucket after bucket, in a fixed order; raise as `training_batches` does."""
        for bucket in self._validation_buckets():
            rows = signatures[bucket].tokens.shape[0]
            yield from self._read(self.validation_dataset(bucket, rows), signatures[bucket])

    def validation_sentences(self, signature: Batch) -> Batch:
        """Return clips of the validation split in one batch of this signature, which has the largest bucket's shape.

        They are taken from each bucket in turn, the smallest first, so that short and long clips are among them.
        """
        rows, spec = signature.tokens.shape[0], self.specs[-1]
        firsts = [
            list(islice(self._read(self.validation_dataset(bucket, 1), signature), rows))
            for bucket in self._validation_buckets()
        ]
        clips = [_pad_batch(clip, spec) for turn in zip_longest(*firsts) for clip in turn if clip is not None]
        return Batch(
            *(None if parts[0] is None else tf.concat(parts[:rows], axis=0) for parts in zip(*clips, strict=True))
        )

    def _epoch_order(self, batches: Sequence[int], seed: int, epoch: int) -> np.ndarray:
        """Return the bucket of each batch of an epoch that begins."""
        self.check_unchanged()
        return bucket_order(batches, seed, epoch)

    def _bucket_batches(self, signatures: Sequence[Any]) -> list[int]:
        """Return the number of training batches of each bucket in an epoch."""
        return [
            self.manifest.split_records("train", bucket) // signature.tokens.shape[0]
            for bucket, signature in enumerate(signatures)
        ]

    def _validation_buckets(self) -> list[int]:
        return [bucket for bucket in range(self.manifest.bucket_count) if self.manifest.split_records("val", bucket)]

    def _read(self, dataset: Iterable[Mapping[str, tf.Tensor]], signature: Batch) -> Iterator[Batch]:
        with self._explaining():
            for fields in dataset:
                yield to_batch(fields, signature)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            raise self.explain(error) from None
        except tf.errors.ResourceExhaustedError as error:
            if "open files" not in error.message:
                raise
            raise self.explain(error) from None


def _pad_batch(batch: Batch, spec: RecordSpec) -> Batch:
    """Return the batch padded to the spec's shape, as its records are."""
    symbols, frames = spec.max_text_length - batch.tokens.shape[1], spec.max_mel_frames - batch.mel.shape[1]
    return batch._replace(
        tokens=tf.pad(batch.tokens, [[0, 0], [0, symbols]], constant_values=PAD_ID),
        mel=tf.pad(batch.mel, [[0, 0], [0, frames], [0, 0]], constant_values=spec.pad_value),
    )


def _read_ahead() -> tf.data.Options:
    """Return the option to read as soon as an iterator exists, so that each bucket's first batch is ready in time."""
    options = tf.data.Options()
    options.experimental_warm_start = True
    return options

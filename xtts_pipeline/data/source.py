"""What training reads: a cache that has been proved, as batches for the compiled step."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, zip_longest
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.manifest import CacheIdentity, Manifest, bucket_specs, manifest_bytes, record_spec
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import to_batch
from xtts_pipeline.data.buckets import bucket_order
from xtts_pipeline.data.cached import (
    EpochPlace,
    cached_left_out,
    looked_up_records,
    training_dataset,
    validation_dataset,
)
from xtts_pipeline.data.online import augmented_batches
from xtts_pipeline.data.position import START, StreamPosition
from xtts_pipeline.errors import CacheError, XttsError
from xtts_pipeline.model.network import Batch
from xtts_pipeline.text.special_ids import PAD_ID

_UNREADABLE = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    # What a store says when it is not reached, or not allowed to be.
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)


@dataclass(frozen=True)
class Source:
    """A cache that training may read: its folder and its proved manifest."""

    folder: Path
    manifest: Manifest

    def identity(self) -> CacheIdentity:
        """Return what a checkpoint keeps of it."""
        manifest = self.manifest
        return CacheIdentity(
            manifest.fingerprint, record_spec(manifest), manifest.symbols, manifest.speakers, manifest.languages
        )

    @property
    def specs(self) -> tuple[RecordSpec, ...]:
        """The static shape of each bucket's records, the largest last; a cache without buckets has one."""
        return bucket_specs(self.manifest)

    @property
    def validation_clips(self) -> int:
        """How many clips the validation split has; 0 for none."""
        return self.manifest.split_records("val")

    @property
    def filled_buckets(self) -> int:
        """How many buckets have training records: so many shapes come in an epoch."""
        return sum(self.manifest.split_records("train", bucket) > 0 for bucket in range(len(self.specs)))

    def records_digest(self) -> str:
        """Return a digest of which records there are and in which files: two caches with the same one are read alike."""
        return hashlib.sha256(manifest_bytes(self.manifest)).hexdigest()

    def batches_per_epoch(self, signatures: Sequence[Batch]) -> int:
        """Return how many training batches an epoch has, of all buckets together."""
        return sum(self._bucket_batches(signatures))

    def training_batches(
        self,
        config: Config,
        signatures: Sequence[Batch],
        position: StreamPosition = START,
        rows: Sequence[range] | None = None,
    ) -> Iterator[Batch]:
        """Yield shuffled batches without end, each of one bucket and its signature, from a position on.

        `rows` are the rows of each bucket's batches that this process trains on; None for all.


        In an epoch each bucket has as many batches as its records fill, in the order of `bucket_order`; a bucket without records has none.
        Raises CacheError if a bucket has records, but fewer than one batch, or if a shard is not what the manifest says.
        """
        seed = config.training.seed
        sizes = [signature.tokens.shape[0] for signature in signatures]
        records = [self.manifest.split_records("train", bucket) for bucket in range(len(sizes))]
        batches = self._bucket_batches(signatures)
        epoch, skipped = position.epoch, position.batch
        skipped_of = np.bincount(bucket_order(batches, seed, epoch)[:skipped], minlength=len(batches)).tolist()

        def stream(bucket: int) -> Iterator[Batch]:
            dataset = self.training_dataset(
                config,
                bucket,
                EpochPlace(seed, sizes[bucket], epoch, skipped_of[bucket], rows=None if rows is None else rows[bucket]),
            )
            return self._read(iter(dataset.with_options(_read_ahead())), signatures[bucket])

        streams = [stream(bucket) if found or not any(records) else iter(()) for bucket, found in enumerate(records)]
        order = chain.from_iterable(bucket_order(batches, seed, later) for later in count(epoch))
        return (next(streams[bucket]) for bucket in islice(order, skipped, None))

    def batch_clips(
        self, config: Config, signatures: Sequence[Batch], positions: Sequence[StreamPosition]
    ) -> list[list[tuple[str, bool]]]:
        """Return for each training batch the ids of its clips, each with whether its mel is finite: read again, for the rare ones that ask.

        An epoch is walked through once, however many of its batches are asked for.
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
            clips = self.bucket_clips(config, bucket, EpochPlace(seed, rows, epoch, first), max(numbers) + 1 - first)
            found |= {
                (epoch, bucket, number): clips[rows * (number - first) : rows * (number - first + 1)]
                for number in numbers
            }
        return [found[place] for place in asked]

    def bucket_clips(self, config: Config, bucket: int, place: EpochPlace, batches: int) -> list[tuple[str, bool]]:
        """Return what `batch_clips` does of so many batches of one bucket from a place on, clip after clip."""
        records = looked_up_records(self.folder, self.manifest, bucket, place, config.data, batches)
        clips = (decode_example(record.numpy(), self.specs[bucket]) for record in records)
        return [(str(clip["id"]), bool(np.isfinite(clip["mel"]).all())) for clip in clips]

    def left_out(self, config: Config, signatures: Sequence[Batch], epoch: int) -> list[str]:
        """Return the ids of the clips that no training batch of an epoch holds, of all buckets."""
        ids: list[str] = []
        for bucket, signature in enumerate(signatures):
            place = EpochPlace(config.training.seed, signature.tokens.shape[0], epoch)
            if self.manifest.split_records("train", bucket):
                ids += self.bucket_left_out(config, bucket, place)
        return ids

    def bucket_left_out(self, config: Config, bucket: int, place: EpochPlace) -> list[str]:
        """Return what `left_out` does of one bucket."""
        records = cached_left_out(self.folder, self.manifest, bucket, place, config.data)
        return [str(decode_example(record.numpy(), self.specs[bucket])["id"]) for record in records]

    def validation_batches(self, signatures: Sequence[Batch]) -> Iterator[Batch]:
        """Yield the validation split once, bucket after bucket, always in the same order. Raises CacheError as `training_batches` does."""
        for bucket in self._validation_buckets():
            rows = signatures[bucket].tokens.shape[0]
            yield from self._read(self.validation_dataset(bucket, rows), signatures[bucket])

    def validation_sentences(self, signature: Batch) -> Batch:
        """Return clips of the validation split in one batch of this signature, whose shape is the largest bucket's.

        They are the first of each bucket in turn, the smallest bucket first, so that both short and long ones are among them.
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

    def _bucket_batches(self, signatures: Sequence[Batch]) -> list[int]:
        """Return how many training batches an epoch has of each bucket."""
        return [
            self.manifest.split_records("train", bucket) // spec.tokens.shape[0]
            for bucket, spec in enumerate(signatures)
        ]

    def training_dataset(self, config: Config, bucket: int, place: EpochPlace) -> tf.data.Dataset:
        """Return the endless training batches of a bucket from a place on, changed by `config.augmentation`."""
        dataset = training_dataset(
            self.folder,
            self.manifest,
            batch_size=place.batch_size,
            seed=place.seed,
            data=config.data,
            bucket=bucket,
            start_epoch=place.start_epoch,
            skip_batches=place.skip_batches,
            rows=place.rows,
        )
        first = (
            place.start_epoch * (self.manifest.split_records("train", bucket) // place.batch_size) + place.skip_batches
        )
        return augmented_batches(dataset, config, self.specs[bucket], bucket, first, place.rows)

    def validation_dataset(self, bucket: int, batch_size: int) -> tf.data.Dataset:
        """Return the validation records of a bucket once."""
        return validation_dataset(self.folder, self.manifest, "val", batch_size, bucket)

    @property
    def wait_advice(self) -> str:
        """What to do where training waits for this source."""
        return f"xtts diagnose input --cache {self.folder} says why"

    def unreadable(self, found: str) -> XttsError:
        """Return the error for a record that TensorFlow could not read."""
        return CacheError(
            f"{self.folder}: a record cannot be read ({found}); run xtts verify-cache --cache {self.folder}"
        )

    def _validation_buckets(self) -> list[int]:
        """Return the buckets that have validation clips."""
        return [bucket for bucket in range(self.manifest.bucket_count) if self.manifest.split_records("val", bucket)]

    def _read(self, dataset: Iterable[Mapping[str, tf.Tensor]], signature: Batch) -> Iterator[Batch]:
        try:
            for fields in dataset:
                yield to_batch(fields, signature)
        except _UNREADABLE as error:
            raise self.unreadable(error.message.splitlines()[0]) from None


def _pad_batch(batch: Batch, spec: RecordSpec) -> Batch:
    """Return the batch in the spec's shape, which is at least as large, padded as its records are."""
    symbols, frames = spec.max_text_length - batch.tokens.shape[1], spec.max_mel_frames - batch.mel.shape[1]
    return batch._replace(
        tokens=tf.pad(batch.tokens, [[0, 0], [0, symbols]], constant_values=PAD_ID),
        mel=tf.pad(batch.mel, [[0, 0], [0, frames], [0, 0]], constant_values=spec.pad_value),
    )


def _read_ahead() -> tf.data.Options:
    """Return the option to read from the moment an iterator is made, so that a bucket's first batch is ready when its turn comes."""
    options = tf.data.Options()
    options.experimental_warm_start = True
    return options

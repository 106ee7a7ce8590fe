"""Crops of clips for the training of a vocoder: mel frames and the sound under them, by TensorFlow operations alone.

The clips of all buckets are one stream, in an order that depends on seed and epoch alone. Every crop has the same
shape, so a cache with buckets needs one signature.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.mel import PCM_SCALE
from xtts_pipeline.cache.format.identity import records_digest
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.schema import RecordField, wave_fields
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.data.cached import CachedSource, RecordReader, array_of, feature_of
from xtts_pipeline.data.order import hash_of, parallel_calls, prefetched, rows_of_batches
from xtts_pipeline.data.schedule import START, StreamPosition
from xtts_pipeline.errors import ConfigError


class WaveBatch(NamedTuple):
    """Crops of clips.

    mel: float16 [B, frames, mel_bins], natural log. wave: int16 [B, (frames - 1) * hop_samples]; it begins at the
    centre of the first frame and ends at that of the last.
    """

    mel: Any
    wave: Any

    @property
    def sound(self) -> tf.Tensor:
        """The wave as float32, from -1 to 1."""
        return tf.cast(self.wave, tf.float32) / PCM_SCALE


@dataclass(frozen=True)
class _Split:
    """The clips of a split that are as long as a crop: their record numbers, lengths and entries.

    A record's number counts through the files of the split's mel shards in order.
    """

    paths: tuple[Path, ...]
    numbers: np.ndarray
    frames: np.ndarray
    entries: tuple[UtteranceEntry, ...]

    @cached_property
    def mels(self) -> RecordReader:
        """Reads mel records. Making a reader goes through all of its files, so a split has one."""
        return RecordReader(self.paths)

    @cached_property
    def waves(self) -> RecordReader:
        """Reads the wave records beside them."""
        return RecordReader([path.with_name(f"{WAVE_PREFIX}{path.name}") for path in self.paths])


class WaveSource(CachedSource):
    """A cache with stored waves as batches of crops, `vocoder.crops_per_clip` of each clip that is read."""

    def __init__(self, folder: Path, manifest: Manifest, config: Config) -> None:
        super().__init__(folder, manifest)
        self._hop = manifest.audio.hop_samples
        self._crop_frames, self._crops = config.vocoder.crop_frames, config.vocoder.crops_per_clip
        entries = list(read_utterances(folder))
        self._splits = {split: self._long_enough(split, entries) for split in ("train", "val")}

    def signature(self, rows: int) -> WaveBatch:
        """Return the signature of a batch of `rows` crops."""
        frames, bins = self._crop_frames, self.manifest.audio.mel_bins
        return WaveBatch(
            tf.TensorSpec([rows, frames, bins], tf.float16, "mel"),
            tf.TensorSpec([rows, (frames - 1) * self._hop], tf.int16, "wave"),
        )

    def records_digest(self) -> str:
        """Return the digest of what this source reads."""
        return records_digest(self.manifest, with_waves=True)

    @property
    def filled_buckets(self) -> int:
        """One: crops have one shape."""
        return 1

    @property
    def validation_clips(self) -> int:
        """The number of validation clips that are as long as a crop."""
        return len(self._splits["val"].numbers)

    @property
    def wait_advice(self) -> str:
        """The remedy if training waits for this source."""
        return "raise vocoder.crops_per_clip, or keep the cache on a faster disk"

    def batches_per_epoch(self, signatures: Sequence[WaveBatch]) -> int:
        """Return the number of training batches in an epoch."""
        return len(self._splits["train"].numbers) // self._clips(signatures)

    def training_batches(
        self,
        config: Config,
        signatures: Sequence[WaveBatch],
        position: StreamPosition = START,
        rows: Sequence[range] | None = None,
    ) -> Iterator[WaveBatch]:
        """Yield batches of random crops without end from `position` on, as `Source.training_batches` documents.

        Each epoch has every clip at most once. Where a crop begins depends on seed and place in the stream alone.
        Raises ConfigError unless every process trains on whole clips, TrainingError if the cache has changed.
        """
        seed, clips, epoch_batches = config.training.seed, self._clips(signatures), self.batches_per_epoch(signatures)
        self.check_position(position, epoch_batches)
        split = self._splits["train"]
        whole = tf.constant(np.stack([split.numbers, split.frames], axis=1), tf.int64)

        def clips_of(epoch: tf.Tensor) -> tf.data.Dataset:
            order = tf.gather(whole, _epoch_order(len(split.numbers), seed, epoch))
            skipped = tf.where(epoch == position.epoch, tf.constant(position.batch * clips, tf.int64), 0)
            return tf.data.Dataset.from_tensor_slices(order[: epoch_batches * clips]).skip(skipped)

        first = (position.epoch * epoch_batches + position.batch) * clips
        stream = tf.data.Dataset.range(position.epoch, tf.int64.max).flat_map(clips_of).enumerate(first)
        crops = self._crops
        if rows is not None:
            own = rows[0]
            if own.start % crops or own.stop % crops:
                raise ConfigError(
                    f"vocoder.crops_per_clip={crops}: a worker trains on {len(own)} crops, "
                    f"expected a multiple of {crops}; change training.batch_size"
                )
            clips = len(own) // crops
            stream = rows_of_batches(stream, self._clips(signatures), range(own.start // crops, own.stop // crops))

        def starts(place: tf.Tensor, frames: tf.Tensor) -> tf.Tensor:
            last = tf.cast(frames, tf.int32) - self._crop_frames + 1
            return tf.random.stateless_uniform([crops], [hash_of(seed, "crops", place), 0], 0, last, tf.int32)

        read = self._reader(split)
        cut = stream.map(
            lambda place, clip: read(clip[0], starts(place, clip[1])),
            num_parallel_calls=parallel_calls(config.data),
            deterministic=True,
        )
        batches = prefetched(cut.batch(clips, drop_remainder=True).map(_merge_crops), config.data)
        with self._explaining():
            for number, (mel, wave) in enumerate(batches, position.batch):
                if number % epoch_batches == 0:
                    self.check_unchanged()
                yield WaveBatch(mel, wave)

    def batch_clips(
        self, config: Config, signatures: Sequence[WaveBatch], positions: Sequence[StreamPosition]
    ) -> list[list[tuple[str, bool]]]:
        """Return, for each training batch asked for, the id of each clip and whether its mel is finite."""
        clips, split = self._clips(signatures), self._splits["train"]
        found = []
        with self._explaining():
            for position in positions:
                first = position.batch * clips
                chosen = self._epoch_clips(config, position.epoch)[first : first + clips]
                mels = ((split.entries[number].id, self._whole_clip(split, number)[0]) for number in chosen)
                found.append([(name, bool(np.isfinite(mel).all())) for name, mel in mels])
        return found

    def left_out(self, config: Config, signatures: Sequence[WaveBatch], epoch: int) -> list[str]:
        """Return the ids of the clips that no training batch of an epoch holds."""
        used = self.batches_per_epoch(signatures) * self._clips(signatures)
        return [self._splits["train"].entries[number].id for number in self._epoch_clips(config, epoch)[used:]]

    def validation_crops(self, rows: int) -> Iterator[tuple[WaveBatch, int]]:
        """Yield one crop of each validation clip, its middle, in batches of `rows`, and how many rows count.

        Copies of the last crop fill the last batch.
        """
        split = self._splits["val"]
        clips = np.stack([split.numbers, (split.frames - self._crop_frames) // 2], axis=1)
        padded = np.concatenate([clips, np.repeat(clips[-1:], -len(clips) % rows, axis=0)])
        read = self._reader(split)
        crops = tf.data.Dataset.from_tensor_slices(padded).map(lambda clip: read(clip[0], tf.cast(clip[1:], tf.int32)))
        with self._explaining():
            batches = prefetched(crops.batch(rows, drop_remainder=True).map(_merge_crops), DataConfig())
            for number, (mel, wave) in enumerate(batches):
                yield WaveBatch(mel, wave), min(rows, len(clips) - number * rows)

    def validation_clip(self, number: int) -> tuple[str, np.ndarray, np.ndarray]:
        """Return id, mel [T, mel_bins] and wave [(T - 1) * hop_samples], float32, of a whole validation clip."""
        split = self._splits["val"]
        with self._explaining():
            mel, wave = self._whole_clip(split, number)
        return split.entries[number].id, mel, wave

    def _whole_clip(self, split: _Split, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mel [T, mel_bins] and wave [(T - 1) * hop_samples], float32, of a split's clip."""
        read = self._reader(split, int(split.frames[number]))
        with tf.device("CPU"):  # on a GPU, a gather gives zeros for frames that are missing
            clip = WaveBatch(*read(tf.constant(split.numbers[number]), tf.zeros([1], tf.int32)))
        return clip.mel[0].numpy().astype(np.float32), clip.sound[0].numpy()

    def _long_enough(self, name: str, entries: Sequence[UtteranceEntry]) -> _Split:
        shards = self.manifest.shards_of(name)
        first = dict(zip((s.name for s in shards), accumulate((s.records for s in shards), initial=0), strict=False))
        kept = [entry for entry in entries if entry.shard in first and entry.frames >= self._crop_frames]
        kept.sort(key=lambda entry: first[entry.shard] + entry.position)
        numbers = np.array([first[entry.shard] + entry.position for entry in kept], np.int64)
        frames = np.array([entry.frames for entry in kept], np.int64)
        return _Split(tuple(self.folder / shard for shard in first), numbers, frames, tuple(kept))

    def _clips(self, signatures: Sequence[WaveBatch]) -> int:
        return int(signatures[0].mel.shape[0]) // self._crops

    def _epoch_clips(self, config: Config, epoch: int) -> list[int]:
        """Return the numbers of the training split's clips in the order of an epoch."""
        clips = len(self._splits["train"].entries)
        order: list[int] = _epoch_order(clips, config.training.seed, tf.constant(epoch, tf.int64)).numpy().tolist()
        return order

    def _reader(self, split: _Split, frames: int | None = None) -> Any:
        """Return a function of a record's number and the first frames of crops: its mels and waves, one row a crop."""
        count, hop, bins = frames or self._crop_frames, self._hop, self.manifest.audio.mel_bins
        mels, waves, spec = split.mels, split.waves, self.specs[0]
        fields = {field.name: field for field in (*spec.fields, *wave_fields(spec, hop))}

        def read(number: tf.Tensor, starts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            mel = tf.reshape(_array(mels.read(number), fields["mel"]), [-1, bins])
            wave = tf.reshape(_array(waves.read(number), fields["wave"]), [-1, hop])
            frame = starts[:, None] + tf.range(count)
            rows = starts.shape[0]
            crops = tf.ensure_shape(tf.gather(mel, frame), [rows, count, bins])
            return crops, tf.reshape(tf.gather(wave, frame[:, :-1]), [rows, (count - 1) * hop])

        return read


def _epoch_order(clips: int, seed: int, epoch: tf.Tensor) -> tf.Tensor:
    """Return the shuffled indices of an epoch's clips, int64 [clips]."""
    indices = tf.range(tf.constant(clips, tf.int64))
    return tf.random.experimental.stateless_shuffle(indices, [hash_of(seed, "clips", epoch), 0])


def _array(record: tf.Tensor, field: RecordField) -> tf.Tensor:
    """Return an array of a record of any bucket, whose field in one bucket is given."""
    features = tf.io.parse_single_example(record, {field.name: feature_of(field, is_any_bucket=True)})
    return array_of(features[field.name], field)


def _merge_crops(mel: tf.Tensor, wave: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return [clips * crops, ...] of [clips, crops, ...]."""
    rows = mel.shape[0] * mel.shape[1]
    return tf.reshape(mel, [rows, *mel.shape[2:]]), tf.reshape(wave, [rows, *wave.shape[2:]])

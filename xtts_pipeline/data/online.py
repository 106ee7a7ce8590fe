"""A surveyed corpus as static-shape batches, in the order in which its cache would be read, with TensorFlow operations alone."""

from collections.abc import Callable, Mapping
from itertools import accumulate
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.lengths import max_samples_of
from xtts_pipeline.cache.format.manifest import bucket_specs
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.augment import MelAugmentation, change_wave, mask_mels, seed_of
from xtts_pipeline.data.cached import EpochPlace, auto_or, left_out, pipeline_options, training_records
from xtts_pipeline.data.features import check_headers, padded_mel, padded_tokens, read_wave, wave_to_mel
from xtts_pipeline.data.resample import Resampler
from xtts_pipeline.data.survey import Survey
from xtts_pipeline.errors import CacheError
from xtts_pipeline.text.special_ids import PAD_ID

Fields = dict[str, tf.Tensor]


class NativeDatasets:
    """The training and validation splits of a survey, each bucket apart, in the fields that a cache's records have.

    Making one raises CorpusError if TensorFlow cannot read a clip that the survey accepted.
    """

    def __init__(self, survey: Survey, config: Config, root: Path) -> None:
        """Take the settings of the run, whose audio, text and limits are those of the survey."""
        check_headers(survey.clips)
        self.manifest, self._config, self._root = survey.manifest, config, root
        self._specs = bucket_specs(survey.manifest)
        clips, rows = survey.clips, [clip.row for clip in survey.clips]
        self._resampler = Resampler([clip.sample_rate for clip in clips], config.audio.sample_rate)
        self._paths = tf.constant([str(clip.path) for clip in clips], tf.string)
        self._samples = tf.constant([round(clip.seconds * config.audio.sample_rate) for clip in clips], tf.int32)
        self._tokens = tf.constant([clip.tokens.astype("<i4").tobytes() for clip in clips], tf.string)
        self._ids = tf.constant([row.id for row in rows], tf.string)
        self._speakers = tf.constant([row.speaker_id for row in rows], tf.int32)
        self._languages = tf.constant([row.language_id for row in rows], tf.int32)
        # Clips lie in the order of the manifest's shards, so each shard is a range of them.
        ends = list(accumulate(shard.records for shard in survey.manifest.shards))
        self._ranges = {
            shard.name: (end - shard.records, end) for shard, end in zip(survey.manifest.shards, ends, strict=True)
        }
        self._kept: dict[
            tuple[str, int], list[tf.data.Dataset]
        ] = {}  # what cache_features keeps, for as long as this lives

    def training(self, bucket: int, place: EpochPlace) -> tf.data.Dataset:
        """Return shuffled batches as `cache.dataset.training_dataset` does for the cache of this corpus, augmented if that is on.

        Raises CacheError if the bucket has fewer records than one batch.
        """
        config, spec = self._config, self._specs[bucket]
        if config.data.cache_features:
            shards = self._kept_shards("train", bucket)
            made = training_records(
                self._root, self.manifest, bucket, lambda shard, _: _choose(shards, shard, spec), place, config.data
            )
            return self._batches(made, place.rows_read)
        made = self._places(bucket, place).map(
            lambda epoch, clip: self._training_fields(clip, epoch, place.seed, spec),
            num_parallel_calls=auto_or(config.data.num_workers),
            deterministic=True,
        )
        return self._batches(made, place.rows_read)

    def training_ids(self, bucket: int, place: EpochPlace, batches: int) -> list[str]:
        """Return the ids of the clips in so many batches of `training` from a place on."""
        clips = self._places(bucket, place).take(batches * place.batch_size)
        return [self._ids[int(clip)].numpy().decode() for _, clip in clips]

    def validation(self, bucket: int, batch_size: int) -> tf.data.Dataset:
        """Return the validation records of a bucket once, the last batch filled, as `cache.dataset.validation_dataset` does.

        Raises CacheError if there is none.
        """
        records = self.manifest.split_records("val", bucket)
        if not records:
            raise CacheError(f"{self._root}: there are 0 clips in the val split; raise cache.validation_share")
        spec = self._specs[bucket]
        if self._config.data.cache_features:
            shards = self._kept_shards("val", bucket)
        else:
            shards = [self._made(name, spec) for name in self.manifest.shard_names("val", bucket)]
        made = shards[0]
        for shard in shards[1:]:
            made = made.concatenate(shard)
        return self._batches(made.concatenate(_filling(spec).repeat(-records % batch_size)), batch_size)

    def _places(self, bucket: int, place: EpochPlace) -> tf.data.Dataset:
        """Return the epoch and the number of each training clip, in the order of the epochs."""
        return training_records(self._root, self.manifest, bucket, self._shard_reader(bucket), place, self._config.data)

    def left_out_ids(self, bucket: int, place: EpochPlace) -> list[str]:
        """Return the ids of the clips that no batch of the epoch of a place holds."""
        clips = left_out(self.manifest, bucket, self._shard_reader(bucket), place, self._config.data)
        return [self._ids[int(clip)].numpy().decode() for _, clip in clips]

    def _shard_reader(self, bucket: int) -> Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]:
        """Return a function that has the epoch and the number of each clip of a training shard."""
        ranges = tf.constant(
            [self._ranges[name] for name in self.manifest.shard_names("train", bucket)] or [(0, 0)], tf.int64
        )

        def read_shard(shard: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
            start, stop = tf.unstack(tf.gather(ranges, shard))
            return tf.data.Dataset.range(start, stop).map(lambda clip: (epoch, clip))

        return read_shard

    def _kept_shards(self, split: str, bucket: int) -> list[tf.data.Dataset]:
        """Return a dataset a shard, each of which computes its clips in the first epoch and has them from then on."""
        key = (split, bucket)
        if key not in self._kept:
            self._kept[key] = [
                self._made(name, self._specs[bucket]).cache() for name in self.manifest.shard_names(split, bucket)
            ]
        return self._kept[key]

    def _made(self, shard: str, spec: RecordSpec) -> tf.data.Dataset:
        """Return the fields of a shard's clips, as they are, in its order."""
        workers = auto_or(self._config.data.num_workers)
        clips = tf.data.Dataset.range(*self._ranges[shard])
        return clips.map(
            lambda clip: self._fields(clip, self._mel(clip), spec), num_parallel_calls=workers, deterministic=True
        )

    def _training_fields(self, clip: tf.Tensor, epoch: tf.Tensor, seed: int, spec: RecordSpec) -> Fields:
        settings = self._config.augmentation
        if not settings.is_on:
            return self._fields(clip, self._mel(clip), spec)
        number = seed_of([tf.gather(self._ids, clip), epoch], seed)
        max_samples = max_samples_of(spec.max_mel_frames, self._config.audio)
        wave = change_wave(self._wave(clip), settings, number, max_samples)
        mel = wave_to_mel(wave, self._config.audio)
        return self._fields(clip, mask_mels(mel[None], tf.shape(mel)[:1], settings, number)[0], spec)

    def _wave(self, clip: tf.Tensor) -> tf.Tensor:
        wave = read_wave(tf.gather(self._paths, clip), self._config.audio, self._resampler)
        judged = tf.gather(self._samples, clip)
        is_same = tf.debugging.assert_equal(
            tf.size(wave), judged, "the clip has another length than when it was judged"
        )
        with tf.control_dependencies([is_same]):
            return tf.identity(wave)

    def _mel(self, clip: tf.Tensor) -> tf.Tensor:
        return wave_to_mel(self._wave(clip), self._config.audio)

    def _fields(self, clip: tf.Tensor, mel: tf.Tensor, spec: RecordSpec) -> Fields:
        ids = {"speaker": tf.gather(self._speakers, clip), "language": tf.gather(self._languages, clip)}
        return {**padded_tokens(tf.gather(self._tokens, clip), spec), **padded_mel(mel, spec), **ids}

    def _batches(self, made: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
        batches = made.batch(batch_size, drop_remainder=True)
        return batches.prefetch(auto_or(self._config.data.prefetch_buffer_size)).with_options(pipeline_options())


def augmented_batches(
    batches: tf.data.Dataset, config: Config, spec: RecordSpec, bucket: int, first: int, rows: range | None = None
) -> tf.data.Dataset:
    """Return a cache's training batches of a bucket, changed by `config.augmentation`; as they are where that is off.

    `first` is the first batch's place in the bucket's endless stream: what is drawn for a batch depends on the seed and its place alone,
    and on the first of its `rows` where these are not all.
    """
    if not config.augmentation.is_on:
        return batches
    augmentation, seed = MelAugmentation(config.augmentation, config.audio, spec), config.training.seed
    stream = f"bucket {bucket}" if rows is None else f"bucket {bucket} from row {rows.start}"

    def change(place: tf.Tensor, fields: Mapping[str, tf.Tensor]) -> Fields:
        return augmentation(dict(fields), seed_of([stream, place], seed))

    changed = batches.enumerate(first).map(
        change, num_parallel_calls=auto_or(config.data.num_workers), deterministic=True
    )
    return changed.prefetch(auto_or(config.data.prefetch_buffer_size))


def _choose(shards: list[tf.data.Dataset], number: tf.Tensor, spec: RecordSpec) -> tf.data.Dataset:
    """Return the shard at a place that is known only when it runs."""
    variants = tf.stack([tf.data.experimental.to_variant(shard) for shard in shards])
    return tf.data.experimental.from_variant(tf.gather(variants, number), _element_spec(spec))


def _element_spec(spec: RecordSpec) -> dict[str, tf.TensorSpec]:
    return {field.name: tf.TensorSpec(field.shape, field.dtype) for field in spec.batch_fields}


def _filling(spec: RecordSpec) -> tf.data.Dataset:
    """Return a row of length 0, which weighs nothing: pad tokens and silence."""
    values = {"tokens": PAD_ID, "mel": spec.pad_value}
    return tf.data.Dataset.from_tensors(
        {
            field.name: tf.constant(np.full(field.shape, values.get(field.name, 0), field.dtype))
            for field in spec.batch_fields
        }
    )

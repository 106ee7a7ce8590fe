"""The online path: a surveyed corpus as the batches of its cache, computed by TensorFlow operations alone."""

from collections.abc import Iterable
from functools import reduce
from itertools import accumulate
from pathlib import Path

import tensorflow as tf

from xtts_pipeline.cache.format.example import decode_example, empty_record
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.augment import change_wave, mask_mels
from xtts_pipeline.data.features import (
    check_headers,
    padded_mel,
    padded_tokens,
    read_wave,
    trimmed_wave,
    wave_to_mel,
)
from xtts_pipeline.data.order import ShardReader, TrainingOrder, hash_of, parallel_calls, prefetched
from xtts_pipeline.data.resample import Resampler
from xtts_pipeline.data.source import Fields, Source
from xtts_pipeline.data.survey import Survey
from xtts_pipeline.errors import CorpusError, XttsError, first_line_of
from xtts_pipeline.system.terminal import shell_word


class OnlineSource(Source):
    """A corpus in the place of its cache: `folder` is the corpus, `manifest` the survey's.

    The constructor raises CorpusError if TensorFlow cannot read the header of a surveyed clip.
    """

    def __init__(self, folder: Path, survey: Survey, config: Config) -> None:
        """Take the run's settings; their audio, text and limits must be the survey's."""
        super().__init__(folder, survey.manifest)
        check_headers(survey.clips)
        self._config, clips = config, survey.clips
        self._resampler = Resampler([clip.sample_rate for clip in clips], config.audio.sample_rate)
        self._paths = tf.constant([str(clip.path) for clip in clips], tf.string)
        self._ends = tf.constant([clip.end for clip in clips], tf.int64)
        self._samples = tf.constant([round(clip.seconds * config.audio.sample_rate) for clip in clips], tf.int32)
        self._tokens = tf.constant([clip.tokens.astype("<i4").tobytes() for clip in clips], tf.string)
        self._ids = tf.constant([clip.row.id for clip in clips], tf.string)
        self._speakers = tf.constant([clip.row.speaker_id for clip in clips], tf.int32)
        self._languages = tf.constant([clip.row.language_id for clip in clips], tf.int32)
        # Clips are in the order of the manifest's shards, so each shard is a range of them.
        shards = survey.manifest.shards
        ends = accumulate(shard.records for shard in shards)
        self._ranges = {shard.name: (end - shard.records, end) for shard, end in zip(shards, ends, strict=True)}
        # The computed features of `data.cache_features`, by split and bucket, kept as long as this source.
        self._features: dict[tuple[str, int], list[tf.data.Dataset]] = {}

    def clip_voices(self) -> Iterable[tuple[str, str]]:
        """Return speaker and language of each clip of the corpus."""
        speakers, languages = self.manifest.speakers, self.manifest.languages
        ids = zip(self._speakers.numpy(), self._languages.numpy(), strict=True)
        return ((speakers[speaker], languages[language]) for speaker, language in ids)

    def training_dataset(self, order: TrainingOrder) -> tf.data.Dataset:
        """Return the batches of `CachedSource.training_dataset`, computed from sound; waves are augmented, not mels."""
        config, spec = order.config, self.specs[order.bucket]

        def make(epoch: tf.Tensor, clip: tf.Tensor) -> Fields:
            settings, audio = config.augmentation, config.audio
            if not settings.is_on:
                return self._example(clip, spec)
            # The seed depends on clip and epoch alone, so a resumed run draws the same.
            seed = hash_of(config.training.seed, tf.gather(self._ids, clip), epoch)
            max_samples = spec.max_mel_frames * audio.hop_samples - 1
            # Noise would hide what is trimmed.
            wave = change_wave(trimmed_wave(self._wave(clip), audio), settings, seed, max_samples)
            mel = wave_to_mel(wave, audio.model_copy(update={"trim_db": None}))
            return self._fields(clip, mask_mels(mel[None], tf.shape(mel)[:1], settings, seed)[0], spec)

        if config.data.cache_features:
            shards = self._shard_features("train", order.bucket)
            examples = order.elements(lambda shard, _epoch: _choose(shards, shard, spec))
        else:
            examples = order.elements(self._clip_reader(order.bucket)).map(
                make, num_parallel_calls=parallel_calls(config.data), deterministic=True
            )
        return prefetched(examples.batch(order.rows_read, drop_remainder=True), config.data)

    def validation_dataset(self, bucket: int, batch_size: int) -> tf.data.Dataset:
        """Return the batches of `CachedSource.validation_dataset`, computed from sound."""
        records, spec = self.manifest.split_records("val", bucket), self.specs[bucket]
        parts = [*self._shard_features("val", bucket), _empty_row(spec).repeat(-records % batch_size)]
        filled = reduce(tf.data.Dataset.concatenate, parts)
        return prefetched(filled.batch(batch_size, drop_remainder=True), self._config.data)

    def bucket_clips(self, order: TrainingOrder, batches: int) -> list[tuple[str, bool]]:
        """Return id and finiteness of each clip of the next `batches` batches; a survey accepts finite sound only."""
        clips = order.elements(self._clip_reader(order.bucket))
        return [(self._id(clip), True) for _, clip in clips.take(batches * order.batch_size)]

    def bucket_left_out(self, order: TrainingOrder) -> list[str]:
        """Return the ids of the clips that no batch of the position's epoch holds."""
        return [self._id(clip) for _, clip in order.left_out(self._clip_reader(order.bucket))]

    @property
    def wait_advice(self) -> str:
        """The remedy if making clips takes longer than the step."""
        return f"a cache is made once and read many times as fast: xtts preprocess --data {shell_word(self.folder)}"

    def explain(self, error: tf.errors.OpError) -> XttsError:
        """Return the error for a clip that has changed since the survey."""
        found = f"a clip cannot be read any more ({first_line_of(error.message)})"
        return CorpusError(f"{self.folder}: {found}; has the corpus changed? run again")

    def _id(self, clip: tf.Tensor) -> str:
        return str(self._ids[int(clip)].numpy().decode())

    def _clip_reader(self, bucket: int) -> ShardReader:
        """Return a reader of the epoch and the number of each clip of a bucket's training shards."""
        names = self.manifest.shard_names("train", bucket)
        ranges = tf.constant([self._ranges[name] for name in names] or [(0, 0)], tf.int64)

        def read_shard(shard: tf.Tensor, epoch: tf.Tensor) -> tf.data.Dataset:
            start, stop = tf.unstack(tf.gather(ranges, shard))
            return tf.data.Dataset.range(start, stop).map(lambda clip: (epoch, clip))

        return read_shard

    def _shard_features(self, split: str, bucket: int) -> list[tf.data.Dataset]:
        """Return the fields of each shard's clips; `data.cache_features` keeps them after the first epoch."""
        if (split, bucket) in self._features:
            return self._features[split, bucket]
        data, spec = self._config.data, self.specs[bucket]
        shards = [
            tf.data.Dataset.range(*self._ranges[name]).map(
                lambda clip: self._example(clip, spec), num_parallel_calls=parallel_calls(data), deterministic=True
            )
            for name in self.manifest.shard_names(split, bucket)
        ]
        if data.cache_features:
            shards = self._features[split, bucket] = [shard.cache() for shard in shards]
        return shards

    def _example(self, clip: tf.Tensor, spec: RecordSpec) -> Fields:
        """Return a clip's fields without augmentation."""
        return self._fields(clip, wave_to_mel(self._wave(clip), self._config.audio), spec)

    def _wave(self, clip: tf.Tensor) -> tf.Tensor:
        path, end = tf.gather(self._paths, clip), tf.gather(self._ends, clip)
        wave = read_wave(path, end, self._config.audio, self._resampler)
        is_same = tf.debugging.assert_equal(
            tf.size(wave), tf.gather(self._samples, clip), "the clip has another length than when it was judged"
        )
        with tf.control_dependencies([is_same]):
            return tf.identity(wave)

    def _fields(self, clip: tf.Tensor, mel: tf.Tensor, spec: RecordSpec) -> Fields:
        ids = {"speaker": tf.gather(self._speakers, clip), "language": tf.gather(self._languages, clip)}
        return {**padded_tokens(tf.gather(self._tokens, clip), spec), **padded_mel(mel, spec), **ids}


def _choose(shards: list[tf.data.Dataset], number: tf.Tensor, spec: RecordSpec) -> tf.data.Dataset:
    """Return the shard with a number that is known at run time only."""
    variants = tf.stack([tf.data.experimental.to_variant(shard) for shard in shards])
    fields = {field.name: tf.TensorSpec(field.shape, field.dtype) for field in spec.batch_fields}
    return tf.data.experimental.from_variant(tf.gather(variants, number), fields)


def _empty_row(spec: RecordSpec) -> tf.data.Dataset:
    """Return one row of length 0: pad tokens and silence."""
    values = decode_example(empty_record(spec), spec)
    return tf.data.Dataset.from_tensors(
        {field.name: tf.constant(values[field.name], field.dtype) for field in spec.batch_fields}
    )

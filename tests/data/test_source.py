from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.cache.corpora import records_of
from tests.damage import flip_bit
from tests.data.reading import training_dataset, validation_dataset
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.data import cached as cached_module
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.schedule import StreamPosition, batch_sizes, bucket_order
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import CacheError, CheckpointError, TrainingError
from xtts_pipeline.model.batch import Batch

BUCKETS = ((9, 12), (12, 20), (16, 24))
# Training clips, batch size and whole batches of each bucket; every bucket leaves a remainder.
TRAIN_RECORDS, ROWS, BATCHES = [12, 22, 26], [8, 4, 4], [1, 5, 6]
CONFIG = Config(training=TrainingConfig(seed=5, batch_size=4))
WriteCache = Callable[..., Manifest]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, write_cache: WriteCache) -> Source:
    folder = tmp_path_factory.mktemp("buckets")
    source = CachedSource(folder, write_cache(folder, train=60, val=9, buckets=BUCKETS))
    assert [source.manifest.split_records("train", bucket) for bucket in range(3)] == TRAIN_RECORDS
    assert [signature.tokens.shape[0] for signature in signatures_of(source)] == ROWS
    return source


def signatures_of(source: Source) -> list[Batch]:
    sizes = batch_sizes(source.specs, CONFIG.training.batch_size, parts=1)
    return [batch_signature(spec, rows, with_speaker=True) for spec, rows in zip(source.specs, sizes, strict=True)]


def training_batches(source: Source, steps_done: int = 0, config: Config = CONFIG) -> Iterator[Batch]:
    signatures = signatures_of(source)
    position = StreamPosition(*divmod(steps_done, source.batches_per_epoch(signatures)))
    return source.training_batches(config, signatures, position)


def clips(batches: Iterable[Batch]) -> list[bytes]:
    """Return the bytes of each clip in order, without the rows of length 0 that fill the last batch."""
    rows = [
        (mel, length)
        for batch in batches
        for mel, length in zip(batch.mel.numpy(), batch.mel_length.numpy(), strict=True)
    ]
    return [mel[:length].tobytes() for mel, length in rows if length]


def bucket_of(batch: Batch) -> int:
    return BUCKETS.index((batch.tokens.shape[1], batch.mel.shape[1]))


def assert_same(found: Batch, expected: dict[str, tf.Tensor]) -> None:
    for name in ("tokens", "mel", "text_length", "mel_length", "speaker"):
        np.testing.assert_array_equal(getattr(found, name), expected[name])


def training_clips(source: Source, bucket: int) -> set[bytes]:
    """Return every training clip of a bucket."""
    every = training_dataset(source.folder, source.manifest, batch_size=1, bucket=bucket, epochs=1)
    return set(
        clips(Batch(fields["tokens"], fields["mel"], fields["text_length"], fields["mel_length"]) for fields in every)
    )


def test_an_epoch_is_the_split_without_incomplete_batches(source: Source) -> None:
    records = [training_clips(source, bucket) for bucket in range(len(BUCKETS))]
    assert [len(ids) for ids in records] == TRAIN_RECORDS
    stream = training_batches(source)
    for epoch in range(2):
        batches = list(islice(stream, sum(BATCHES)))
        assert [bucket_of(batch) for batch in batches] == bucket_order(BATCHES, CONFIG.training.seed, epoch).tolist()
        for bucket, ids in enumerate(records):
            read = clips(batch for batch in batches if bucket_of(batch) == bucket)
            assert len(set(read)) == len(read) == ROWS[bucket] * BATCHES[bucket]
            assert set(read) <= ids


def test_a_run_resumed_at_any_step_reads_the_same_batches(source: Source) -> None:
    whole = list(islice(training_batches(source), 2 * sum(BATCHES) + 3))
    for steps_done in (1, sum(BATCHES), sum(BATCHES) + 4):
        rest = list(islice(training_batches(source, steps_done), len(whole) - steps_done))
        assert [bucket_of(batch) for batch in rest] == [bucket_of(batch) for batch in whole[steps_done:]]
        assert clips(rest) == clips(whole[steps_done:])


def test_batches_of_one_bucket_equal_those_of_its_dataset(tmp_path: Path, write_cache: WriteCache) -> None:
    source = CachedSource(tmp_path, write_cache(tmp_path))
    settings = CONFIG.training
    dataset = training_dataset(tmp_path, source.manifest, batch_size=settings.batch_size, seed=settings.seed, epochs=2)
    expected = list(dataset)
    for batch, fields in zip(islice(training_batches(source), len(expected)), expected, strict=True):
        assert_same(batch, fields)
    (sentences,) = validation_dataset(tmp_path, source.manifest, "val", settings.batch_size).take(1)
    (signature,) = signatures_of(source)
    assert_same(source.validation_sentences(signature), sentences)


def test_a_bucket_without_a_full_batch_is_an_error_and_one_without_clips_is_skipped(
    tmp_path: Path, write_cache: WriteCache
) -> None:
    source = CachedSource(tmp_path / "few", write_cache(tmp_path / "few", train=24, buckets=((4, 4), (16, 24))))
    with pytest.raises(CacheError, match=r"bucket 0 \[4, 4\]: 1 training clips are fewer than one batch of 24"):
        training_batches(source)
    source = CachedSource(tmp_path / "none", write_cache(tmp_path / "none", train=24, buckets=((3, 2), (16, 24))))
    assert len(set(clips(islice(training_batches(source), 24 // 4)))) == 24


def test_validation_reads_every_bucket_whole(source: Source) -> None:
    batches = list(source.validation_batches(signatures_of(source)))
    assert [bucket_of(batch) for batch in batches] == [0, 1, 2]
    assert [len(set(clips([batch]))) for batch in batches] == [3, 4, 2]


def test_validation_sentences_are_the_first_of_each_bucket_in_turn(source: Source) -> None:
    short, middle, long = (clips([batch]) for batch in source.validation_batches(signatures_of(source)))
    signature = batch_signature(source.specs[-1], 5, with_speaker=True)
    sentences = source.validation_sentences(signature)
    assert clips([sentences]) == [short[0], middle[0], long[0], short[1], middle[1]]
    assert [tensor.shape for tensor in sentences if tensor is not None] == [
        spec.shape for spec in signature if spec is not None
    ]
    for tokens, mel, symbols, frames in zip(*(tensor.numpy() for tensor in sentences[:4]), strict=True):
        assert not tokens[symbols:].any()
        assert (mel[frames:] == np.float16(source.specs[-1].pad_value)).all()


def test_the_clips_of_a_batch_can_be_looked_up(source: Source) -> None:
    signatures, features = signatures_of(source), {}
    for _, record in records_of(source.folder):
        features[record["mel"][: record["mel_length"]].tobytes()] = record["id"]
    per_epoch = source.batches_per_epoch(signatures)
    assert per_epoch == sum(BATCHES)
    batches = list(islice(training_batches(source), per_epoch + 2))
    expected = [[(features[clip], True) for clip in clips([batch])] for batch in batches]
    positions = [StreamPosition(*divmod(steps_done, per_epoch)) for steps_done in range(len(batches))]
    assert source.batch_clips(CONFIG, signatures, positions) == expected
    # A few of them, in any order.
    assert source.batch_clips(CONFIG, signatures, [positions[-1], positions[3]]) == [expected[-1], expected[3]]
    assert source.batch_clips(CONFIG, signatures, []) == []


def test_a_position_past_the_end_of_its_epoch_is_refused(source: Source) -> None:
    with pytest.raises(CheckpointError, match="an epoch has 12 batches, but the checkpoint goes on with batch 12"):
        source.training_batches(CONFIG, signatures_of(source), StreamPosition(0, 12))


@pytest.fixture
def cached(tmp_path: Path, write_cache: WriteCache) -> CachedSource:
    return CachedSource(tmp_path / "cache", write_cache(tmp_path / "cache", train=24))


def cut_a_shard(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:-1])


def flip_a_bit(shard: Path) -> None:
    flip_bit(shard, -20)


@pytest.mark.parametrize(
    ("damage", "said"), [(cut_a_shard, "bytes, expected"), (flip_a_bit, "found [0-9a-f]{32}, expected")]
)
def test_an_error_of_tensorflow_is_the_caches_fault_where_a_file_is_damaged(
    cached: CachedSource, damage: Callable[[Path], None], said: str
) -> None:
    shard = cached.folder / cached.manifest.shard_names("train")[1]
    damage(shard)
    with pytest.raises(CacheError, match=rf"{shard.name}.*{said}.*run xtts verify-cache"):
        raise cached.explain(tf.errors.InvalidArgumentError(None, None, "no example\nIn a graph"))


def test_an_error_of_tensorflow_over_a_sound_cache_is_its_own(
    cached: CachedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = cached.explain(tf.errors.InvalidArgumentError(None, None, "9 is greater than 8\nIn a graph"))
    assert isinstance(error, TrainingError)
    assert str(error) == f"TensorFlow cannot read {cached.folder} (9 is greater than 8), but its files are valid"
    monkeypatch.setattr(cached_module, "_QUICKLY_READ_BYTES", 0)
    large = cached.explain(tf.errors.InvalidArgumentError(None, None, "9 is greater than 8"))
    assert str(large).endswith(
        f"but its files have the right sizes; xtts verify-cache --cache {cached.folder} reads them"
    )
    assert isinstance(cached.explain(tf.errors.DataLossError(None, None, "corrupted record at 12")), CacheError)

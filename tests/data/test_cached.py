"""Batches: static, deterministic, complete, and made by TensorFlow operations alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.cache.corpora import records_of
from tests.data.reading import DATA, operations, training_dataset, validation_dataset
from xtts_pipeline.cache.format.example import decode_example, encode_values
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest, record_spec
from xtts_pipeline.cache.format.schema import Example, RecordSpec, padded_values
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.data.cached import parse_batch
from xtts_pipeline.errors import CacheError

BATCH = 4
Batch = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_cache: Callable[..., Manifest]) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    write_cache(folder)
    return folder


@pytest.fixture(scope="module")
def manifest(folder: Path) -> Manifest:
    return load_manifest(folder)


def training_batches(
    folder: Path, *, batch_size: int = BATCH, data: DataConfig = DATA, epochs: int = 1, **settings: int
) -> list[Batch]:
    dataset = training_dataset(
        folder, load_manifest(folder), batch_size=batch_size, data=data, epochs=epochs, **settings
    )
    return list(dataset.as_numpy_iterator())


def clips(batches: list[Batch]) -> list[bytes]:
    """Return the bytes of each mel, which identify the clip, in the order of the batches."""
    return [mel.tobytes() for batch in batches for mel in batch["mel"]]


def test_a_batch_equals_its_records(folder: Path, manifest: Manifest) -> None:
    spec = record_spec(manifest)
    payloads = list(read_records(folder / manifest.shard_names("train")[0]))[:BATCH]

    batch = parse_batch(tf.constant(payloads), spec, BATCH)

    for row, payload in enumerate(payloads):
        for name, value in decode_example(payload, spec).items():
            if name != "id":
                np.testing.assert_array_equal(batch[name][row], value)


@pytest.mark.parametrize("bins", [256, 257])
def test_every_bit_of_a_mel_comes_back(bins: int) -> None:
    spec = RecordSpec(max_text_length=2, max_mel_frames=256, mel_bins=bins, pad_value=0.0)
    # All float16 there are. As halves of float32 values, many are signalling NaNs.
    mel = np.resize(np.arange(1 << 16, dtype="<u2"), (256, bins)).view(np.float16)
    values = {**padded_values(Example("a", np.zeros(0, np.int32), mel[:0]), spec), "mel": mel}

    batch = parse_batch(tf.constant([encode_values(values, spec.fields)]), spec, 1)

    assert batch["mel"][0].numpy().tobytes() == mel.tobytes()


def test_parsing_eagerly_equals_parsing_inside_the_dataset(folder: Path, manifest: Manifest) -> None:
    spec = record_spec(manifest)
    serialized = tf.data.TFRecordDataset([str(folder / name) for name in manifest.shard_names("val")]).batch(BATCH)

    inside = next(iter(validation_dataset(folder, manifest, "val", BATCH)))
    eager = parse_batch(next(iter(serialized)), spec, BATCH)

    assert inside.keys() == eager.keys()
    for name, value in eager.items():
        assert inside[name].dtype == value.dtype
        np.testing.assert_array_equal(inside[name], value)


def test_a_record_of_another_size_is_an_error(folder: Path, manifest: Manifest) -> None:
    payloads = tf.constant(list(read_records(folder / manifest.shard_names("train")[0]))[:2])

    with pytest.raises(tf.errors.InvalidArgumentError):
        parse_batch(payloads, replace(record_spec(manifest), max_mel_frames=23), 2)


def test_every_dimension_is_static(folder: Path, manifest: Manifest) -> None:
    spec = record_spec(manifest)
    expected = {field.name: tf.TensorSpec([BATCH, *field.shape], field.dtype) for field in spec.batch_fields}

    assert training_dataset(folder, manifest, batch_size=BATCH).element_spec == expected
    assert validation_dataset(folder, manifest, "val", BATCH).element_spec == expected


def test_no_python_runs_in_the_datasets(folder: Path, manifest: Manifest) -> None:
    training = training_dataset(folder, manifest, batch_size=BATCH)
    rival = training.map(lambda batch: tf.numpy_function(np.negative, [batch["mel"]], tf.float16))

    assert {"TFRecordDataset", "DecodeRaw", "ParseExampleV2"} <= operations(training)
    assert not python_operations(operations(training))
    assert not python_operations(operations(validation_dataset(folder, manifest, "val", BATCH)))
    assert python_operations(operations(rival)), "the search must find Python where there is some"


def python_operations(names: set[str]) -> set[str]:
    return {name for name in names if "PyFunc" in name}


def test_an_epoch_has_each_clip_once_except_the_remainder(folder: Path) -> None:
    for epoch in range(3):
        seen = clips(training_batches(folder, start_epoch=epoch))

        assert len(seen) == len(set(seen)) == 28  # of 29


def test_each_epoch_leaves_out_another_remainder(folder: Path, manifest: Manifest) -> None:
    everything = set(clips(training_batches(folder, batch_size=1)))
    left_out = [everything - set(clips(training_batches(folder, start_epoch=epoch))) for epoch in range(4)]

    assert len(everything) == manifest.split_records("train")
    assert len(set.union(*left_out)) > 1


def test_each_epoch_and_each_seed_has_its_own_order(folder: Path) -> None:
    orders = {
        tuple(clips(training_batches(folder, start_epoch=epoch, seed=seed))) for epoch in range(3) for seed in range(3)
    }

    assert len(orders) == 9


def test_a_shuffle_mixes_shards_even_with_a_buffer_of_one(folder: Path, manifest: Manifest) -> None:
    first_shard = set(stored_mels(folder, manifest, 0))
    members = [clip in first_shard for clip in clips(training_batches(folder, data=DataConfig(shuffle_records=1)))]

    assert any(members[:6])
    assert not all(members[:6])


def stored_mels(folder: Path, manifest: Manifest, shard: int) -> Iterator[bytes]:
    for payload in read_records(folder / manifest.shard_names("train")[shard]):
        yield decode_example(payload, record_spec(manifest))["mel"].tobytes()


def test_the_order_depends_on_seed_and_epoch_alone(folder: Path) -> None:
    expected = clips(training_batches(folder, start_epoch=3, seed=5))

    tf.random.set_seed(1234)
    single = DataConfig(num_workers=1, prefetch_buffer_size=1)
    assert clips(training_batches(folder, start_epoch=3, seed=5, data=single)) == expected


def test_the_order_of_an_epoch_is_the_same_in_every_version(folder: Path) -> None:
    number = {record["mel"].tobytes(): int(record["id"].removeprefix("clip-")) for _, record in records_of(folder)}

    seen = clips(training_batches(folder, start_epoch=2, seed=7))

    assert [number[clip] for clip in seen[:8]] == [24, 27, 25, 26, 23, 12, 28, 22]


def test_epochs_follow_each_other_as_if_each_were_started_alone(folder: Path) -> None:
    assert clips(training_batches(folder, epochs=3)) == [
        clip for epoch in range(3) for clip in clips(training_batches(folder, start_epoch=epoch))
    ]


def test_skipping_batches_continues_where_a_run_stopped(folder: Path) -> None:
    whole = clips(training_batches(folder, epochs=3))

    assert clips(training_batches(folder, start_epoch=1, skip_batches=5, epochs=2)) == whole[(7 + 5) * BATCH :]


def test_without_epochs_training_does_not_end(folder: Path, manifest: Manifest) -> None:
    endless = training_dataset(folder, manifest, batch_size=BATCH)

    assert endless.cardinality() < 0
    assert sum(1 for _ in endless.take(30)) == 30


def test_fewer_clips_than_a_batch_is_an_error_with_both_numbers(folder: Path, manifest: Manifest) -> None:
    with pytest.raises(CacheError, match=r"29 training clips are fewer than one batch of 32"):
        training_dataset(folder, manifest, batch_size=32)


def test_validation_drops_nothing_and_fills_with_rows_of_length_0(folder: Path, manifest: Manifest) -> None:
    batches = list(validation_dataset(folder, manifest, "val", BATCH).as_numpy_iterator())
    spec = record_spec(manifest)
    filling = {name: value[1:] for name, value in batches[-1].items()}

    assert [len(batch["mel"]) for batch in batches] == [4, 4]
    assert np.concatenate([batch["mel_length"] for batch in batches]).tolist()[5:] == [0, 0, 0]
    assert (np.concatenate([batch["text_length"] for batch in batches])[:5] > 0).all()
    assert not filling["text_length"].any()
    assert not filling["tokens"].any()
    np.testing.assert_array_equal(filling["mel"], np.float16(spec.pad_value))


def test_validation_that_fills_its_last_batch_gets_no_more_rows(folder: Path, manifest: Manifest) -> None:
    assert sum(1 for _ in validation_dataset(folder, manifest, "val", 5)) == 1


def test_an_empty_split_is_an_error(folder: Path, manifest: Manifest) -> None:
    with pytest.raises(CacheError, match="0 clips in the test split"):
        validation_dataset(folder, manifest, "test", BATCH)


def test_padding_is_silence(folder: Path, manifest: Manifest) -> None:
    spec = record_spec(manifest)
    for batch in training_batches(folder):
        frames = np.arange(spec.max_mel_frames) >= batch["mel_length"][:, None]
        tokens = np.arange(spec.max_text_length) >= batch["text_length"][:, None]

        np.testing.assert_array_equal(batch["mel"][frames], np.float16(spec.pad_value))
        assert not batch["tokens"][tokens].any()


def test_a_shard_that_lost_a_record_stops_the_stream(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    manifest = write_cache(tmp_path)
    shard = tmp_path / manifest.shard_names("train")[0]
    length = len(next(read_records(shard))) + 16
    shard.write_bytes(shard.read_bytes()[length:])

    with pytest.raises(
        tf.errors.FailedPreconditionError, match="expected to contain 29 elements but contained only 28"
    ):
        training_batches(tmp_path, batch_size=1)


BUCKETS = ((8, 12), (12, 18), (16, 24))


@pytest.fixture(scope="module")
def bucketed(tmp_path_factory: pytest.TempPathFactory, write_cache: Callable[..., Manifest]) -> Path:
    folder = tmp_path_factory.mktemp("bucketed")
    write_cache(folder, buckets=BUCKETS)
    return folder


def real_frames(batches: list[Batch]) -> list[bytes]:
    """Return the bytes of each mel without its padding."""
    return [
        mel[:length].tobytes()
        for batch in batches
        for mel, length in zip(batch["mel"], batch["mel_length"], strict=True)
        if length
    ]


def test_the_buckets_together_have_the_clips_of_one_shape(folder: Path, bucketed: Path) -> None:
    manifest = load_manifest(bucketed)
    for split in ("train", "val"):
        found = []
        for bucket in (bucket for bucket in range(3) if manifest.split_records(split, bucket)):
            batches = list(validation_dataset(bucketed, manifest, split, 2, bucket).as_numpy_iterator())
            assert {(batch["tokens"].shape, batch["mel"].shape) for batch in batches} == {
                ((2, BUCKETS[bucket][0]), (2, BUCKETS[bucket][1], 4))
            }
            found += real_frames(batches)
        whole = validation_dataset(folder, load_manifest(folder), split, 2).as_numpy_iterator()

        assert sorted(found) == sorted(real_frames(list(whole)))


def test_an_epoch_of_each_bucket_is_its_own_and_can_be_resumed(bucketed: Path) -> None:
    for bucket in range(3):
        epochs = [
            real_frames(training_batches(bucketed, batch_size=2, bucket=bucket, start_epoch=epoch))
            for epoch in range(2)
        ]
        rest = training_batches(bucketed, batch_size=2, bucket=bucket, start_epoch=1, skip_batches=1)

        assert len(epochs[0]) == len(set(epochs[0])) == load_manifest(bucketed).split_records("train", bucket) // 2 * 2
        assert epochs[0] != epochs[1]
        assert real_frames(rest) == epochs[1][2:]


def test_a_bucket_with_fewer_clips_than_a_batch_is_named(bucketed: Path) -> None:
    with pytest.raises(
        CacheError,
        match=r"bucket 0 \[8, 12\]: 5 training clips are fewer than one batch of 6.*other data\.buckets or",
    ):
        training_dataset(bucketed, load_manifest(bucketed), batch_size=6, bucket=0)

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.cache.corpora import build, make_config
from tests.data.sounds import survey, write_mixed_corpus
from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.cached import EpochPlace, training_dataset, validation_dataset
from xtts_pipeline.data.online import NativeDatasets, augmented_batches
from xtts_pipeline.errors import CacheError

BUCKETS = "data.buckets=[[40,25],[40,80]]"
Batches = list[dict[str, tf.Tensor]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def cache(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("cache") / "cache"
    return folder, build(data, folder, make_config(BUCKETS)).manifest


def native(data: Path, *overrides: str) -> NativeDatasets:
    config = make_config(BUCKETS, *overrides)
    return NativeDatasets(survey(data, config), config, data)


def assert_alike(found: Iterable[dict[str, tf.Tensor]], expected: Iterable[dict[str, tf.Tensor]]) -> int:
    """Assert that batches hold the same clips, exactly but for the mels, which may differ by what resampling rounds; return how many."""
    number = 0
    for batch, other in zip(found, expected, strict=True):
        number += 1
        assert set(batch) == set(other)
        for name, tensor in batch.items():
            assert (tensor.dtype, tensor.shape) == (other[name].dtype, other[name].shape)
            if name == "mel":
                error = np.abs(tensor.numpy().astype(np.float32) - other[name].numpy().astype(np.float32))
                assert np.mean(error <= 0.01) >= 0.999
                assert error.max() < 0.1
            else:
                np.testing.assert_array_equal(tensor, other[name])
    return number


@pytest.mark.parametrize("overrides", [(), ("data.cache_features=true",)], ids=["made anew", "kept in memory"])
@pytest.mark.parametrize("bucket", [0, 1])
def test_batches_are_those_of_the_cache_in_its_order(
    data: Path, cache: tuple[Path, Manifest], bucket: int, overrides: tuple[str, ...]
) -> None:
    folder, manifest = cache
    place = EpochPlace(seed=3, batch_size=4, start_epoch=1, skip_batches=1, epochs=3)
    read = training_dataset(
        folder,
        manifest,
        batch_size=4,
        seed=3,
        data=make_config().data,
        bucket=bucket,
        start_epoch=1,
        skip_batches=1,
        epochs=3,
    )
    datasets = native(data, *overrides)
    assert assert_alike(datasets.training(bucket, place), read) > 4
    val = validation_dataset(folder, manifest, "val", 4, bucket)
    assert_alike(datasets.validation(bucket, 4), val)
    assert_alike(datasets.validation(bucket, 4), val)


def test_what_is_kept_in_memory_is_not_read_again(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    datasets = native(data, "data.cache_features=true")
    first = list(datasets.training(1, EpochPlace(0, 1, epochs=1)))
    for path in (data / "wavs").iterdir():
        path.unlink()
    again = list(datasets.training(1, EpochPlace(0, 1, epochs=1)))
    assert_alike(again, first)


def test_a_clip_that_changed_after_the_survey_is_an_error(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    datasets = native(data)
    for path in (data / "wavs").iterdir():
        soundfile.write(path, np.zeros(9_000), 44_100, "PCM_16")
    with pytest.raises(tf.errors.InvalidArgumentError, match="another sample rate"):
        list(datasets.training(1, EpochPlace(0, 4, epochs=1)))


def test_a_clip_of_another_length_than_was_judged_is_an_error(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    datasets = native(data)
    for path in (data / "wavs").iterdir():
        wave, rate = soundfile.read(path)
        soundfile.write(path, wave[:-100], rate, "PCM_16")
    with pytest.raises(tf.errors.InvalidArgumentError, match="another length"):
        list(datasets.training(1, EpochPlace(0, 4, epochs=1)))


@pytest.mark.parametrize(
    "change", ["gain_db=6.0", "noise_min_snr_db=10.0", "speed_change=0.2", "time_masks=2", "frequency_masks=2"]
)
def test_augmentation_differs_at_each_epoch_and_is_the_same_by_seed(data: Path, change: str) -> None:
    datasets = native(data, f"augmentation.{change}")

    def mels(start: int, seed: int) -> list[bytes]:
        # One clip a batch, so that an order by tokens compares clip with clip.
        batches = datasets.training(1, EpochPlace(seed, 1, start, epochs=1))
        return [
            batch["mel"].numpy().tobytes()
            for batch in sorted(batches, key=lambda batch: batch["tokens"].numpy().tobytes())
        ]

    first = mels(0, 1)
    assert first == mels(0, 1)
    for other in (mels(1, 1), mels(0, 2)):
        assert np.mean([mel != mel_again for mel, mel_again in zip(first, other, strict=True)]) > 0.8


def test_a_run_that_goes_on_hears_what_one_that_never_stopped_hears(data: Path, cache: tuple[Path, Manifest]) -> None:
    settings = ("augmentation.gain_db=6.0", "augmentation.speed_change=0.2")
    datasets = native(data, *settings)
    whole: Batches = list(datasets.training(1, EpochPlace(5, 4, epochs=2)))
    rest: Batches = list(datasets.training(1, EpochPlace(5, 4, start_epoch=1, skip_batches=1, epochs=1)))
    assert_same(rest, whole[-len(rest) :])

    folder, manifest = cache
    config = make_config(BUCKETS, *settings)
    per_epoch = manifest.split_records("train", 1) // 4

    def read(start: int, skip: int, epochs: int) -> Batches:
        plain = training_dataset(
            folder,
            manifest,
            batch_size=4,
            seed=5,
            data=config.data,
            bucket=1,
            start_epoch=start,
            skip_batches=skip,
            epochs=epochs,
        )
        return list(augmented_batches(plain, config, bucket_specs(manifest)[1], 1, start * per_epoch + skip))

    whole = read(0, 0, 2)
    assert_same(read(1, 1, 1), whole[per_epoch + 1 :])
    assert any(
        not np.array_equal(a["mel"], b["mel"]) for a, b in zip(whole[:per_epoch], whole[per_epoch:], strict=True)
    )


def assert_same(found: Batches, expected: Batches) -> None:
    for batch, other in zip(found, expected, strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name])


def test_validation_is_never_augmented(data: Path, cache: tuple[Path, Manifest]) -> None:
    folder, manifest = cache
    bucket = next(bucket for bucket in (0, 1) if manifest.split_records("val", bucket))
    datasets = native(data, "augmentation.gain_db=20.0", "augmentation.time_masks=4")
    assert_alike(datasets.validation(bucket, 2), validation_dataset(folder, manifest, "val", 2, bucket))


@pytest.mark.parametrize(
    "overrides", [(), ("augmentation.gain_db=3.0", "augmentation.speed_change=0.1", "augmentation.time_masks=1")]
)
def test_no_python_runs_in_the_pipeline(data: Path, overrides: tuple[str, ...]) -> None:
    dataset = native(data, *overrides).training(1, EpochPlace(0, 4))
    # The graph of the dataset holds all its functions, those of interleave and map among them.
    graph = tf.compat.v1.GraphDef.FromString(dataset._as_serialized_graph().numpy())
    operations = {node.op for node in graph.node} | {
        node.op for function in graph.library.function for node in function.node_def
    }
    assert {"ReadFile", "DecodeWav", "RFFT", "ParallelMapDatasetV2"} <= operations
    assert not [name for name in operations if "PyFunc" in name]


def test_too_few_clips_are_an_error(data: Path) -> None:
    with pytest.raises(CacheError, match="fewer than one batch of 400"):
        native(data).training(1, EpochPlace(0, 400))
    none = native(data, "cache.validation_share=0.0")
    with pytest.raises(CacheError, match="0 clips in the val split"):
        none.validation(1, 4)


def test_without_augmentation_a_cache_is_read_as_it_is(cache: tuple[Path, Manifest]) -> None:
    folder, manifest = cache
    plain = training_dataset(folder, manifest, batch_size=4, seed=0, data=Config().data, bucket=1, epochs=1)
    assert augmented_batches(plain, Config(), bucket_specs(manifest)[1], 1, 0) is plain


def test_the_clips_of_a_batch_are_named(data: Path) -> None:
    datasets = native(data)
    place = EpochPlace(3, 4, start_epoch=1, skip_batches=2)
    named = datasets.training_ids(1, place, 1)
    texts = {clip.row.id: clip.tokens for clip in survey(data, make_config(BUCKETS)).clips}
    batch = next(iter(datasets.training(1, place)))
    for id, tokens, length in zip(named, batch["tokens"], batch["text_length"], strict=True):
        np.testing.assert_array_equal(tokens[:length], texts[id])


def test_a_pipeline_never_ends_by_itself(data: Path) -> None:
    place = EpochPlace(0, 8)
    endless = native(data).training(1, place)
    per_epoch = len(list(native(data).training(1, replace(place, epochs=1))))
    assert len(list(islice(endless, 2 * per_epoch + 1))) == 2 * per_epoch + 1

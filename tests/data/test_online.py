import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from tests.cache.corpora import build, make_config
from tests.data.reading import operations, training_dataset, validation_dataset, whole_epochs
from tests.data.sounds import survey, write_mixed_corpus
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.online import OnlineSource
from xtts_pipeline.data.schedule import START, StreamPosition
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


class Online:
    """A corpus read online with one set of settings."""

    def __init__(self, data: Path, *overrides: str) -> None:
        self.config = make_config(BUCKETS, *overrides)
        self.source = OnlineSource(data, survey(data, self.config), self.config)

    def training(
        self, bucket: int, batch_size: int, position: StreamPosition = START, epochs: int | None = None, seed: int = 0
    ) -> tf.data.Dataset:
        config = with_seed(self.config, seed)
        return whole_epochs(self.source, self.source.order(config, bucket, batch_size, position), epochs)


def with_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"training": TrainingConfig(seed=seed)})


def assert_alike(found: Iterable[dict[str, tf.Tensor]], expected: Iterable[dict[str, tf.Tensor]]) -> int:
    """Assert that batches are equal, up to the rounding of resampling in mels; return their number."""
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


@pytest.mark.parametrize("overrides", [(), ("data.cache_features=true",)], ids=["computed", "cached"])
@pytest.mark.parametrize("bucket", [0, 1])
def test_batches_equal_those_of_the_cache_in_order(
    data: Path, cache: tuple[Path, Manifest], bucket: int, overrides: tuple[str, ...]
) -> None:
    folder, manifest = cache
    read = training_dataset(
        folder,
        manifest,
        batch_size=4,
        seed=3,
        bucket=bucket,
        start_epoch=1,
        skip_batches=1,
        epochs=3,
    )
    online = Online(data, *overrides)
    assert assert_alike(online.training(bucket, 4, StreamPosition(1, 1), epochs=3, seed=3), read) > 4
    val = validation_dataset(folder, manifest, "val", 4, bucket)
    assert_alike(online.source.validation_dataset(bucket, 4), val)
    assert_alike(online.source.validation_dataset(bucket, 4), val)


def test_cached_features_are_not_computed_again(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    online = Online(data, "data.cache_features=true")
    first = list(online.training(1, 1, epochs=1))
    for path in (data / "wavs").iterdir():
        path.unlink()
    again = list(online.training(1, 1, epochs=1))
    assert_alike(again, first)


# After the samples: a chunk of odd size and its pad byte, second samples, and bytes that are no chunk.
@pytest.mark.parametrize("tail", [b"LIST\5\0\0\0INFOx\0", b"data\4\0\0\0abcd", bytes(3)])
def test_what_follows_the_samples_of_a_file_is_not_read(data: Path, tmp_path: Path, tail: bytes) -> None:
    copy = Path(shutil.copytree(data, tmp_path / "corpus"))
    for path in (copy / "wavs").iterdir():
        path.write_bytes(path.read_bytes() + tail)
    assert assert_alike(Online(copy).training(1, 4, epochs=1), Online(data).training(1, 4, epochs=1)) > 2


@pytest.mark.parametrize(("samples", "found"), [(1_000, "another sample rate"), (9_000, "too short")])
def test_a_clip_that_changed_after_the_survey_is_an_error(tmp_path: Path, samples: int, found: str) -> None:
    data = write_mixed_corpus(tmp_path)
    online = Online(data)
    for path in (data / "wavs").iterdir():
        soundfile.write(path, np.zeros(samples), 44_100, "PCM_16")
    with pytest.raises(tf.errors.InvalidArgumentError, match=found):
        list(online.training(1, 4, epochs=1))


def test_a_clip_whose_length_changed_after_the_survey_is_an_error(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    online = Online(data)
    for path in (data / "wavs").iterdir():
        wave, rate = soundfile.read(path)
        soundfile.write(path, wave[:-100], rate, "PCM_16")
    with pytest.raises(tf.errors.InvalidArgumentError, match="another length"):
        list(online.training(1, 4, epochs=1))


@pytest.mark.parametrize(
    "change", ["gain_db=6.0", "noise_min_snr_db=10.0", "speed_change=0.2", "time_masks=2", "frequency_masks=2"]
)
def test_augmentation_differs_at_each_epoch_and_is_the_same_by_seed(data: Path, change: str) -> None:
    online = Online(data, f"augmentation.{change}")

    def mels(start: int, seed: int) -> list[bytes]:
        # One clip a batch, so that an order by tokens compares clip with clip.
        batches = online.training(1, 1, StreamPosition(start), epochs=1, seed=seed)
        return [
            batch["mel"].numpy().tobytes()
            for batch in sorted(batches, key=lambda batch: batch["tokens"].numpy().tobytes())
        ]

    first = mels(0, 1)
    assert first == mels(0, 1)
    for other in (mels(1, 1), mels(0, 2)):
        assert np.mean([mel != mel_again for mel, mel_again in zip(first, other, strict=True)]) > 0.8


def test_noise_does_not_bring_back_what_is_trimmed(tmp_path: Path) -> None:
    data = write_mixed_corpus(tmp_path)
    for path in (data / "wavs").iterdir():
        wave, rate = soundfile.read(path)
        quiet = np.random.default_rng(0).normal(0.0, 1e-4, [rate // 2, *wave.shape[1:]])
        soundfile.write(path, np.concatenate([quiet, wave, quiet]), rate, "PCM_16")
    trim = ("audio.trim_db=30.0", "augmentation.noise_min_snr_db=5.0", "augmentation.noise_max_snr_db=10.0")
    noisy, clean = Online(data, *trim), Online(data, trim[0])

    def lengths(online: Online) -> list[int]:
        return sorted(int(batch["mel_length"][0]) for batch in online.training(1, 1, epochs=1))

    assert lengths(noisy) == lengths(clean)


def test_a_resumed_run_has_the_same_augmentation(data: Path, cache: tuple[Path, Manifest]) -> None:
    settings = ("augmentation.gain_db=6.0", "augmentation.speed_change=0.2")
    online = Online(data, *settings)
    whole: Batches = list(online.training(1, 4, epochs=2, seed=5))
    rest: Batches = list(online.training(1, 4, StreamPosition(1, 1), epochs=1, seed=5))
    assert_same(rest, whole[-len(rest) :])

    folder, manifest = cache
    config = with_seed(make_config(BUCKETS, *settings), 5)
    per_epoch = manifest.split_records("train", 1) // 4

    def read(start: int, skip: int, epochs: int) -> Batches:
        position = StreamPosition(start, skip)
        source = CachedSource(folder, manifest)
        return list(whole_epochs(source, source.order(config, 1, 4, position), epochs))

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
    online = Online(data, "augmentation.gain_db=20.0", "augmentation.time_masks=4")
    assert_alike(online.source.validation_dataset(bucket, 2), validation_dataset(folder, manifest, "val", 2, bucket))


@pytest.mark.parametrize(
    "overrides", [(), ("augmentation.gain_db=3.0", "augmentation.speed_change=0.1", "augmentation.time_masks=1")]
)
def test_no_python_runs_in_the_pipeline(data: Path, overrides: tuple[str, ...]) -> None:
    found = operations(Online(data, *overrides).training(1, 4))
    assert {"ReadFile", "DecodeWav", "RFFT", "ParallelMapDatasetV2"} <= found
    assert not [name for name in found if "PyFunc" in name]


def test_too_few_clips_are_an_error(data: Path) -> None:
    with pytest.raises(CacheError, match="fewer than one batch of 400"):
        Online(data).training(1, 400)


def test_without_augmentation_mels_equal_the_records(cache: tuple[Path, Manifest]) -> None:
    folder, manifest = cache
    source = CachedSource(folder, manifest)
    order = source.order(Config(), 1, 4)
    stored = [
        decode_example(record.numpy(), source.specs[1])["mel"]
        for record in source.records(order).take(4 * order.batches_per_epoch)
    ]
    read = [mel for batch in whole_epochs(source, order, 1) for mel in batch["mel"].numpy()]
    np.testing.assert_array_equal(read, stored)


def test_the_clips_of_a_batch_can_be_looked_up(data: Path) -> None:
    online = Online(data)
    position = StreamPosition(1, 2)
    named = [
        name
        for name, _ in online.source.bucket_clips(online.source.order(with_seed(online.config, 3), 1, 4, position), 1)
    ]
    texts = {clip.row.id: clip.tokens for clip in survey(data, make_config(BUCKETS)).clips}
    batch = next(iter(online.training(1, 4, position, seed=3)))
    for id, tokens, length in zip(named, batch["tokens"], batch["text_length"], strict=True):
        np.testing.assert_array_equal(tokens[:length], texts[id])


def test_a_stream_without_epochs_is_endless(data: Path) -> None:
    endless = Online(data).training(1, 8)
    per_epoch = len(list(Online(data).training(1, 8, epochs=1)))
    assert len(list(islice(endless, 2 * per_epoch + 1))) == 2 * per_epoch + 1

"""Crops for a vocoder: parts of their clips, in a reproducible order, made by TensorFlow operations alone."""

import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.cache.corpora import build, make_config, records_of, write_corpus
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.data.waves import WaveBatch, WaveSource
from xtts_pipeline.errors import CacheError, CheckpointError, ConfigError, TrainingError
from xtts_pipeline.training.vocoder.checks import check_vocoder_settings, describe_crops

CLIPS, CROP, ROWS = 40, 24, 6
SHAPES = "data.buckets=[[30,26],[31,26],[40,80]]"
VOCODER = (f"vocoder.crop_frames={CROP}", "vocoder.crops_per_clip=2", f"training.batch_size={ROWS}")
SIZES = ("vocoder.spectral_sizes=[128]", "vocoder.discriminator_sizes=[128]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with waves and three buckets, one of them empty; some clips are shorter than a crop."""
    root = tmp_path_factory.mktemp("waves")
    build(write_corpus(root / "data", CLIPS), root / "cache", make_config("cache.store_waves=true", SHAPES))
    return root / "cache"


def config_with(*overrides: str) -> Config:
    return make_config("cache.store_waves=true", SHAPES, *VOCODER, *SIZES, *overrides)


@pytest.fixture(scope="module")
def source(folder: Path) -> WaveSource:
    return WaveSource(folder, load_manifest(folder), config_with())


def batches(source: WaveSource, count: int, *place: int, rows: range | None = None) -> list[WaveBatch]:
    own = None if rows is None else [rows]
    stream = source.training_batches(config_with(), [source.signature(ROWS)], StreamPosition(*place), own)
    return [WaveBatch(mel.numpy(), wave.numpy()) for mel, wave in islice(stream, count)]


def assert_equal(found: list[WaveBatch], expected: list[WaveBatch]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.mel, other.mel)
        np.testing.assert_array_equal(one.wave, other.wave)


def test_a_crop_is_a_part_of_its_clip_with_the_sound_under_it(source: WaveSource) -> None:
    hop = source.manifest.audio.hop_samples
    number, (_, mel, wave) = 0, source.validation_clip(0)
    crops = next(batch for batch, _ in source.validation_crops(2))
    starts = [at for at in range(len(mel) - CROP + 1) if np.array_equal(mel[at : at + CROP], crops.mel[number])]
    assert starts == [(len(mel) - CROP) // 2]
    found = crops.wave[number].numpy() / 32_768
    np.testing.assert_allclose(found, wave[starts[0] * hop :][: (CROP - 1) * hop], atol=1e-7)


def test_a_mel_with_an_odd_number_of_bins_is_read(tmp_path: Path) -> None:
    config = make_config("cache.store_waves=true", "audio.mel_bins=7", *VOCODER, *SIZES)
    build(write_corpus(tmp_path / "data", CLIPS), tmp_path / "cache", config)
    source = WaveSource(tmp_path / "cache", load_manifest(tmp_path / "cache"), config)
    id, mel, _ = source.validation_clip(0)
    [stored] = [record["mel"] for _, record in records_of(tmp_path / "cache") if record["id"] == id]
    np.testing.assert_array_equal(mel, stored[: len(mel)].astype(np.float32))


def test_batches_have_the_signature_s_shape_whatever_the_bucket(source: WaveSource) -> None:
    signature = source.signature(ROWS)
    for batch in batches(source, source.batches_per_epoch([signature])):
        for tensor, spec in zip(batch, signature, strict=True):
            assert (tensor.shape, tensor.dtype.name) == (tuple(spec.shape), spec.dtype.name)


def test_a_run_that_stopped_goes_on_with_the_batches_that_would_have_come(source: WaveSource) -> None:
    per_epoch = source.batches_per_epoch([source.signature(ROWS)])
    whole = batches(source, per_epoch + 3)
    assert_equal(batches(source, 2, 0, 3), whole[3:5])
    assert_equal(batches(source, 2, 1, 1), whole[per_epoch + 1 :])


def test_an_epoch_has_each_clip_at_most_once_and_two_crops_of_it(source: WaveSource) -> None:
    config, signatures = config_with(), [source.signature(ROWS)]
    epochs = []
    for epoch in (0, 1):
        positions = [StreamPosition(epoch, batch) for batch in range(source.batches_per_epoch(signatures))]
        seen = [name for clips in source.batch_clips(config, signatures, positions) for name, _ in clips]
        assert len(seen) == len(set(seen)) == ROWS // 2 * len(positions)
        assert not set(seen) & set(source.left_out(config, signatures, epoch))
        epochs.append(seen)
    assert epochs[0] != epochs[1]


def test_workers_share_the_rows_of_the_same_batches(source: WaveSource) -> None:
    whole = batches(source, 3, 0, 2)
    parts = [batches(source, 3, 0, 2, rows=rows) for rows in (range(2), range(2, 6))]
    joined = [
        WaveBatch(*(np.concatenate(pair) for pair in zip(*both, strict=True))) for both in zip(*parts, strict=True)
    ]
    assert_equal(joined, whole)
    with pytest.raises(ConfigError, match="a worker trains on 3 crops, expected a multiple of 2"):
        batches(source, 1, rows=range(3))


def test_a_cache_that_has_changed_is_refused_at_the_next_epoch(folder: Path, tmp_path: Path) -> None:
    cache = Path(shutil.copytree(folder, tmp_path / "cache"))
    source = WaveSource(cache, load_manifest(cache), config_with())
    signatures = [source.signature(ROWS)]
    stream = source.training_batches(config_with(), signatures)
    for _ in range(source.batches_per_epoch(signatures)):
        next(stream)
    (cache / "manifest.json").unlink()
    with pytest.raises(TrainingError, match=r"manifest\.json"):
        next(stream)


def test_a_position_behind_the_epoch_is_refused(source: WaveSource) -> None:
    with pytest.raises(CheckpointError, match="goes on with batch 99"):
        batches(source, 1, 0, 99)


def test_validation_crops_count_each_clip_once(source: WaveSource) -> None:
    counted = [rows for _, rows in source.validation_crops(2)]
    assert sum(counted) == source.validation_clips
    assert set(counted[:-1]) <= {2}


def test_clips_shorter_than_a_crop_are_counted_and_said(folder: Path, source: WaveSource) -> None:
    lines = describe_crops(folder, load_manifest(folder), config_with())
    used, short = lines
    assert used.startswith(f"crops: {ROWS} of {CROP} frames (0.37 s), 2 of each clip; ")
    assert f"and {source.validation_clips} validation clips" in used
    left = CLIPS - sum(int(word) for word in used.split("; ")[1].split() if word.isdigit())
    assert left > 0
    assert sum(int(word) for word in short.split(",")[0].split() if word.isdigit()) == left
    with pytest.raises(CacheError, match="0 training clips are as long as a crop of 79 frames"):
        describe_crops(folder, load_manifest(folder), config_with("vocoder.crop_frames=79"))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("training.batch_size=5", "expected a multiple of vocoder.crops_per_clip=2"),
        ("training.batch_size=auto", "give the crops of a batch"),
        ("training.accumulation_steps=2", "expected 1"),
        ("training.precision=float16", "expected float32 or bfloat16"),
        ("vocoder.spectral_sizes=[2048]", "expected at least 4096, twice the longest Fourier transform"),
        ("vocoder.spectral_sizes=[4]", "found 4, expected 8 or more"),
        ("audio.window_samples=64", "expected fewer than audio.window_samples=64 for a vocoder"),
        ("vocoder.discriminator_sizes=[]", "expected a discriminator; name one, or set vocoder.adversarial_weight=0"),
        ("vocoder.discriminator_periods=[4000]", "found 4000, expected at most the 2944 samples of a crop"),
    ],
)
def test_settings_that_cannot_train_a_vocoder_are_refused(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_vocoder_settings(config_with(setting))


def test_discriminators_that_are_not_trained_need_no_longer_crop() -> None:
    sizes = ("vocoder.discriminator_sizes=[2048]",)
    with pytest.raises(ConfigError, match="expected at least 4096"):
        check_vocoder_settings(config_with("vocoder.adversarial_weight=1", *sizes))
    check_vocoder_settings(config_with("vocoder.adversarial_weight=0", *sizes))

"""The compared input pipelines make batches of the same shape, and nearly the same mels."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.cache.format.manifest import Manifest, record_spec
from xtts_pipeline.cache.format.schema import Example
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.perf.benchmark.baselines import BaselineClips, librosa_pipeline, native_pipeline, npy_pipeline
from xtts_pipeline.perf.benchmark.clips import Clip, write_corpus
from xtts_pipeline.perf.benchmark.input import measure_input, our_batches, reading_alone

WriteCache = Callable[..., Manifest]
AUDIO = Config().audio


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> BaselineClips:
    random = np.random.default_rng(0)
    waves = [0.1 * random.standard_normal(samples).astype(np.float32) for samples in (5_000, 8_000, 11_000)]
    paths = write_corpus(
        tmp_path_factory.mktemp("clips") / "corpus", (("text", wave) for wave in waves), AUDIO.sample_rate
    )
    clips = [
        Clip(Example(f"{number}", np.arange(3, 6 + number, dtype=np.int32), log_mel(wave, AUDIO)), path)
        for number, (wave, path) in enumerate(zip(waves, paths, strict=True))
    ]
    config = load_config([], ["limits.max_text_length=9", "limits.max_mel_frames=50"])
    return BaselineClips(clips, record_spec(config.model_copy(update={"audio": AUDIO})), AUDIO, batch_size=3)


@pytest.mark.parametrize("name", ["librosa", "npy", "native"])
def test_baselines_make_the_mels_of_the_cache(given: BaselineClips, tmp_path: Path, name: str):
    pipelines = {
        "librosa": lambda: librosa_pipeline(given),
        "npy": lambda: npy_pipeline(given, tmp_path / "npy"),
        "native": lambda: native_pipeline(given),
    }
    batch = {key: value.numpy() for key, value in next(iter(pipelines[name]())).items()}

    assert batch["mel"].shape == (3, 50, 80)
    assert batch["mel"].dtype == np.float16
    assert batch["tokens"].shape == (3, 9)
    for row in range(3):
        clip = given.clips[batch["text_length"][row] - 3]
        length = batch["mel_length"][row]
        # TensorFlow's stft leaves the last frame out where its window reaches over the end by a part of a hop.
        assert len(clip.example.mel) - 1 <= length <= len(clip.example.mel)
        np.testing.assert_allclose(batch["mel"][row, :length], clip.example.mel[:length], atol=0.05)
        assert (batch["mel"][row, length:] == np.float16(given.spec.pad_value)).all()


def test_ours_and_reading_alone_have_the_rows_of_training(tmp_path: Path, write_cache: WriteCache):
    manifest = write_cache(tmp_path / "cache", train=40, buckets=((9, 12), (16, 24)))
    config = Config(training=TrainingConfig(batch_size=2))

    assert {*islice(our_batches(tmp_path / "cache", manifest, config), 20)} == {2, 4}
    assert {*islice(reading_alone(tmp_path / "cache", manifest, config), 20)} == {2, 4}


@pytest.mark.parametrize("in_memory", [True, False])
def test_every_pipeline_is_measured_and_compared_with_ours(
    tmp_path: Path, write_cache: WriteCache, given: BaselineClips, in_memory: bool
):
    manifest = write_cache(tmp_path / "cache", train=9)
    bins = manifest.audio.mel_bins
    clips = [replace(clip, example=replace(clip.example, mel=clip.example.mel[:, :bins])) for clip in given.clips]
    config = Config(training=TrainingConfig(batch_size=2)).with_settings("data", cache_records=in_memory)
    said: list[str] = []
    found = measure_input(
        tmp_path / "cache", manifest, clips, config, tmp_path, rounds=1, seconds=0.05, say=said.append
    )

    assert said[0] == f"0 s or more, for 1 round of {len(found.variants)} pipelines"
    files = {"reading alone", "ours", "librosa", "npy", "native"}
    ratios = {"ours/reading alone", "ours/librosa", "ours/npy", "ours/native"}
    kept = {"ours/in memory", *(ratio.replace("ours", "in memory") for ratio in ratios)} if in_memory else set()
    assert set(found.variants) == {*files, *(["in memory"] if in_memory else [])}
    assert set(found.ratios) == ratios | kept
    ours, npy = (found.variants[name]["records_per_second"] for name in ("ours", "npy"))
    assert found.ratios["ours/npy"] == pytest.approx(ours / npy)

"""Hold training without a cache against the cache: how near its mels are, and how fast it is beside librosa in a numpy_function.

    python benchmarks/native.py --data LJSpeech-1.1 --cache cache/ --set audio.trim_db=30

The settings must be the cache's. Speeds are given per second and as CPU time a record, which other programs on the machine disturb less;
the three paths take turns.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

import librosa
import numpy as np
import soundfile
import tensorflow as tf

from xtts_pipeline.cache.dataset import EpochPlace, pipeline_options, training_dataset
from xtts_pipeline.cache.manifest import load_manifest
from xtts_pipeline.cache.plan import take_in
from xtts_pipeline.config import Config, load_config
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.native.dataset import NativeDatasets
from xtts_pipeline.native.survey import Survey, survey_corpus

BATCH = 8


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--records", type=int, default=400, help="that each path makes in a round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    config = load_config(overrides=options.overrides)
    started = time.perf_counter()
    survey = survey_corpus(take_in([read_corpus(options.data)], config), config, lambda _rows: None)
    survey_seconds = time.perf_counter() - started
    native = NativeDatasets(survey, config, options.data)
    print(
        json.dumps(
            {
                "clips": len(survey.clips),
                "survey_clips_per_second": round(len(survey.clips) / survey_seconds, 1),
                "mels": compare(options.cache, native, config),
                "speed": measure(options, native, survey, config),
            },
            indent=1,
        )
    )


def compare(cache: Path, native: NativeDatasets, config: Config) -> dict[str, object]:
    """Return how far the mels of one epoch are from the cache's; every other field must be the same."""
    manifest = load_manifest(cache)
    errors: list[np.ndarray] = []
    clips = 0
    for bucket in range(manifest.bucket_count):
        if not manifest.split_records("train", bucket):
            continue
        cached = training_dataset(cache, manifest, batch_size=1, seed=0, data=config.data, bucket=bucket, epochs=1)
        for expected, found in zip(cached, native.training(bucket, EpochPlace(0, 1, epochs=1)), strict=True):
            for name in set(expected) - {"mel"}:
                np.testing.assert_array_equal(found[name], expected[name])
            frames = int(expected["mel_length"][0])
            pair = (batch["mel"][0, :frames].numpy().astype(np.float32) for batch in (expected, found))
            errors.append(np.abs(np.subtract(*pair)).ravel())
            clips += 1
    every = np.concatenate(errors)
    return {"clips": clips, "bins": every.size, "within_0.01": round(float(np.mean(every <= 0.01)), 6), "largest": float(every.max())}


def measure(options: argparse.Namespace, native: NativeDatasets, survey: Survey, config: Config) -> dict[str, dict[str, float]]:
    """Return the median speed of each path."""
    manifest = load_manifest(options.cache)
    paths: dict[str, Callable[[], Iterable[object]]] = {
        "native": lambda: native.training(0, EpochPlace(0, BATCH)),
        "numpy_function": lambda: librosa_batches([str(clip.path) for clip in survey.clips], config),
        "cache": lambda: training_dataset(options.cache, manifest, batch_size=BATCH, seed=0, data=config.data),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in paths}
    for _ in range(options.rounds):
        for name, make in paths.items():
            found[name].append(speed_of(make(), options.records))
    return {
        name: {
            "records_per_second": round(median(speed for speed, _ in speeds), 1),
            "cpu_ms_per_record": round(median(cost for _, cost in speeds), 3),
        }
        for name, speeds in found.items()
    }


def speed_of(batches: Iterable[object], records: int) -> tuple[float, float]:
    """Return records a second and CPU milliseconds a record, the first batches left out."""
    stream = iter(batches)
    for _ in range(4):
        next(stream)
    started, cpu = time.perf_counter(), time.process_time()
    for _ in range(records // BATCH):
        next(stream)
    made = records // BATCH * BATCH
    return made / (time.perf_counter() - started), 1_000 * (time.process_time() - cpu) / made


def librosa_batches(paths: list[str], config: Config) -> tf.data.Dataset:
    """Return padded mels made by Python inside the pipeline."""
    audio, frames = config.audio, config.limits.max_mel_frames

    def mel(path: bytes) -> np.ndarray:
        wave, rate = soundfile.read(path.decode(), dtype="float32")
        if rate != audio.sample_rate:
            wave = librosa.resample(wave, orig_sr=rate, target_sr=audio.sample_rate, res_type="soxr_hq")
        magnitudes = librosa.feature.melspectrogram(
            y=wave,
            sr=audio.sample_rate,
            n_fft=audio.fft_size,
            hop_length=audio.hop_samples,
            n_mels=audio.mel_bins,
            fmax=audio.max_hz,
            power=1.0,
        )
        log_mel = np.log(np.maximum(magnitudes.T, audio.floor)).astype(np.float16)[:frames]
        return np.pad(log_mel, ((0, frames - len(log_mel)), (0, 0)), constant_values=np.log(audio.floor))

    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat()
    made = dataset.map(lambda path: tf.numpy_function(mel, [path], tf.float16), num_parallel_calls=tf.data.AUTOTUNE)
    return made.batch(BATCH).prefetch(tf.data.AUTOTUNE).with_options(pipeline_options())


if __name__ == "__main__":
    main()

"""Compare training without a cache to training from the cache: difference of the mels, and speed.

    python benchmarks/native.py --data LJSpeech-1.1 --cache cache/ --set audio.trim_db=30
    python benchmarks/native.py --data LJSpeech-1.1 --rate 48000

The settings must be the cache's. With --rate the clips are resampled first, a third of them with two channels, and
preprocessed here. The baseline is librosa in a numpy_function; the three paths take turns. Speeds are records per
second, and CPU time per record, which other load on the machine affects less.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import soundfile

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.format.manifest import bucket_specs, load_manifest
from xtts_pipeline.cache.format.schema import Example, bucket_of
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import AudioConfig, Config
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.online import OnlineSource
from xtts_pipeline.data.source import Fields
from xtts_pipeline.data.survey import Survey, survey_corpus
from xtts_pipeline.perf.benchmark.baselines import BaselineClips, librosa_pipeline
from xtts_pipeline.perf.benchmark.clips import Clip, write_corpus

BATCH = 8


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--records", type=int, default=400, help="records of each path in a round")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of timing; 0 compares the mels only")
    parser.add_argument(
        "--rate", type=int, help="resample the corpus to this rate and make its cache in a temporary folder"
    )
    options = parser.parse_args()
    if (options.cache is None) == (options.rate is None):
        parser.error("one of --cache and --rate, the corpus's own cache or a rate at which both are made")
    config = load_config(overrides=options.overrides)
    with tempfile.TemporaryDirectory() as work:
        data, cache = options.data, options.cache
        if cache is None:
            data, cache = at_another_rate(data, Path(work) / "corpus", options.rate, config), Path(work) / "cache"
            preprocess(data, cache, options.overrides)
        print(json.dumps(hold_against(data, cache, config, options), indent=1))


def hold_against(data: Path, cache: Path, config: Config, options: argparse.Namespace) -> dict[str, object]:
    """Return the difference of the mels from the cache's, and the speed of each path."""
    started = time.perf_counter()
    survey = survey_corpus(index_corpora([read_corpus(data)], config), config, lambda _rows: None)
    survey_seconds = time.perf_counter() - started
    native = OnlineSource(data, survey, config)
    found: dict[str, object] = {
        "clips": len(survey.clips),
        "survey_clips_per_second": round(len(survey.clips) / survey_seconds, 1),
        "mels": compare(cache, native, config),
    }
    return {**found, "speed": measure(cache, native, survey, config, options)} if options.rounds else found


def compare(cache: Path, native: OnlineSource, config: Config) -> dict[str, object]:
    """Return how far the mels of both splits are from the cache's; every other field must be equal."""
    errors: list[np.ndarray] = []
    for expected, found in both_ways(cache, native, config):
        for name in set(expected) - {"mel"}:
            np.testing.assert_array_equal(found[name], expected[name])
        frames = int(expected["mel_length"][0])
        pair = (batch["mel"][0, :frames].numpy().astype(np.float32) for batch in (expected, found))
        errors.append(np.abs(np.subtract(*pair)).ravel())
    every = np.concatenate(errors)
    return {
        "clips": len(errors),
        "bins": every.size,
        "within_0.01": round(float(np.mean(every <= 0.01)), 6),
        "largest": float(every.max()),
    }


def both_ways(cache: Path, native: OnlineSource, config: Config) -> Iterator[tuple[Fields, Fields]]:
    """Yield every clip as a batch of one, from the cache and from its wave."""
    manifest = load_manifest(cache)
    cached = CachedSource(cache, manifest)
    for bucket in range(manifest.bucket_count):
        if clips := manifest.split_records("train", bucket):
            both = (source.training_dataset(source.order(config, bucket, 1)).take(clips) for source in (cached, native))
            yield from zip(*both, strict=True)
        if manifest.split_records("val", bucket):
            yield from zip(*(source.validation_dataset(bucket, 1) for source in (cached, native)), strict=True)


def measure(
    cache: Path, native: OnlineSource, survey: Survey, config: Config, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return the median speed of each path, with the clips of the largest shape."""
    manifest = load_manifest(cache)
    specs, nothing = bucket_specs(manifest), np.zeros((0, config.audio.mel_bins), np.float32)
    largest = len(specs) - 1
    clips = [
        Clip(Example(clip.row.id, clip.tokens, nothing), clip.path)
        for clip in survey.clips
        if bucket_of(specs, len(clip.tokens), clip.frames) == largest
    ]
    baseline = BaselineClips(clips, specs[largest], config.audio, BATCH)
    cached = CachedSource(cache, manifest)
    paths: dict[str, Callable[[], Iterable[object]]] = {
        "native": lambda: native.training_dataset(native.order(config, largest, BATCH)),
        "numpy_function": lambda: librosa_pipeline(baseline),
        "cache": lambda: cached.training_dataset(cached.order(config, largest, BATCH)),
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
    """Return records per second and CPU milliseconds per record, without the first batches."""
    stream = iter(batches)
    for _ in range(4):
        next(stream)
    started, cpu = time.perf_counter(), time.process_time()
    for _ in range(records // BATCH):
        next(stream)
    made = records // BATCH * BATCH
    return made / (time.perf_counter() - started), 1_000 * (time.process_time() - cpu) / made


def at_another_rate(data: Path, folder: Path, rate: int, config: Config) -> Path:
    """Write the corpus with its clips resampled to `rate`, every third with two channels, and return its folder."""
    corpus = read_corpus(data)
    audio = AudioConfig(sample_rate=rate, max_hz=rate / 2)
    waves = (
        (utterance.text, load_wave(corpus.root / utterance.audio, audio, config.limits))
        for utterance in corpus.utterances
    )
    for path in write_corpus(folder, waves, rate)[::3]:
        wave, _ = soundfile.read(path, dtype="float32")
        soundfile.write(path, np.stack([wave, 0.5 * wave], axis=1), rate, "PCM_16")
    return folder


def preprocess(data: Path, cache: Path, overrides: Sequence[str]) -> None:
    """Make the cache of a corpus with `xtts preprocess`."""
    settings = [part for override in overrides for part in ("--set", override)]
    command = [
        sys.executable,
        "-m",
        "xtts_pipeline",
        "preprocess",
        "--data",
        data,
        "--cache",
        cache,
        "--max-rejected",
        "100%",
        *settings,
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()

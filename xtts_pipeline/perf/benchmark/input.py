"""`xtts benchmark input`: records per second of the cache's pipeline and of its baselines."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, record_spec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.schedule import batch_sizes, bucket_order
from xtts_pipeline.perf.benchmark.baselines import BaselineClips, librosa_pipeline, native_pipeline, npy_pipeline
from xtts_pipeline.perf.benchmark.clips import Clip
from xtts_pipeline.perf.benchmark.results import SHARE, TENTHS, WHOLE, Benchmark, Column
from xtts_pipeline.perf.timing import in_turns, machine, measure_throughput, medians, paired_ratios
from xtts_pipeline.system.terminal import counted, duration_text

COLUMNS = (
    Column("records_per_second", "records/s", WHOLE),
    Column("std_over_mean", "std/mean", SHARE),
    Column("batch_ms", "ms a batch", TENTHS),
    Column("cpu_cores", "cores", TENTHS),
    Column("cpu_ms", "CPU ms a record", ".2f"),
)
OURS = "ours"
IN_MEMORY = "in memory"
# Enough for AUTOTUNE to settle and for buffers to fill.
WARM_UP_SHARE = 0.5

# The number of records in each batch, endlessly.
Batches = Iterator[int]


def measure_input(
    cache: Path,
    manifest: Manifest,
    clips: Sequence[Clip],
    config: Config,
    work: Path,
    *,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> Benchmark:
    """Measure every pipeline `rounds` times in turns, each time for `seconds` after a warm-up, and return the medians.

    Ours and reading alone read the cache; ours also from memory, if the config keeps its records there. The baselines
    read the clips' sound files, or .npy files of their mels. The page cache is warm after the first round for all.
    """
    batch_size = config.training.clips_per_batch
    given = BaselineClips(clips, record_spec(manifest), manifest.audio, batch_size)
    datasets = {
        "npy": npy_pipeline(given, work / "npy"),
        "native": native_pipeline(given),
        "librosa": librosa_pipeline(given),
    }
    is_kept, from_files = manifest.is_kept_in_memory(config.data), config.with_settings("data", cache_records=False)
    pipelines: dict[str, Callable[[], Batches]] = {
        "reading alone": lambda: reading_alone(cache, manifest, config),
        OURS: lambda: our_batches(cache, manifest, from_files),
        **({IN_MEMORY: lambda: our_batches(cache, manifest, config)} if is_kept else {}),
        **{name: partial(_batches_of, dataset, batch_size) for name, dataset in datasets.items()},
    }
    least = rounds * len(pipelines) * seconds * (1 + WARM_UP_SHARE)
    say(f"{duration_text(least)} or more, for {counted(rounds, 'round')} of {len(pipelines)} pipelines")
    measured = in_turns({name: partial(_measure, start, seconds) for name, start in pipelines.items()}, rounds, say)
    rates = {name: [figures["records_per_second"] for figures in found] for name, found in measured.items()}
    variants = {
        name: {**figures, "std_over_mean": float(np.std(rates[name]) / np.mean(rates[name]))}
        for name, figures in medians(measured).items()
    }
    spec = given.spec
    settings = {
        **machine(),
        "batch_size": batch_size,
        "shape": f"{spec.max_text_length} x {spec.max_mel_frames} x {spec.mel_bins}",
        "records": manifest.split_records("train"),
        "clips": len(clips),
        "rounds": rounds,
        "seconds": seconds,
    }
    ratios = paired_ratios(rates, [OURS, IN_MEMORY] if is_kept else [OURS])
    return Benchmark("input", COLUMNS, variants, ratios, settings, "records_per_second")


def our_batches(cache: Path, manifest: Manifest, config: Config) -> Batches:
    """Yield the records of each batch of training."""
    source = CachedSource(cache, manifest)
    signatures = bucket_signatures(source.identity(), source.specs, config.training)
    return (batch.mel.shape[0] for batch in source.training_batches(config, signatures))


def reading_alone(cache: Path, manifest: Manifest, config: Config) -> Batches:
    """Yield the records of batches of serialized records, neither parsed nor shuffled: the cost of reading alone."""
    sizes = batch_sizes(bucket_specs(manifest), config.training.clips_per_batch, config.training.accumulation_steps)
    batches = [manifest.split_records("train", bucket) // rows for bucket, rows in enumerate(sizes)]

    def stream(bucket: int, rows: int) -> Iterator[Any]:
        paths = [str(cache / name) for name in manifest.shard_names("train", bucket)]
        shards = tf.data.Dataset.from_tensor_slices(paths).repeat()
        read = shards.interleave(
            tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        return iter(read.batch(rows, drop_remainder=True).prefetch(tf.data.AUTOTUNE))

    streams = [stream(bucket, rows) if batches[bucket] else iter(()) for bucket, rows in enumerate(sizes)]
    order = bucket_order(batches, config.training.seed, 0)
    while True:
        for bucket in order:
            next(streams[bucket])
            yield sizes[bucket]


def _batches_of(dataset: tf.data.Dataset, rows: int) -> Batches:
    return (rows for _ in dataset)


def _measure(start: Callable[[], Batches], seconds: float) -> dict[str, float]:
    """Start a pipeline, warm it up, and return its figures."""
    measured = measure_throughput(start(), seconds, warm_up_seconds=seconds * WARM_UP_SHARE)
    return {
        "records_per_second": measured.records_per_second,
        "batch_ms": 1e3 * measured.seconds / measured.batches,
        "cpu_cores": measured.busy_cores,
        "cpu_ms": 1e3 * measured.cpu_seconds / measured.records,
    }

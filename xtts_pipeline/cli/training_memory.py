"""Whether a training fits into the memory that is there, and which batch size does: asked before TensorFlow is imported."""

from dataclasses import dataclass

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, record_spec
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.buckets import is_filled
from xtts_pipeline.errors import CacheError, ConfigError
from xtts_pipeline.system.machine import memory_limit_bytes
from xtts_pipeline.system.nvml import free_memory_bytes
from xtts_pipeline.system.runtime import has_gpu
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.monitoring.memory_estimate import MemoryEstimate, NetworkSizes, estimate_memory

# TensorFlow leaves as much of a recent GPU to the driver and to libraries.
GPU_RESERVED_BYTES = 1_800 << 20
# `auto` leaves room for what an estimate cannot know.
AUTO_SHARE = 0.85
# A multiple of it suits tensor cores, and a little more or less free memory makes no other batch.
ROUND_BATCH = 8
# Batches that the input pipeline holds beside the one in use: prefetched, and on their way.
BATCHES_AHEAD = 4


@dataclass(frozen=True)
class Available:
    """How much memory there is, and of what."""

    bytes: int
    where: str


def available_memory() -> Available | None:
    """Return the memory that a training can have: of the first GPU, without one of the machine; None for a GPU that cannot be asked."""
    if not has_gpu():
        return Available(memory_limit_bytes(), "memory")
    free = free_memory_bytes()
    return None if free is None else Available(max(free - GPU_RESERVED_BYTES, 0), "the GPU's memory")


def memory_estimate(manifest: Manifest, config: Config) -> MemoryEstimate:
    """Return what a training on the cache takes; its batch size may still be `auto`."""
    symbols = Tokenizer(manifest.symbols, config.text.blank).symbol_count
    sizes = NetworkSizes(record_spec(manifest), symbols, len(manifest.speakers), len(manifest.languages))
    return estimate_memory(
        config, sizes, bucket_specs(manifest), is_gpu=has_gpu(), data_bytes=_data_bytes(manifest, config)
    )


def check_memory(manifest: Manifest, config: Config, available: Available | None, shares: int = 1) -> tuple[int, str]:
    """Return the bytes that the training takes by the estimate, and a line that says so beside what there is.

    Where a batch is shared by several devices with a memory of their own, it is one of their `shares` that must fit.
    Raises ConfigError, with the batch size that would fit, if there is less. With `training.check_memory` off it passes, and with
    `training.autotune`, which measures.
    """
    training = config.training
    estimate = memory_estimate(manifest, config)
    rows = -(-training.clips_per_batch // (training.accumulation_steps * shares))
    needed = estimate.total_bytes(rows)
    batch, rest = rows * estimate.row_bytes, needed - rows * estimate.row_bytes
    text = f"about {_gigabytes(needed)} are needed ({_gigabytes(batch)} for the batch, {_gigabytes(rest)} for the rest)"
    if available is None:
        return needed, f"{text}; how much the GPU has cannot be asked"
    if needed > available.bytes and training.check_memory and not training.autotune:
        parts = training.accumulation_steps * shares
        fitting = _filled(manifest, estimate.most_rows(available.bytes) * parts, parts)
        remedy = _remedy(fitting, config)
        found = f"training.batch_size={training.batch_size}: {text}, but {_gigabytes(available.bytes)} of {available.where} are available"
        raise ConfigError(f"{found}; {remedy} (training.check_memory=false goes on)")
    return needed, f"{text}, {_gigabytes(available.bytes)} of {available.where} are available"


def choose_batch_size(manifest: Manifest, config: Config, available: Available | None, devices: int = 1) -> Config:
    """Return the settings with a number in the place of `training.batch_size: auto`: the largest batch that fits and that clips fill.

    Several `devices` share it alike: GPUs, each with as much memory as the first, or parts of the one memory that there is.
    Raises ConfigError if not even one clip fits, or if nobody can say how much memory there is; CacheError if no batch can be filled.
    """
    if config.training.batch_size != "auto":
        return config
    if available is None:
        raise ConfigError(
            "training.batch_size=auto: how much memory the GPU has cannot be asked; install nvidia-ml-py, or give a number"
        )
    estimate, parts = memory_estimate(manifest, config), config.training.accumulation_steps * devices
    usable = round(AUTO_SHARE * available.bytes)
    rows = estimate.most_rows(usable) // (1 if has_gpu() else devices)
    if not rows:
        needed = f"one clip of {_shape(record_spec(manifest))} needs about {_gigabytes(estimate.total_bytes(1))}"
        remedy = "choose a smaller model, or preprocess with lower limits"
        raise ConfigError(
            f"training.batch_size=auto: {needed}, but {_gigabytes(usable)} of {available.where} may be used; {remedy}"
        )
    # What is said of a cache without any clips is said where records are counted.
    batch_size = _filled(manifest, rows * parts, parts) if manifest.split_records("train") else parts
    if batch_size is None:
        raise CacheError(
            "training.batch_size=auto: a bucket has fewer clips than the smallest batch; preprocess with other data.buckets"
        )
    rounded = batch_size // (ROUND_BATCH * parts) * ROUND_BATCH * parts
    if rounded and is_filled(manifest, rounded, parts):
        batch_size = rounded
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_size": batch_size})})


def filled_batch_size(manifest: Manifest, most: int, parts: int) -> int | None:
    """Return the largest training.batch_size, at most `most`, at which every bucket with records fills a batch; None for none."""
    return next((size for size in range(most, 0, -parts) if is_filled(manifest, size, parts)), None)


def _filled(manifest: Manifest, most: int, parts: int) -> int | None:
    largest = manifest.split_records("train") // parts * parts
    return filled_batch_size(manifest, min(most, largest), parts)


def _remedy(fitting: int | None, config: Config) -> str:
    if fitting is None:
        return "choose a smaller model, or preprocess with lower limits"
    parts = -(-config.training.clips_per_batch // max(fitting // config.training.accumulation_steps, 1))
    return f"set training.batch_size={fitting} or auto, or keep it and set training.accumulation_steps={_divisor(config, parts)}"


def _divisor(config: Config, parts: int) -> int:
    """Return the least number of parts, at least so many, that the batch can be gone through in."""
    size = config.training.clips_per_batch
    return next(number for number in range(parts, size + 1) if size % number == 0)


def _data_bytes(manifest: Manifest, config: Config) -> int:
    """Return what the input pipeline holds: records that are kept or shuffled, and the batches ahead."""
    data, training = config.data, config.training
    specs = bucket_specs(manifest)
    rows = 1 if training.batch_size == "auto" else training.batch_size
    ahead = BATCHES_AHEAD * rows * _record_bytes(specs[-1])
    if manifest.is_kept_in_memory(data):
        return manifest.split_bytes("train") + ahead
    buffered = (
        min(data.shuffle_records, manifest.split_records("train", bucket)) * _record_bytes(spec)
        for bucket, spec in enumerate(specs)
    )
    return sum(buffered) + ahead


def _record_bytes(spec: RecordSpec) -> int:
    # float16 mels and int32 tokens; what else a record holds is no more than a name.
    return 2 * spec.max_mel_frames * spec.mel_bins + 4 * spec.max_text_length


def _shape(spec: RecordSpec) -> str:
    return f"{spec.max_text_length} x {spec.max_mel_frames}"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

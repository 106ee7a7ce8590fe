"""Check without TensorFlow whether a cache and a machine are large enough for a training, and choose the batch size.

The estimate of the memory itself is in monitoring/memory_estimate.py.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, record_spec
from xtts_pipeline.cache.format.padding import padding_advice, padding_share
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config, TrainingConfig, VocoderConfig
from xtts_pipeline.data.schedule import batch_parts, batch_sizes, is_filled, unfilled_buckets
from xtts_pipeline.errors import CacheError, ConfigError
from xtts_pipeline.model.architecture import NetworkSizes
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.machine import has_bfloat16_products, memory_limit_bytes
from xtts_pipeline.system.nvml import compute_capability, free_memory_bytes
from xtts_pipeline.system.runtime import has_gpu
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.state import NetworkKind
from xtts_pipeline.training.monitoring.memory_estimate import MemoryEstimate, estimate_memory

# GPU memory that TensorFlow leaves to the driver and to libraries.
GPU_RESERVED_BYTES = 1_800 << 20
# The first compute capability whose tensor cores multiply bfloat16.
BFLOAT16_FROM_CAPABILITY = (8, 0)
# `auto` uses this share of the memory, because the estimate is not exact.
AUTO_SHARE = 0.85
# `auto` rounds down to a multiple: tensor cores prefer it, and small changes of free memory do not change the batch.
ROUND_BATCH = 8
# Batches that the input pipeline holds in addition to the current one.
PIPELINE_BATCHES = 4


@dataclass(frozen=True)
class AvailableMemory:
    """The memory that a training may use, and the device that has it."""

    bytes: int
    where: str


def check_enough_records(cache: Path, manifest: Manifest, config: Config, shares: int = 1) -> None:
    """Raise CacheError if a bucket cannot fill one training batch, or if patience has no validation split.

    Raises ConfigError if the `shares` devices cannot split a batch equally. A bucket without training records is fine;
    the records of one with too few would never be trained on.
    """
    training, parts = config.training, batch_parts(config.training, shares)
    if not manifest.split_records("train"):
        raise CacheError(f"{cache}: 0 training records; preprocess a larger corpus")
    for bucket, found, needed in unfilled_buckets(manifest, training.clips_per_batch, parts):
        smaller = _largest_trainable_batch(manifest, training.clips_per_batch, parts)
        if smaller is not None:
            # A batch has at least one clip in each part.
            remedy = f"set training.batch_size={smaller}"
            remedy += " or less" if smaller > parts else ", or preprocess a larger corpus"
        else:
            remedy = "preprocess with other data.buckets" if manifest.buckets else "preprocess a larger corpus"
            if parts > 1:
                fewer = "training.accumulation_steps" if shares == 1 else "training.accumulation_steps or --devices"
                remedy = f"set a smaller {fewer}, or {remedy}"
        where = f"bucket {bucket} {list(manifest.buckets[bucket])}: " if manifest.buckets else ""
        rows = f", which is {counted(needed, 'row')} in this bucket" if manifest.buckets else ""
        records = counted(found, "training record")
        raise CacheError(f"{cache}: {where}{records}, but training.batch_size={training.batch_size}{rows}; {remedy}")
    if training.patience is not None and not manifest.split_records("val"):
        raise CacheError(
            f"{cache}: no validation records, but training.patience={training.patience} waits for their figures; "
            "leave it out, or preprocess with cache.validation_share over 0"
        )


def describe_batches(manifest: Manifest, config: Config, shares: int = 1) -> list[str]:
    """Return a line with the shape of each bucket's batches and the share of padding, and advice where it is much.

    `shares` devices split a batch.
    """
    specs = bucket_specs(manifest)
    sizes = batch_sizes(specs, config.training.clips_per_batch, config.training.accumulation_steps * shares)
    shapes = ", ".join(f"{rows} x {spec.shape_text}" for rows, spec in zip(sizes, specs, strict=True))
    described = f"batches (clips x tokens x frames): {shapes}; {padding_share(manifest):.0%} of the frames are padding"
    # A cache does not tell whether its buckets are the best ones, those of `auto`.
    return [described] if manifest.buckets else [described, *padding_advice(manifest, config)]


def slow_settings(training: TrainingConfig) -> list[str]:
    """Return a line for each setting that makes a step slower on this machine than it need be."""
    if training.debug_eager:
        return [
            "training.debug_eager: the step runs uncompiled, operation by operation, many times slower; for a debugger"
        ]
    if training.precision == "bfloat16" and not has_gpu() and not _is_bfloat16_fast(training):
        cause = "only XLA is faster with it" if has_bfloat16_products() else "this processor has no instructions for it"
        return [f"warning: training.precision: bfloat16 saves no time, since {cause}; set training.precision=float32"]
    return []


def idle_settings(config: Config, network: NetworkKind, *, is_cached: bool) -> list[str]:
    """Return a line for each setting that is on and does nothing for this network, or for a cache."""
    if network == "vocoder":
        return ["warning: augmentation changes the clips of `xtts train` alone"] if config.augmentation.is_on else []
    lines = []
    # A run that continues has all of them set.
    if 0 < len(config.vocoder.model_fields_set) < len(VocoderConfig.model_fields):
        lines += ["warning: this trains an acoustic model; settings of `vocoder` are for `xtts train-vocoder`"]
    if config.training.voice_change and not config.model.voice_latents:
        lines += ["warning: training.voice_change does nothing without a voice encoder (model.voice_latents=0)"]
    if config.data.cache_features and is_cached:
        lines += ["warning: data.cache_features does nothing for a cache; data.cache_records keeps its records"]
    return lines


def choose_precision(config: Config) -> Config:
    """Return the settings with `training.precision: auto` replaced by bfloat16 where it is faster, else by float32."""
    if config.training.precision != "auto":
        return config
    return config.with_settings("training", precision="bfloat16" if _is_bfloat16_fast(config.training) else "float32")


def describe_precision(training: TrainingConfig) -> str:
    """Return a line with the type of matrix products."""
    if training.precision == "bfloat16" and _is_bfloat16_fast(training):
        return "precision: matrix products in bfloat16 (faster than float32 here)"
    is_unknown = training.precision == "float32" and has_gpu() and compute_capability() is None
    advice = f"; whether bfloat16 is faster cannot be asked: {install_command('gpu')}" if is_unknown else ""
    return f"precision: matrix products in {training.product_type}{advice}"


def _is_bfloat16_fast(training: TrainingConfig) -> bool:
    if training.debug_eager:
        return False
    if has_gpu():
        return (compute_capability() or (0, 0)) >= BFLOAT16_FROM_CAPABILITY
    return training.jit_compile and has_bfloat16_products()


def available_memory() -> AvailableMemory | None:
    """Return the free memory of the first GPU, or the machine's memory without one; None if the GPU does not tell."""
    if not has_gpu():
        return AvailableMemory(memory_limit_bytes(), "memory")
    free = free_memory_bytes()
    return None if free is None else AvailableMemory(max(free - GPU_RESERVED_BYTES, 0), "the GPU's memory")


def training_memory(manifest: Manifest, config: Config) -> MemoryEstimate:
    """Return the estimated memory of a training on the cache. Its batch size may still be `auto`."""
    symbols = Tokenizer(manifest.symbols, config.text.blank).symbol_count
    sizes = NetworkSizes(record_spec(manifest), symbols, len(manifest.speakers), len(manifest.languages))
    is_gpu = has_gpu()
    estimate = estimate_memory(
        config, sizes, bucket_specs(manifest), is_gpu=is_gpu, data_bytes=_data_bytes(manifest, config)
    )
    if is_gpu:
        return estimate
    # Batches that wait in memory have the rows of all parts.
    asked = 0 if config.data.prefetch_buffer_size == "auto" else config.data.prefetch_buffer_size
    waiting = max(PIPELINE_BATCHES, asked) * config.training.accumulation_steps * _record_bytes(record_spec(manifest))
    return replace(estimate, row_bytes=estimate.row_bytes + waiting)


def check_memory(
    manifest: Manifest, config: Config, available: AvailableMemory | None, shares: int = 1, devices: int = 1
) -> tuple[int, str]:
    """Return the estimated bytes of the training, and a line that compares them with the available memory.

    A batch that `devices` split must fit in `shares` parts, each in memory of its own: 1 if they share the memory.
    Raises ConfigError with a batch size that fits, unless `training.check_memory` is off or `training.autotune`
    measures the memory instead.
    """
    training = config.training
    estimate = training_memory(manifest, config)
    rows = -(-training.clips_per_batch // (training.accumulation_steps * shares))
    needed = estimate.total_bytes(rows)
    batch, rest = rows * estimate.row_bytes, needed - rows * estimate.row_bytes
    text = f"about {_gigabytes(needed)} needed"
    if available is None:
        return needed, f"{text}; how much the GPU has cannot be asked: {install_command('gpu')}"
    room = f"{_gigabytes(available.bytes)} of {available.where} available"
    if needed > available.bytes and training.check_memory and not training.autotune:
        text += f" ({_gigabytes(batch)} for the batch, {_gigabytes(rest)} for the rest)"
        most = estimate.most_rows(available.bytes) * training.accumulation_steps * shares
        fitting = _largest_trainable_batch(manifest, most, training.accumulation_steps * devices)
        remedy = _remedy(fitting, _parts_that_fit(manifest, config, available, shares, devices))
        raise ConfigError(
            f"training.batch_size={training.batch_size}: {text}, but {room}; {remedy} "
            "(training.check_memory=false goes on)"
        )
    return needed, f"{text}, {room}"


def choose_batch_size(
    manifest: Manifest, config: Config, available: AvailableMemory | None, devices: int = 1
) -> Config:
    """Return the settings with `training.batch_size: auto` replaced by the largest batch that fits and that clips fill.

    Several `devices` share the batch equally: GPUs with as much memory as the first, or parts of the machine's memory.
    Raises ConfigError if not even one clip fits or the memory is unknown, CacheError if no batch can be filled.
    """
    if config.training.batch_size != "auto":
        return config
    if available is None:
        raise ConfigError(
            "training.batch_size=auto: how much memory the GPU has cannot be asked; "
            f"{install_command('gpu')}, or give a number"
        )
    estimate, parts = training_memory(manifest, config), config.training.accumulation_steps * devices
    usable = round(AUTO_SHARE * available.bytes)
    rows = estimate.most_rows(usable) // (1 if has_gpu() else devices)
    if not rows:
        spec = record_spec(manifest)
        needed = f"one clip of {spec.shape_text} needs about {_gigabytes(estimate.total_bytes(1))}"
        remedy = "choose a smaller model, or preprocess with lower limits"
        raise ConfigError(
            f"training.batch_size=auto: {needed}, but {_gigabytes(usable)} of {available.where} may be used; {remedy}"
        )
    # check_enough_records reports a cache without clips.
    size = _largest_trainable_batch(manifest, rows * parts, parts) if manifest.split_records("train") else parts
    if size is None:
        raise CacheError(
            "training.batch_size=auto: a bucket has fewer clips than the smallest batch; "
            "preprocess with other data.buckets"
        )
    rounded = size // (ROUND_BATCH * parts) * ROUND_BATCH * parts
    if rounded and is_filled(manifest, rounded, parts):
        size = rounded
    return config.with_settings("training", batch_size=size)


def _largest_trainable_batch(manifest: Manifest, most: int, parts: int) -> int | None:
    """Return the largest multiple of `parts` up to `most` at which each bucket with records fills a batch, or None."""
    largest = min(most, manifest.split_records("train")) // parts * parts
    return next((size for size in range(largest, 0, -parts) if is_filled(manifest, size, parts)), None)


def _parts_that_fit(
    manifest: Manifest, config: Config, available: AvailableMemory, shares: int, devices: int
) -> int | None:
    """Return the least number of accumulation steps with which the batch fits, or None.

    Accumulation takes memory of its own: two more gradients.
    """
    rows = config.training.clips_per_batch
    for parts in range(config.training.accumulation_steps + 1, rows // devices + 1):
        if rows % (parts * devices) == 0:
            estimate = training_memory(manifest, config.with_settings("training", accumulation_steps=parts))
            if estimate.total_bytes(rows // (parts * shares)) <= available.bytes:
                return parts
    return None


def _remedy(fitting: int | None, parts: int | None) -> str:
    split = "" if parts is None else f"keep it and set training.accumulation_steps={parts}"
    if fitting is None:
        return split or "choose a smaller model, or preprocess with lower limits"
    return f"set training.batch_size={fitting} or auto{f', or {split}' if split else ''}"


def _data_bytes(manifest: Manifest, config: Config) -> int:
    """Return the bytes of the records that the input pipeline holds: all of them, or those of its shuffle buffers."""
    data = config.data
    if data.cache_features:
        return manifest.split_bytes("train") + manifest.split_bytes("val")
    if manifest.is_kept_in_memory(data):
        return manifest.split_bytes("train")
    return sum(
        min(data.shuffle_records, manifest.split_records("train", bucket)) * _record_bytes(spec)
        for bucket, spec in enumerate(bucket_specs(manifest))
    )


def _record_bytes(spec: RecordSpec) -> int:
    # float16 mels and int32 tokens; the other fields are negligible.
    return 2 * spec.max_mel_frames * spec.mel_bins + 4 * spec.max_text_length


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"

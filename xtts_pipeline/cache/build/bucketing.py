"""Choose the buckets of `data.buckets: auto`: those of the existing cache, or those with the least padding.

Reads texts and the headers of sound files; decodes nothing.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xtts_pipeline.audio.lengths import mel_frame_count
from xtts_pipeline.audio.load import read_sound_length
from xtts_pipeline.cache.build.folder import existing_shards
from xtts_pipeline.cache.build.plan import CorpusIndex, PlannedRow
from xtts_pipeline.cache.build.receipts import load_receipt
from xtts_pipeline.cache.build.shapes import Shape, auto_shapes
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import AudioConfig, Bucket, Config, LimitsConfig
from xtts_pipeline.errors import AudioError, CacheError, TextError
from xtts_pipeline.text.tokens import Tokenizer

HEADER_THREADS = 8


@dataclass(frozen=True)
class RowLengths:
    """A clip's lengths. Tokens are exact; `frames` are untrimmed, so `audio.trim_db` can make them fewer."""

    seconds: float
    frames: int
    tokens: int


def resolve_buckets(config: Config, folder: Path, index: CorpusIndex, *, reshard: bool) -> Config:
    """Return the settings with `auto` buckets replaced by pairs; other settings are unchanged.

    The buckets of the finished or unfinished cache in `folder` are kept unless `reshard`, so that reruns stay
    incremental.
    """
    if config.data.buckets != "auto":
        return config
    kept = () if reshard else _buckets_in(folder, config.limits)
    buckets = kept or _best_buckets(index, config)
    return config.model_copy(update={"data": config.data.model_copy(update={"buckets": buckets})})


def _buckets_in(folder: Path, limits: LimitsConfig) -> tuple[Bucket, ...]:
    """Return the buckets in the manifest or in a receipt of the folder; none if they have other limits."""
    if not folder.is_dir():
        return ()
    try:
        buckets = load_manifest(folder).buckets
    except CacheError:
        receipts = (load_receipt(folder, name) for name in existing_shards(folder))
        buckets = next((receipt.buckets for receipt in receipts if receipt is not None), ())
    return buckets if buckets and buckets[-1] == (limits.max_text_length, limits.max_mel_frames) else ()


def _best_buckets(index: CorpusIndex, config: Config) -> tuple[Bucket, ...]:
    """Return the pairs, the limits last, with the least padding by the lengths known before decoding."""
    largest = Shape(config.limits.max_text_length, config.limits.max_mel_frames)
    measured = [lengths for lengths in measure_rows(index, config) if lengths is not None]
    tokens = np.array([lengths.tokens for lengths in measured], np.int64)
    frames = np.array([lengths.frames for lengths in measured], np.int64)
    return tuple((shape.max_text_length, shape.max_mel_frames) for shape in auto_shapes(largest, tokens, frames))


def measure_rows(index: CorpusIndex, config: Config) -> list[RowLengths | None]:
    """Return the lengths of each row; None if its text, file or header cannot be used."""
    tokenizer = Tokenizer(index.symbols, config.text.blank)

    def measure(row: PlannedRow) -> RowLengths | None:
        try:
            tokens = len(tokenizer.encode(row.text))
        except TextError:
            return None
        sound = _header_lengths(index.roots[row.corpus] / row.audio, config.audio)
        return None if sound is None else RowLengths(*sound, tokens)

    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        return list(pool.map(measure, index.rows))


def _header_lengths(path: Path, audio: AudioConfig) -> tuple[float, int] | None:
    """Return a clip's seconds and untrimmed frames by its header; None without a readable header or samples."""
    try:
        samples, rate = read_sound_length(path)
    except AudioError:
        return None
    if samples <= 0:
        return None
    return samples / rate, mel_frame_count(samples, rate, audio)

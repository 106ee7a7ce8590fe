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
from xtts_pipeline.cache.build.plan import CorpusIndex
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.receipts import load_receipt, source_stat
from xtts_pipeline.cache.build.shapes import Shape, auto_shapes
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import AudioConfig, Bucket, Config, LimitsConfig
from xtts_pipeline.errors import AudioError, CacheError, Reason, TextError
from xtts_pipeline.text.tokens import Tokenizer, check_text_length

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
    return config.with_settings("data", buckets=buckets)


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
    measured = [lengths for lengths in judge_rows(index, config) if isinstance(lengths, RowLengths)]
    tokens = np.array([lengths.tokens for lengths in measured], np.int64)
    frames = np.array([lengths.frames for lengths in measured], np.int64)
    return tuple((shape.max_text_length, shape.max_mel_frames) for shape in auto_shapes(largest, tokens, frames))


def judge_rows(index: CorpusIndex, config: Config, limits: LimitsConfig | None = None) -> list[RowLengths | Reason]:
    """Return each row's lengths by its text and header, or why a build would reject it.

    Without `limits` a row is rejected only if its text, file or header cannot be used.
    """
    tokenizer = Tokenizer(index.symbols, config.text.blank)

    def judge(row: PlannedRow) -> RowLengths | Reason:
        try:
            tokens = len(tokenizer.encode(row.text))
            if limits is not None:
                check_text_length(tokens, limits, config.text)
        except TextError as error:
            return error.reason
        lengths = _read_lengths(index.roots[row.corpus] / row.audio, tokens, config.audio)
        excess = _excess(lengths, limits, config.audio) if limits and isinstance(lengths, RowLengths) else None
        return excess or lengths

    with ThreadPoolExecutor(HEADER_THREADS) as pool:
        return list(pool.map(judge, index.rows))


def _read_lengths(path: Path, tokens: int, audio: AudioConfig) -> RowLengths | Reason:
    if source_stat(path) is None:  # opening a pipe would block
        return Reason.AUDIO_UNREADABLE if path.exists() else Reason.AUDIO_MISSING
    try:
        samples, rate = read_sound_length(path)
    except AudioError as error:
        return error.reason
    if samples <= 0:
        return Reason.AUDIO_EMPTY
    return RowLengths(samples / rate, mel_frame_count(samples, rate, audio), tokens)


def _excess(lengths: RowLengths, limits: LimitsConfig, audio: AudioConfig) -> Reason | None:
    if not limits.min_seconds <= lengths.seconds <= limits.max_seconds:
        return Reason.AUDIO_TOO_LONG if lengths.seconds > limits.max_seconds else Reason.AUDIO_TOO_SHORT
    # The effect of trimming is known only after decoding.
    is_too_long = lengths.frames > limits.max_mel_frames and audio.trim_db is None
    return Reason.MEL_TOO_LONG if is_too_long else None

"""Choose the buckets of `data.buckets: auto`: those of the existing cache, or those with the least padding.

Reads texts and the headers of sound files; decodes nothing.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.audio.lengths import mel_frame_count
from xtts_pipeline.audio.load import check_seconds, read_sound_length
from xtts_pipeline.cache.build.folder import existing_shards
from xtts_pipeline.cache.build.plan import CorpusIndex, reading_order
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.receipts import load_receipt, source_stat
from xtts_pipeline.cache.build.shapes import auto_buckets
from xtts_pipeline.cache.build.workers import check_mel_length, check_source
from xtts_pipeline.cache.format.manifest import bucket_specs, find_manifest, fingerprint
from xtts_pipeline.cache.format.schema import bucket_of
from xtts_pipeline.config.schema import AudioConfig, Bucket, Config, LimitsConfig
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import AudioError, Reason, RowError
from xtts_pipeline.system.stderr import silent_decoder
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
    incremental. Its one shape is kept unless the settings name `auto`.
    """
    if config.data.buckets != "auto":
        return config
    one_shape = config.with_settings("data", buckets=None)
    kept = None if reshard else _buckets_in(folder, config.limits, fingerprint(one_shape, index.symbols))
    if kept is None or (not kept and config.data.are_buckets_given):
        return config.with_settings("data", buckets=_best_buckets(index, config))
    return config.with_settings("data", buckets=kept) if kept else one_shape


def _buckets_in(folder: Path, limits: LimitsConfig, one_shape: str) -> tuple[Bucket, ...] | None:
    """Return the buckets in the manifest or in the first receipt that fits: () for one shape, None if limits differ.

    A receipt of one shape tells its limits by its fingerprint alone, which must be `one_shape`.
    """
    if not folder.is_dir():
        return None
    largest = (limits.max_text_length, limits.max_mel_frames)
    if (manifest := find_manifest(folder)) is None:
        receipts = (load_receipt(folder, name) for name in existing_shards(folder))
        for receipt in filter(None, receipts):
            # Those of an interrupted build with other settings tell nothing.
            if receipt.fingerprint == one_shape or (receipt.buckets and receipt.buckets[-1] == largest):
                return receipt.buckets
        return None
    return manifest.buckets if (manifest.limits.max_text_length, manifest.limits.max_mel_frames) == largest else None


def _best_buckets(index: CorpusIndex, config: Config) -> tuple[Bucket, ...]:
    """Return the pairs, the limits last, with the least padding by the lengths known before decoding."""
    measured = [lengths for lengths in judge_rows(index, config) if isinstance(lengths, RowLengths)]
    return auto_buckets(config.limits, [each.tokens for each in measured], [each.frames for each in measured])


def buckets_of_rows(index: CorpusIndex, config: Config, verdicts: Sequence[RowLengths | Rejection]) -> dict[str, int]:
    """Return the bucket of each row that a build would keep, by the verdicts of `judge_rows`."""
    specs = bucket_specs(config)
    found = {
        row.id: bucket_of(specs, verdict.tokens, verdict.frames)
        for row, verdict in zip(index.rows, verdicts, strict=True)
        if isinstance(verdict, RowLengths)
    }
    return {id: bucket for id, bucket in found.items() if bucket is not None}


def judge_rows(index: CorpusIndex, config: Config, limits: LimitsConfig | None = None) -> list[RowLengths | Rejection]:
    """Return each row's lengths by its text and header, or why a build would reject it.

    Without `limits` a row is rejected only if its text, file or header cannot be used.
    """
    tokenizer = Tokenizer(index.symbols, config.text.blank)

    def judge(row: PlannedRow) -> RowLengths | Rejection:
        try:
            tokens = len(tokenizer.encode(row.text))
            if limits is not None:
                check_text_length(tokens, limits, config.text)
            lengths = _read_lengths(index.roots[row.corpus] / row.audio, tokens, config.audio, row.audio)
            if limits is not None:
                _check_limits(lengths, limits, config.audio, row.audio)
        except RowError as error:
            return Rejection(row.id, row.where, error.reason, error.detail)
        return lengths

    with silent_decoder(), ThreadPoolExecutor(HEADER_THREADS) as pool:
        return list(pool.map(judge, index.rows))


def rejections_of(index: CorpusIndex, verdicts: Sequence[RowLengths | Rejection]) -> list[Rejection]:
    """Return the rejections of the index and of the verdicts of `judge_rows`, in reading order."""
    rejected = [
        (row.corpus, verdict)
        for row, verdict in zip(index.rows, verdicts, strict=True)
        if isinstance(verdict, Rejection)
    ]
    return [rejection for _, rejection in sorted([*index.rejections, *rejected], key=reading_order)]


def _read_lengths(path: Path, tokens: int, audio: AudioConfig, name: str) -> RowLengths:
    check_source(path, source_stat(path), name)  # opening a pipe would block
    try:
        samples, rate = read_sound_length(path)
    except AudioError as error:
        raise AudioError(error.reason, f"{name}: {error.detail}") from None
    if samples <= 0:
        raise AudioError(Reason.AUDIO_EMPTY, f"{name}: the header promises no samples")
    return RowLengths(samples / rate, mel_frame_count(samples, rate, audio), tokens)


def _check_limits(lengths: RowLengths, limits: LimitsConfig, audio: AudioConfig, name: str) -> None:
    try:
        check_seconds(lengths.seconds, limits)
    except AudioError as error:
        raise AudioError(error.reason, f"{name}: {error.detail}") from None
    # The effect of trimming is known only after decoding.
    if audio.trim_db is None:
        check_mel_length(lengths.frames, limits, name)

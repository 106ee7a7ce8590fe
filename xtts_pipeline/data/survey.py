"""Check each row of a corpus as preprocessing does, and plan the cache's splits and shards without writing them.

Each clip is read once, before training. Rejections, splits and shards equal those of the cache. NumPy only.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from xtts_pipeline.audio.lengths import mel_frame_count, resampled_length
from xtts_pipeline.audio.load import decode_clip, decode_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.audio.wav_header import LEAST_UNKNOWN_BYTES, WavHeader, read_wav_header
from xtts_pipeline.cache.build.bucketing import resolve_buckets
from xtts_pipeline.cache.build.plan import CorpusIndex, choose_validation_row, lay_out, plan_shards, reading_order
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.publish import manifest_of
from xtts_pipeline.cache.build.receipts import source_stat
from xtts_pipeline.cache.build.workers import check_mel_length, read_source
from xtts_pipeline.cache.format.example import empty_record
from xtts_pipeline.cache.format.manifest import (
    REJECTED_NAME,
    UTTERANCES_NAME,
    FileEntry,
    Manifest,
    ShardEntry,
    bucket_specs,
)
from xtts_pipeline.cache.format.schema import RecordSpec, bucket_of
from xtts_pipeline.cache.format.tfrecord import FRAME_BYTES
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import AudioError, ConfigError, CorpusError, Reason, RowError
from xtts_pipeline.text.tokens import Tokenizer, check_text_length

NO_CHECKSUM = "0" * 32  # placeholder for a file that is never written
_READ_THREADS = 8


@dataclass(frozen=True)
class SurveyedClip:
    """An accepted clip; its lengths equal the cache's.

    header: the file up to its samples, with both sizes zeroed. block_bytes: those of a sample of all channels. end: the
    byte of the file after its samples.
    """

    row: PlannedRow
    path: Path
    tokens: np.ndarray
    header: bytes
    block_bytes: int
    end: int
    sample_rate: int
    seconds: float
    frames: int


@dataclass(frozen=True)
class Survey:
    """The result of a survey: the input of online training.

    `manifest` equals the cache's, except that its files have no checksums and predicted sizes. `clips` are in the order
    of its shards, `rejections` in the order of the rows.
    """

    manifest: Manifest
    clips: tuple[SurveyedClip, ...]
    rejections: tuple[Rejection, ...]


def check_settings(config: Config) -> None:
    """Raise ConfigError for a setting that the online path does not support."""
    if config.audio.normalize == "lufs":
        raise ConfigError(
            "audio.normalize: found lufs, expected none, peak or rms with --data; "
            "preprocess, and train with --cache instead"
        )
    if config.data.cache_features and config.augmentation.is_on:
        raise ConfigError(
            "data.cache_features: found true with augmentation, which changes every clip in each epoch; "
            "set data.cache_features=false"
        )


def survey_corpus(index: CorpusIndex, config: Config, progress: Callable[[int], object]) -> Survey:
    """Read and check each clip, then plan the shards of the accepted ones; calls `progress(1)` for each row.

    Raises CorpusError for sound that is not 16-bit PCM WAV or if all rows are rejected, ConfigError as `check_settings`
    does.
    """
    check_settings(config)
    config = resolve_buckets(config, index.roots[0], index, reshard=True)
    tokenizer = Tokenizer(index.symbols, config.text.blank)

    def judge(row: PlannedRow) -> SurveyedClip | RowError:
        try:
            return _clip_of(row, index.roots[row.corpus] / row.audio, tokenizer, config)
        except RowError as error:
            return error

    clips: dict[str, SurveyedClip] = {}
    rejections = list(index.rejections)
    with ThreadPoolExecutor(_READ_THREADS) as threads:
        try:
            for row, verdict in zip(index.rows, threads.map(judge, index.rows), strict=True):
                progress(1)
                if isinstance(verdict, SurveyedClip):
                    clips[row.id] = verdict
                else:
                    rejections.append((row.corpus, Rejection(row.id, row.where, verdict.reason, verdict.detail)))
        finally:
            threads.shutdown(cancel_futures=True)
    rejections.sort(key=reading_order)
    if not clips:
        first = rejections[0][1]
        found = f"none of its {len(rejections)} rows can be used"
        raise CorpusError(f"{index.roots[0]}: {found}; the first is {first.id}, {first.where}: {first.detail}")
    return _lay_out(index, config, clips, tuple(rejection for _, rejection in rejections))


def _clip_of(row: PlannedRow, path: Path, tokenizer: Tokenizer, config: Config) -> SurveyedClip:
    """Return the row's clip, after the checks of a preprocessing worker in their order. Raises RowError if rejected."""
    audio, limits, name = config.audio, config.limits, row.audio
    tokens = tokenizer.encode(row.text)
    check_text_length(len(tokens), limits, config.text)
    data = read_source(path, source_stat(path), limits, name)
    decoded = decode_clip(data, limits, name)
    header = read_wav_header(data)
    if header is None or not header.is_plain_16_bit or _has_unknown_size(data, header):
        found, remedy = _describe(data, header), "convert it, or use xtts preprocess, which reads it"
        raise CorpusError(f"{path}: found {found}, expected 16-bit PCM WAV for --data; {remedy}")
    samples = resampled_length(len(decoded.wave), decoded.sample_rate, audio.sample_rate)
    if samples == 0:
        raise AudioError(Reason.AUDIO_TOO_SHORT, f"{name}: under one sample at audio.sample_rate={audio.sample_rate}")
    if audio.trim_db is None:
        frames = mel_frame_count(len(decoded.wave), decoded.sample_rate, audio)
    else:  # the length after trimming is known from the frames alone
        frames = len(wave_to_mel(decode_wave(data, audio, limits, name), audio))
    check_mel_length(frames, limits, name)
    start = bytearray(data[: header.data_offset])
    start[4:8] = start[-4:] = bytes(4)
    end = header.data_offset + header.data_bytes // header.block_bytes * header.block_bytes
    seconds = round(samples / audio.sample_rate, 6)
    about = bytes(start), header.block_bytes, end, header.sample_rate
    return SurveyedClip(row, path, tokens, *about, seconds, frames)


def _has_unknown_size(data: bytes, header: WavHeader) -> bool:
    return int.from_bytes(data[header.data_offset - 4 : header.data_offset], "little") >= LEAST_UNKNOWN_BYTES


def _describe(data: bytes, header: WavHeader | None) -> str:
    """Return the kind of a sound file, from its first bytes."""
    if header is None:
        kinds = {b"fLaC": "FLAC", b"OggS": "Ogg", b"RIFF": "a RIFF file", b"ID3": "MP3"}
        return next((kind for magic, kind in kinds.items() if data.startswith(magic)), "a sound file of another kind")
    if header.is_plain_16_bit:
        return "a WAV whose header does not say its length"
    return f"a WAV of {header.bits} bits in format {header.format_tag:#x}"


def _lay_out(
    index: CorpusIndex, config: Config, clips: dict[str, SurveyedClip], rejections: tuple[Rejection, ...]
) -> Survey:
    rejected = {row.id for row in index.rows} - set(clips)
    plan = plan_shards(index, config.cache, {}, None, reshard=False)
    layout = lay_out(index, plan, choose_validation_row(index, config.cache, rejected))
    specs = bucket_specs(config)
    shards: list[ShardEntry] = []
    ordered: list[SurveyedClip] = []
    for name, rows in layout.items():
        kept = [clips[row.id] for row in rows if row.id in clips]
        for bucket, file in enumerate(name.files(len(specs))):
            members = [clip for clip in kept if bucket_of(specs, len(clip.tokens), clip.frames) == bucket]
            size = _predicted_bytes(members, specs[bucket])
            shards.append(
                ShardEntry(file, name.split, len(members), size, NO_CHECKSUM, bucket if len(specs) > 1 else None)
            )
            ordered += members
    lengths: dict[str, Sequence[float]] = {
        "seconds": [clip.seconds for clip in ordered],
        "frames": [clip.frames for clip in ordered],
        "tokens": [len(clip.tokens) for clip in ordered],
    }
    # The listings are not written. A manifest has the bytes of an object for each of their lines.
    lines = {UTTERANCES_NAME: len(ordered), REJECTED_NAME: len(rejections)}
    files = {name: FileEntry(count * len("{}\n"), NO_CHECKSUM) for name, count in lines.items()}
    waves = [FileEntry(0, NO_CHECKSUM)] * len(shards) if config.cache.store_waves else []
    return Survey(manifest_of(index, config, shards, lengths, rejections, files, waves), tuple(ordered), rejections)


def _predicted_bytes(clips: Sequence[SurveyedClip], spec: RecordSpec) -> int:
    record_bytes = FRAME_BYTES + len(empty_record(spec))
    return sum(record_bytes + len(clip.row.id.encode()) for clip in clips)

"""What `xtts evaluate` holds speech against: a split's utterances, their true frames from the cache, their true waves from the corpus."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import (
    UTTERANCES_NAME,
    Manifest,
    config_differences,
    file_checksum,
    record_spec,
)
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cache.format.shards import digest_of
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.errors import CacheError, CorpusError

if TYPE_CHECKING:
    from xtts_pipeline.training.checkpoints.files import Checkpoint

_SHOWN_DIFFERENCES = 3


def split_entries(cache: Path, manifest: Manifest, split: str, limit: int | None) -> list[UtteranceEntry]:
    """Return a split's utterances in the order of their shards' files, `limit` of them where given.

    Those are the first by shard and hash, whatever their bucket: a fair sample. Raises CacheError if there is none or a line is malformed.
    """
    path = cache / UTTERANCES_NAME
    shards = set(manifest.shard_names(split))
    entries = []
    for number, entry in enumerate(read_utterances(cache), 1):
        if entry.split != split:
            continue
        if entry.shard not in shards:
            raise CacheError(
                f"{path}:{number}: names {entry.shard!r}, no {split} shard of the manifest; run xtts verify-cache"
            )
        entries.append(entry)
    if not entries:
        held = ", ".join(f"{name} {manifest.split_records(name)}" for name in SPLITS)
        raise CacheError(f"{cache}: no utterance in the {split} split, it holds {held}; choose another --split")
    # A bucket's number, the end of a file's name, goes by lengths: ordered by it, the first ones would be short.
    entries.sort(key=lambda entry: (entry.shard.partition("-bucket")[0], digest_of(manifest.cache.seed, entry.id)))
    return sorted(entries[:limit], key=lambda entry: (entry.shard, entry.position))


def read_true_mels(
    cache: Path, manifest: Manifest, entries: Sequence[UtteranceEntry]
) -> Iterator[tuple[UtteranceEntry, np.ndarray]]:
    """Yield each entry with its mel, float32 [frames, mel_bins]; the entries are as `split_entries` orders them.

    Raises CacheError if a record is damaged, missing, or another utterance's.
    """
    for shard, members in groupby(entries, key=lambda entry: entry.shard):
        path, spec = cache / shard, record_spec(manifest, manifest.bucket_of_shard(shard))
        payloads, read = read_records(path), 0
        for entry in members:
            payload = next(islice(payloads, entry.position - read, None), None)
            read = entry.position + 1
            values = {} if payload is None else decode_example(payload, spec)
            if values.get("id") != entry.id:
                raise CacheError(
                    f"{path}: record {entry.position} is not {entry.id}, which {UTTERANCES_NAME} promises; run xtts verify-cache"
                )
            frames = cast("int", values["mel_length"])
            yield entry, np.asarray(values["mel"])[:frames].astype(np.float32)


def read_true_wave(data: Path, entry: UtteranceEntry, mel: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Return the clip's own wave over the span of its mel: float32 [(frames - 1) * hop_samples], loudness and rate as the cache's.

    Raises CorpusError if the file is not the one that the cache was made from, AudioError if it cannot be decoded.
    """
    path = (data if data.is_dir() else data.parent) / entry.source.path
    try:
        checksum = file_checksum(path)
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be read ({error.strerror}); name the corpus that the cache was made from with --data"
        ) from None
    if checksum != entry.source.checksum:
        raise CorpusError(
            f"{path}: not the file that {entry.id} was made from; name the corpus that the cache was made from with --data"
        )
    wave = load_wave(path, manifest.audio, manifest.limits)
    hop = manifest.audio.hop_samples
    start = 0 if manifest.audio.trim_db is None else first_frame(log_mel(wave, manifest.audio), mel)
    return wave[start * hop : (start + len(mel) - 1) * hop]


def first_frame(whole: np.ndarray, part: np.ndarray) -> int:
    """Return where in a clip's frames [T, mel_bins] a trimmed run of them begins: the start with the smallest difference."""
    starts = range(len(whole) - len(part) + 1)
    return min(starts, key=lambda start: float(np.abs(whole[start : start + len(part)] - part).sum()))


def check_cache_fits(cache: Path, manifest: Manifest, checkpoint: "Checkpoint") -> None:
    """Raise CacheError, naming what differs, unless the run was trained on records like this cache's and knows its speakers."""
    identity = checkpoint.cache
    differences = config_differences(manifest, checkpoint.config)
    unknown = sorted(set(manifest.symbols) ^ set(identity.symbols))
    if unknown:
        differences.append(f"symbols: {''.join(unknown)!r} are in one of the two alone")
    elif manifest.symbols != identity.symbols:
        differences.append("symbols: the same in another order")
    if manifest.fingerprint != identity.fingerprint and not differences:
        differences.append(
            f"fingerprint: the cache has {manifest.fingerprint[:12]}, the run {identity.fingerprint[:12]}"
        )
    for kind, held, known in (
        ("speakers", manifest.speakers, identity.speakers),
        ("languages", manifest.languages, identity.languages),
    ):
        strangers = sorted(set(held) - set(known))
        if strangers:
            differences.append(f"{kind}: the run does not know {', '.join(strangers[:_SHOWN_DIFFERENCES])}")
    if differences:
        more = len(differences) - _SHOWN_DIFFERENCES
        listed = "; ".join(differences[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise CacheError(
            f"{cache}: not a cache for {checkpoint.folder}: {listed}; name the cache that the run was trained on with --cache"
        )

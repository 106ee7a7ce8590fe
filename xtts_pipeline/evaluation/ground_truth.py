"""Read the ground truth of an evaluation: mels from the cache, waves from the corpus or the cache."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import pcm_to_wave, wave_to_trimmed_mel
from xtts_pipeline.cache.format.example import decode_values
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import UTTERANCES_NAME, Manifest, file_checksum
from xtts_pipeline.cache.format.problems import verify_command
from xtts_pipeline.cache.format.schema import SPLITS, wave_fields, without_padding
from xtts_pipeline.cache.format.shards import WAVE_PREFIX, digest_of
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import CacheError, CorpusError

DATA_REMEDY = "name the corpus that the cache was made from with --data"


def split_entries(cache: Path, manifest: Manifest, split: str, limit: int | None) -> list[UtteranceEntry]:
    """Return a split's utterances in the order of their shards' files.

    With `limit`, return the first by shard and id hash, so that the sample favours no bucket.
    Raises CacheError if the split is empty or a line is malformed.
    """
    path = cache / UTTERANCES_NAME
    shards = set(manifest.shard_names(split))
    entries = []
    for number, entry in enumerate(read_utterances(cache), 1):
        if entry.split != split:
            continue
        if entry.shard not in shards:
            raise CacheError(
                f"{path}:{number}: names {entry.shard!r}, no {split} shard of the manifest; run {verify_command(cache)}"
            )
        entries.append(entry)
    if not entries:
        held = ", ".join(f"{name} {manifest.split_records(name)}" for name in SPLITS)
        raise CacheError(f"{cache}: no utterance in the {split} split, it holds {held}; choose another --split")
    # A shard's name ends with the bucket's number, and buckets ascend by length: by full name, a sample would be short.
    entries.sort(key=lambda entry: (entry.shard.partition("-bucket")[0], digest_of(manifest.cache.seed, entry.id)))
    return sorted(entries[:limit], key=lambda entry: (entry.shard, entry.position))


def read_ground_truth(
    cache: Path, manifest: Manifest, entries: Sequence[UtteranceEntry], data: Path | None
) -> Iterator[tuple[UtteranceEntry, np.ndarray, np.ndarray | None]]:
    """Yield what `read_true_mels` does, and with each mel the wave of its span, float32 [(frames - 1) * hop].

    The wave is read from the corpus `data` if it is given, else from the cache; None if the cache stores no waves.
    Raises the errors of `read_true_mels`, CorpusError if a file is not the one that the cache was made from, and
    AudioError if it cannot be decoded.
    """
    root = None if data is None else _sound_root(data, manifest)
    waves = _read_values(cache, manifest, entries, WAVE_PREFIX) if manifest.waves and data is None else repeat(None)
    for (entry, mel), stored in zip(read_true_mels(cache, manifest, entries), waves, strict=False):
        samples = (len(mel) - 1) * manifest.audio.hop_samples
        if root is not None:
            yield entry, mel, _read_true_wave(root, entry, mel, manifest)
        else:
            yield entry, mel, None if stored is None else pcm_to_wave(stored["wave"][:samples])


def read_true_mels(
    cache: Path, manifest: Manifest, entries: Sequence[UtteranceEntry]
) -> Iterator[tuple[UtteranceEntry, np.ndarray]]:
    """Yield each entry, in the order of `split_entries`, with its mel, float32 [frames, mel_bins].

    Raises CacheError if a record is damaged, missing, or another utterance's.
    """
    for entry, values in zip(entries, _read_values(cache, manifest, entries), strict=True):
        yield entry, without_padding(values).mel.astype(np.float32)


def _read_values(
    cache: Path, manifest: Manifest, entries: Sequence[UtteranceEntry], prefix: str = ""
) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each entry's record; with the prefix of wave files, of its wave record."""
    for shard, members in groupby(entries, key=lambda entry: entry.shard):
        path, spec = cache / f"{prefix}{shard}", manifest.spec_of_shard[shard]
        fields = wave_fields(spec, manifest.audio.hop_samples) if prefix else spec.fields
        payloads, read = read_records(path), 0
        for entry in members:
            payload = next(islice(payloads, entry.position - read, None), None)
            read = entry.position + 1
            values = None if payload is None else decode_values(payload, fields)
            if values is None or values["id"] != entry.id:
                found = f"{path}: record {entry.position} is not {entry.id}, as {UTTERANCES_NAME} says"
                raise CacheError(f"{found}; run {verify_command(cache)}")
            yield values


def _sound_root(data: Path, manifest: Manifest) -> Path:
    """Return the folder from which the paths of the sounds start; it may lie apart from the corpus."""
    reading = manifest.first_reading
    if reading.audio_dir or reading.layout == "parquet":
        return read_corpus(data, reading, manifest.text.language).root
    return data if data.is_dir() else data.parent


def _read_true_wave(root: Path, entry: UtteranceEntry, mel: np.ndarray, manifest: Manifest) -> np.ndarray:
    """Return the wave of the span of a mel, at the cache's rate and loudness: float32 [(frames - 1) * hop]."""
    path = root / entry.source.path
    try:
        checksum = file_checksum(path)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); {DATA_REMEDY}") from None
    if checksum != entry.source.checksum:
        raise CorpusError(f"{path}: not the file that {entry.id} was made from; {DATA_REMEDY}")
    wave = load_wave(path, manifest.audio, manifest.limits)
    hop = manifest.audio.hop_samples
    start = 0 if manifest.audio.trim_db is None else wave_to_trimmed_mel(wave, manifest.audio)[1]
    return wave[start * hop : (start + len(mel) - 1) * hop]

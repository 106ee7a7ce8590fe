"""Read one shard completely and compare every record with its line of utterances.jsonl.

Needs only NumPy and the protobuf runtime, so that a CI job needs no TensorFlow.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import xxhash

from xtts_pipeline.cache.format.example import decode_example, decode_values
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, ShardEntry, bucket_specs
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.schema import bucket_of, wave_fields
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify.listings import check_checksum
from xtts_pipeline.errors import CacheError, TextError
from xtts_pipeline.text.tokens import PAD_ID, Tokenizer

# First float16 bit patterns of infinity and NaN: positive ones compared as signed, negative ones as unsigned.
_FIRST_NOT_FINITE, _FIRST_NEGATIVE_NOT_FINITE = 0x7C00, 0xFC00


@dataclass
class ShardCheck:
    """Valid records and problems of a shard."""

    records: int = 0
    problems: list[Problem] = field(default_factory=list)


class ShardVerifier:
    """Checks the shards of one cache; thread-safe."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._specs, self._hop_samples = bucket_specs(manifest), manifest.audio.hop_samples
        self._waves = manifest.wave_files
        self._speakers = {name: index for index, name in enumerate(manifest.speakers)}
        self._languages = {name: index for index, name in enumerate(manifest.languages)}
        self._tokenizer = Tokenizer(manifest.symbols, manifest.text.blank)
        self._pad_value = self._specs[-1].pad_value
        self._silence = np.array(self._pad_value, np.float16).view(np.uint16)

    def check(self, shard: ShardEntry, entries: Sequence[UtteranceEntry] | None) -> ShardCheck:
        """Return the problems of a shard's bytes and records; without entries, compare with the manifest only."""
        check = self._check_file(shard.name, shard.checksum, shard, entries, self._contradictions)
        if wave := self._waves.get(WAVE_PREFIX + shard.name):
            waves = self._check_file(WAVE_PREFIX + shard.name, wave.checksum, shard, entries, self._wave_contradictions)
            check.problems += waves.problems
        return check

    def _check_file(
        self,
        name: str,
        checksum: str,
        shard: ShardEntry,
        entries: Sequence[UtteranceEntry] | None,
        contradictions: Callable[[bytes, int, UtteranceEntry | None], Iterator[str]],
    ) -> ShardCheck:
        """Return the problems of one file of a shard: of its mels or of its waves."""
        check = ShardCheck()
        digest = xxhash.xxh3_128()
        try:
            for payload in read_records(self._folder / name, digest):
                entry = entries[check.records] if entries is not None and check.records < len(entries) else None
                where = f"{name} record {check.records}"
                check.problems += [
                    Problem(Kind.RECORD, where, detail) for detail in contradictions(payload, shard.bucket or 0, entry)
                ]
                check.records += 1
        except CacheError as error:
            # The digest is incomplete: reading stopped early.
            file_problems = list(check_checksum(self._folder, name, checksum))
            if not any(problem.kind is Kind.UNREADABLE for problem in file_problems):
                prefix = f"{self._folder / name}: record {check.records} "
                where = f"{name} record {check.records}"
                file_problems.append(Problem(Kind.RECORD, where, str(error).removeprefix(prefix)))
            check.problems += file_problems
            return check
        if digest.hexdigest() != checksum:
            check.problems.append(Problem(Kind.CHECKSUM, name, f"found {digest.hexdigest()}, expected {checksum}"))
        if check.records != shard.records:
            detail = f"found {check.records} records, the manifest says {shard.records}"
            check.problems.append(Problem(Kind.RECORD, name, detail))
        return check

    def _wave_contradictions(self, payload: bytes, bucket: int, entry: UtteranceEntry | None) -> Iterator[str]:
        try:
            values = decode_values(payload, wave_fields(self._specs[bucket], self._hop_samples))
        except CacheError as error:
            yield str(error)
            return
        if entry is None:
            return
        if values["id"] != entry.id:
            yield f"id: found {values['id']!r}, {entry.id!r} is at this place of utterances.jsonl"
        if np.asarray(values["wave"])[entry.frames * self._hop_samples :].any():
            yield f"wave: found sound after frame {entry.frames}, expected zeros"

    def _contradictions(self, payload: bytes, bucket: int, entry: UtteranceEntry | None) -> Iterator[str]:
        try:
            values = decode_example(payload, self._specs[bucket])
        except CacheError as error:
            yield str(error)
            return
        text_length, mel_length = cast("int", values["text_length"]), cast("int", values["mel_length"])
        yield from self._mel_contradictions(np.asarray(values["mel"]), mel_length)
        smallest = bucket_of(self._specs, text_length, mel_length)
        if smallest is not None and smallest < bucket:
            yield f"{text_length} tokens and {mel_length} frames belong in bucket {smallest}, found in bucket {bucket}"
        if entry is None:
            return
        expected = {
            "id": entry.id,
            "text_length": entry.tokens,
            "mel_length": entry.frames,
            "speaker": self._speakers.get(entry.speaker),
            "language": self._languages.get(entry.language),
        }
        for name, value in expected.items():
            if values[name] != value:
                yield f"{name}: found {values[name]!r}, {entry.id!r} at this place of utterances.jsonl says {value!r}"
        yield from self._token_contradictions(np.asarray(values["tokens"]), entry)

    def _mel_contradictions(self, mel: np.ndarray, mel_length: int) -> Iterator[str]:
        if not 0 < mel_length <= len(mel):
            yield f"mel_length: found {mel_length}, expected 1 to {len(mel)}"
            return
        # Integer views: NumPy's float16 arithmetic is ten times slower than the disk.
        bits = mel.view(np.uint16)
        sound = bits[:mel_length]
        if sound.view(np.int16).max() >= _FIRST_NOT_FINITE or sound.max() >= _FIRST_NEGATIVE_NOT_FINITE:
            yield "mel: found values that are not finite"
        if not (bits[mel_length:] == self._silence).all():
            yield f"mel: found sound after frame {mel_length}, expected silence ({self._pad_value:.4f})"

    def _token_contradictions(self, tokens: np.ndarray, entry: UtteranceEntry) -> Iterator[str]:
        try:
            expected = self._tokenizer.encode(entry.text)
        except TextError as error:
            yield f"tokens: the text of {entry.id!r} cannot be tokenised: {error}"
            return
        if not np.array_equal(tokens[: len(expected)], expected):
            yield f"tokens: found others than those of the text of {entry.id!r}"
        elif (tokens[len(expected) :] != PAD_ID).any():
            yield f"tokens: found tokens after the text of {entry.id!r}, expected padding ({PAD_ID})"

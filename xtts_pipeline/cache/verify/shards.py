"""Read one shard completely and compare every record with its line of utterances.jsonl.

Needs only NumPy and the protobuf runtime, so that a CI job needs no TensorFlow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import xxhash

from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, ShardEntry, bucket_specs
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.schema import bucket_of
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
        self._specs = bucket_specs(manifest)
        self._speakers = {name: index for index, name in enumerate(manifest.speakers)}
        self._languages = {name: index for index, name in enumerate(manifest.languages)}
        self._tokenizer = Tokenizer(manifest.symbols, manifest.text.blank)
        self._pad_value = self._specs[-1].pad_value
        self._silence = np.array(self._pad_value, np.float16).view(np.uint16)

    def check(self, shard: ShardEntry, entries: Sequence[UtteranceEntry] | None) -> ShardCheck:
        """Return the problems of a shard's bytes and records; without entries, compare with the manifest only."""
        check = ShardCheck()
        digest = xxhash.xxh3_128()
        try:
            for payload in read_records(self._folder / shard.name, digest):
                entry = entries[check.records] if entries is not None and check.records < len(entries) else None
                where = f"{shard.name} record {check.records}"
                check.problems += [
                    Problem(Kind.RECORD, where, detail)
                    for detail in self._contradictions(payload, shard.bucket or 0, entry)
                ]
                check.records += 1
        except CacheError as error:
            # The digest is incomplete: reading stopped early.
            file_problems = list(check_checksum(self._folder, shard.name, shard.checksum))
            if not any(problem.kind is Kind.UNREADABLE for problem in file_problems):
                prefix = f"{self._folder / shard.name}: record {check.records} "
                where = f"{shard.name} record {check.records}"
                file_problems.append(Problem(Kind.RECORD, where, str(error).removeprefix(prefix)))
            check.problems += file_problems
            return check
        if digest.hexdigest() != shard.checksum:
            check.problems.append(
                Problem(Kind.CHECKSUM, shard.name, f"found {digest.hexdigest()}, expected {shard.checksum}")
            )
        if check.records != shard.records:
            detail = f"found {check.records} records, the manifest says {shard.records}"
            check.problems.append(Problem(Kind.RECORD, shard.name, detail))
        return check

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

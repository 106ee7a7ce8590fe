"""Read one shard completely and compare every record with its line of utterances.jsonl.

Needs only NumPy and the protobuf runtime, so that a CI job needs no TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import xxhash

from xtts_pipeline.cache.format.example import decode_example, decode_values, record_parts
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, ShardEntry, bucket_specs
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.schema import RecordField, bucket_of, pad_to, wave_fields
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
        # A clip's mel and wave without sound, for each bucket.
        self._silent_mels = [
            np.full((spec.max_mel_frames, spec.mel_bins), spec.pad_value, "<f2").tobytes() for spec in self._specs
        ]
        self._wave_fields = [wave_fields(spec, self._hop_samples) for spec in self._specs]
        self._silent_waves = [bytes(fields[1].array_bytes) for fields in self._wave_fields]

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
        fields, silence = self._wave_fields[bucket], self._silent_waves[bucket]
        if entry is not None:
            wave_bytes = 2 * self._hop_samples * entry.frames
            if _sound_of(payload, {"id": entry.id, "wave": silence}, fields, silence, wave_bytes) is not None:
                return
        try:
            values = decode_values(payload, fields)
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
        if entry is not None and self._is_as_listed(payload, bucket, entry):
            return
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

    def _is_as_listed(self, payload: bytes, bucket: int, entry: UtteranceEntry) -> bool:
        """Return whether a record is what its line says, without decoding it: its bytes follow from the line.

        False says nothing: the record is decoded, to name what is wrong with it, if anything is.
        """
        try:
            tokens = self._tokenizer.encode(entry.text)
        except TextError:
            return False
        spec, silence = self._specs[bucket], self._silent_mels[bucket]
        speaker, language = self._speakers.get(entry.speaker), self._languages.get(entry.language)
        in_place = len(tokens) == entry.tokens and bucket_of(self._specs, entry.tokens, entry.frames) == bucket
        if not in_place or speaker is None or language is None:
            return False
        values = {
            "id": entry.id,
            "tokens": pad_to(tokens, spec.max_text_length, PAD_ID, "<i4"),
            "text_length": entry.tokens,
            "mel": silence,
            "mel_length": entry.frames,
            "speaker": speaker,
            "language": language,
        }
        sound = _sound_of(payload, values, spec.fields, silence, 2 * spec.mel_bins * entry.frames)
        return sound is not None and _is_finite(np.frombuffer(sound, "<u2"))

    def _mel_contradictions(self, mel: np.ndarray, mel_length: int) -> Iterator[str]:
        if not 0 < mel_length <= len(mel):
            yield f"mel_length: found {mel_length}, expected 1 to {len(mel)}"
            return
        bits = mel.view(np.uint16)
        if not _is_finite(bits[:mel_length]):
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


def _sound_of(
    payload: bytes, values: Mapping[str, Any], fields: Sequence[RecordField], silence: bytes, sound_bytes: int
) -> memoryview | None:
    """Return the first bytes of a record's array if all else in the record is as in one of these values, else None.

    They are not copied. `silence` is the value of the array, in which `sound_bytes` bytes may differ.
    """
    parts = record_parts(values, fields)
    at = next(number for number, part in enumerate(parts) if part is silence)
    head, tail = b"".join(parts[:at]), b"".join(parts[at + 1 :])
    end = len(head) + sound_bytes
    is_silent_after = payload.startswith(memoryview(silence)[sound_bytes:], end)
    is_framed = payload.startswith(head) and payload.endswith(tail)
    is_whole = len(payload) == len(head) + len(silence) + len(tail)
    return memoryview(payload)[len(head) : end] if is_whole and is_framed and is_silent_after else None


def _is_finite(bits: np.ndarray) -> bool:
    """Return whether float16 numbers are finite, by their bits: NumPy's float16 arithmetic is slower than the disk."""
    return bool(bits.view(np.int16).max() < _FIRST_NOT_FINITE and bits.max() < _FIRST_NEGATIVE_NOT_FINITE)

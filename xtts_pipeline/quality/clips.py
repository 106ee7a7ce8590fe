"""Read the clips of a corpus or a cache and measure their sound, in several processes."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NoReturn

import joblib
import numpy as np

from xtts_pipeline.audio.load import decode_clip, resample
from xtts_pipeline.audio.mel import log_mel, pcm_to_wave
from xtts_pipeline.cache.build.plan import CorpusIndex
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.receipts import source_stat
from xtts_pipeline.cache.build.workers import read_source
from xtts_pipeline.cache.format.example import decode_example, decode_values
from xtts_pipeline.cache.format.listings import read_rejected, read_utterances
from xtts_pipeline.cache.format.manifest import UTTERANCES_NAME, Manifest, ShardEntry
from xtts_pipeline.cache.format.problems import verify_command
from xtts_pipeline.cache.format.schema import wave_fields
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.cache.format.tfrecord import read_record, read_records, record_starts
from xtts_pipeline.config.schema import AudioConfig, Config, LimitsConfig
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import CacheError, RowError
from xtts_pipeline.quality.sound import Clipping, SoundMeasures, measure_clipping, measure_sound
from xtts_pipeline.system.processes import in_processes
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.text.tokens import Tokenizer

CHUNK_CLIPS = 64
# A clip over the limits of the settings is measured too: the page shows what each limit loses.
ANY_SOUND = LimitsConfig(min_seconds=0.0, max_seconds=3_600.0, min_peak_db=-90.0, max_clipped_share=1.0)


@dataclass(frozen=True)
class MeasuredClip:
    """A clip's text and the measures of its sound. `text` is the tokenized text, `tokens` its length."""

    id: str
    raw_text: str
    text: str
    speaker: str
    language: str
    tokens: int
    sound: SoundMeasures


@dataclass(frozen=True)
class ClipSound:
    """A clip's natural-log mel, float [frames, mel_bins], and its wave, float32 [samples], if there is one."""

    mel: np.ndarray
    wave: np.ndarray | None


class CorpusClips:
    """The clips of a corpus: sound as in the files, neither trimmed nor normalised."""

    def __init__(self, index: CorpusIndex, config: Config) -> None:
        self._index = index
        self.audio = config.audio.model_copy(update={"normalize": "none", "trim_db": None})
        self._tokenizer = Tokenizer(index.symbols, config.text.blank)
        self._rows = {row.id: row for row in index.rows}

    def measure(self, jobs: int, progress: Callable[[int], object]) -> tuple[list[MeasuredClip], list[Rejection]]:
        """Return the measured clips, and why the others cannot be measured; `progress` receives the clips done."""
        rows = self._index.rows
        chunks = [rows[start : start + CHUNK_CLIPS] for start in range(0, len(rows), CHUNK_CLIPS)]
        clips: list[MeasuredClip] = []
        rejections = [rejection for _, rejection in self._index.rejections]
        tasks = [
            joblib.delayed(_measure_rows)(self._index.roots, chunk, self.audio, self._tokenizer) for chunk in chunks
        ]
        for measured in in_processes(jobs, tasks):
            clips += [clip for clip in measured if isinstance(clip, MeasuredClip)]
            rejections += [rejection for rejection in measured if isinstance(rejection, Rejection)]
            progress(len(measured))
        return clips, rejections

    def sounds(self, ids: Sequence[str]) -> Iterator[tuple[str, ClipSound]]:
        """Yield clips that were measured, in any order."""
        for id in ids:
            row = self._rows[id]
            wave, _ = _read_wave(self._index.roots[row.corpus], row, self.audio)
            yield id, ClipSound(log_mel(wave, self.audio), wave)


class CachedClips:
    """The clips of a cache: its mels and, if it stores them, its waves."""

    def __init__(self, cache: Path, manifest: Manifest) -> None:
        self._cache, self._manifest = cache, manifest
        self.audio = manifest.audio
        self._entries = list(read_utterances(cache, manifest.files[UTTERANCES_NAME].bytes))

    def measure(self, jobs: int, progress: Callable[[int], object]) -> tuple[list[MeasuredClip], list[Rejection]]:
        """Return the measured clips, and those that preprocessing rejected; `progress` receives the clips done."""
        shards = self._manifest.shards
        tasks = [joblib.delayed(_measure_shard)(self._cache, self._manifest, shard) for shard in shards]
        sounds = {}
        for shard, measured in zip(shards, in_processes(jobs, tasks), strict=True):
            if len(measured) != shard.records:
                self._refuse(shard.name, f"found {counted(len(measured), 'record')}, expected {shard.records}")
            sounds[shard.name] = measured
            progress(len(measured))
        for entry in self._entries:
            if entry.position >= len(sounds.get(entry.shard, ())):
                found = f"{entry.id} is record {entry.position} of {entry.shard}, which the cache does not have"
                self._refuse(UTTERANCES_NAME, found)
        clips = [
            MeasuredClip(
                entry.id,
                entry.raw_text,
                entry.text,
                entry.speaker,
                entry.language,
                entry.tokens,
                sounds[entry.shard][entry.position],
            )
            for entry in self._entries
        ]
        return clips, list(read_rejected(self._cache))

    def _refuse(self, name: str, found: str) -> NoReturn:
        raise CacheError(f"{self._cache / name}: {found}; run {verify_command(self._cache)}")

    def sounds(self, ids: Sequence[str]) -> Iterator[tuple[str, ClipSound]]:
        """Yield clips, in the order of the cache."""
        wanted = set(ids)
        places: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for entry in self._entries:
            if entry.id in wanted:
                places[entry.shard].append((entry.position, entry.id))
        for shard in self._manifest.shards:
            if not places[shard.name]:
                continue
            names = [shard.name, f"{WAVE_PREFIX}{shard.name}"][: 2 if self._manifest.waves else 1]
            files = [(path, record_starts(path)) for path in (self._cache / name for name in names)]
            decode = _sound_decoder(self._manifest, shard)
            for position, id in sorted(places[shard.name]):
                yield id, decode(*(read_record(path, starts[position]) for path, starts in files))


def _measure_rows(
    roots: Sequence[Path], rows: Sequence[PlannedRow], audio: AudioConfig, tokenizer: Tokenizer
) -> list[MeasuredClip | Rejection]:
    def measure(row: PlannedRow) -> MeasuredClip | Rejection:
        try:
            tokens = len(tokenizer.encode(row.text))
            wave, clipping = _read_wave(roots[row.corpus], row, audio)
            sound = measure_sound(log_mel(wave, audio), wave, audio, clipping)
        except RowError as error:
            return Rejection(row.id, row.where, error.reason, error.detail)
        return MeasuredClip(row.id, row.raw_text, row.text, row.speaker, row.language, tokens, sound)

    return [measure(row) for row in rows]


def _read_wave(root: Path, row: PlannedRow, audio: AudioConfig) -> tuple[np.ndarray, Clipping]:
    """Return a clip at the settings' sample rate, and its clipping as its file holds it."""
    path = root / row.audio
    decoded = decode_clip(read_source(path, source_stat(path), ANY_SOUND, row.audio), ANY_SOUND, row.audio)
    wave = decoded.wave
    clipping = measure_clipping(wave)
    return resample(wave, decoded.sample_rate, audio.sample_rate), clipping


def _measure_shard(cache: Path, manifest: Manifest, shard: ShardEntry) -> list[SoundMeasures]:
    decode = _sound_decoder(manifest, shard)
    waves = read_records(cache / f"{WAVE_PREFIX}{shard.name}") if manifest.waves else repeat(b"")

    def measure(payload: bytes, wave_payload: bytes) -> SoundMeasures:
        sound = decode(payload, wave_payload)
        clipping = None if sound.wave is None else measure_clipping(sound.wave)
        return measure_sound(sound.mel, sound.wave, manifest.audio, clipping)

    return list(map(measure, read_records(cache / shard.name), waves))


def _sound_decoder(manifest: Manifest, shard: ShardEntry) -> Callable[..., ClipSound]:
    """Return what makes a clip's sound of the payloads of its record and of its wave's, if it has one."""
    spec = manifest.spec_of_shard[shard.name]
    fields = wave_fields(spec, manifest.audio.hop_samples)

    def decode(payload: bytes, wave_payload: bytes = b"") -> ClipSound:
        values: dict[str, Any] = decode_example(payload, spec)
        length = values["mel_length"]
        wave: np.ndarray | None = None
        if wave_payload:
            stored: Any = decode_values(wave_payload, fields)["wave"]
            wave = pcm_to_wave(stored[: length * manifest.audio.hop_samples])
        return ClipSound(values["mel"][:length].astype(np.float32), wave)

    return decode

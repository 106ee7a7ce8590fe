"""Compare a cache with its corpus: make sampled records again, or repair broken files.

Uses the writer's own functions, so that the two cannot diverge.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.audio.mel import log_mel, pcm_to_wave
from xtts_pipeline.cache.build.build import BuildOptions, build_cache, refuse_other_corpus
from xtts_pipeline.cache.build.folder import LOCK_NAME, locked_folder
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.pool import local_pool
from xtts_pipeline.cache.build.receipts import receipt_path
from xtts_pipeline.cache.build.workers import ExampleMaker
from xtts_pipeline.cache.format.contents import require_recorded_mels
from xtts_pipeline.cache.format.example import decode_example, decode_values
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import Manifest, listed_shards, load_manifest
from xtts_pipeline.cache.format.problems import Kind, Problem
from xtts_pipeline.cache.format.schema import RecordSpec, wave_fields
from xtts_pipeline.cache.format.shards import WAVE_PREFIX, ShardName
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.config.languages import find_language
from xtts_pipeline.config.schema import AudioConfig, Config, DataConfig
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Corpus
from xtts_pipeline.errors import CacheError, CorpusError

# One float16 step at the log-mel floor: the rounding difference between processors.
MEL_TOLERANCE = 2.0**-7
# The mel magnitude of the rounding of sound to 16 bits: about 1e-5, and no more than this in any frame.
ROUNDING_MAGNITUDE = 1e-4
_REMEDY = "run xtts preprocess --check content to bring the cache up to date"


def check_sources(folder: Path, data: Path, sample: int) -> tuple[int, tuple[Problem, ...]]:
    """Recompute up to `sample` records of a sound cache from `data`; return their number, and those that differ.

    The sample depends only on the cache, and a larger one contains a smaller one. In a cache of several corpora, clips
    that this one lacks are left out. Raises CorpusError if the corpus cannot be read.
    """
    manifest = load_manifest(folder)
    entries = list(read_utterances(folder))
    corpus = _read_one_of(data, manifest, {entry.id for entry in entries})
    if manifest.has_several_corpora:
        known = _ids_of(corpus)
        entries = [entry for entry in entries if entry.id in known]
        if not entries:
            raise CacheError(f"{folder}: has no clip of {data}; name a corpus that the cache was made from")
    entries.sort(key=lambda entry: hashlib.sha256(f"{manifest.fingerprint}:{entry.id}".encode()).digest())
    del entries[sample:]
    rows, refusals = _planned(corpus, entries, manifest)
    maker = ExampleMaker((corpus.root,), _settings_of(manifest), manifest.symbols)
    problems = []
    for shard in sorted({entry.shard for entry in entries}):
        files = [shard, *(WAVE_PREFIX + shard for _ in range(manifest.cache.store_waves))]
        payloads = [dict(enumerate(read_records(folder / file))) for file in files]
        spec = manifest.spec_of_shard[shard]
        for entry in (entry for entry in entries if entry.shard == shard):
            if entry.id in rows:
                stored = [payloads_of_file[entry.position] for payloads_of_file in payloads]
                detail = _difference(maker, entry, rows[entry.id], stored, spec, manifest)
            else:
                detail = f"the corpus has {refusals.get(entry.id, 'no such row')} now; {_REMEDY}"
            if detail is not None:
                problems.append(Problem(Kind.SOURCE, f"{shard} record {entry.position}", f"{entry.id}: {detail}"))
    return len(entries), tuple(problems)


def repair_cache(folder: Path, problems: Sequence[Problem], data: Path, jobs: int) -> tuple[str, ...]:
    """Write the files named by the problems again from the corpus `data`; return those written or removed.

    Raises CacheError if the manifest, which holds the settings, cannot be used, if the cache has a second corpus or
    predicted mels, or if `data` has none of its clips.
    """
    manifest = load_manifest(folder)
    require_recorded_mels(folder, manifest, "make the cache again with xtts predict-mels")
    names = listed_shards(manifest)
    if manifest.has_several_corpora:
        raise CacheError(
            f"{folder}: was made with --val-data or by xtts cache merge, which --repair does not know; make it again"
        )
    config = _settings_of(manifest)
    corpus = read_corpus(data, manifest.first_reading, manifest.text.language)
    index = index_corpora([corpus], config, frozenset(manifest.excluded))
    # Before anything is removed: a wrong folder, or one without its sounds, would leave a valid cache of no clips.
    refuse_other_corpus(folder, index, "name the corpus that the cache was made from")
    before = _file_identities(folder)
    for problem in problems:
        _remove_broken(folder, problem, names, manifest.bucket_count)
    # Not those of the files: all of a split may be lost.
    counts = {split: (count, count) for split, count in Counter(name.split for name in names).items()}
    # By content: another checkout has other modification times for the same files.
    options = BuildOptions(local_pool(jobs), jobs, check="content")
    with locked_folder(folder, other_place="remove it, and repair again") as work_folder:
        build_cache(
            folder,
            work_folder,
            index,
            config,
            options,
            lambda _rows: None,
            counts,
        )
    return tuple(sorted({name for name, _ in before ^ _file_identities(folder)} - {LOCK_NAME}))


def _file_identities(folder: Path) -> set[tuple[str, tuple[int, int, int]]]:
    """Return each file's name with attributes that change when it is written again."""
    statuses = {
        path.relative_to(folder).as_posix(): path.lstat()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    return {(name, (status.st_ino, status.st_mtime_ns, status.st_size)) for name, status in statuses.items()}


def _settings_of(manifest: Manifest) -> Config:
    """Return the config that makes this cache again."""
    data = DataConfig(buckets=manifest.buckets or None)
    return Config(audio=manifest.audio, text=manifest.text, limits=manifest.limits, cache=manifest.cache, data=data)


def _remove_broken(folder: Path, problem: Problem, names: Sequence[ShardName], bucket_count: int) -> None:
    """Remove a broken shard's receipt, so that it is made again, and links and pipes in a file's place."""
    place = problem.where.split(" ")[0]
    for name in names:
        if place in (
            *name.files(bucket_count),
            *name.wave_files(bucket_count),
            receipt_path(folder, name).relative_to(folder).as_posix(),
        ):
            _remove_file(receipt_path(folder, name))
    if problem.kind is Kind.NOT_A_FILE:
        _remove_file(folder / place)  # a receipt may be gone already


def _remove_file(path: Path) -> None:
    """Remove anything but a folder, which the build refuses by name."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)


def _read_one_of(data: Path, manifest: Manifest, ids: set[str]) -> Corpus:
    """Return the corpus, read as that of the cache's corpora with which most of these ids are in a usable row."""
    found, problem = [], None
    for at, reading in enumerate(manifest.all_readings):
        try:
            if reading not in manifest.all_readings[:at]:
                found.append(read_corpus(data, reading, manifest.text.language))
        except CorpusError as error:
            problem = error
    if problem is not None and not found:
        raise problem
    return max(found, key=lambda corpus: sum(utterance.id in ids for utterance in corpus.utterances))


def _ids_of(corpus: Corpus) -> set[str]:
    return {row.id for row in corpus.utterances} | {row.id for row in corpus.rejections}


def _planned(
    corpus: Corpus, entries: Sequence[UtteranceEntry], manifest: Manifest
) -> tuple[dict[str, PlannedRow], dict[str, str]]:
    """Return the planned rows of the sample by id, and the reasons for refused rows.

    Speakers and languages get the ids of the whole cache.
    """
    wanted = {entry.id for entry in entries}
    members = tuple(utterance for utterance in corpus.utterances if utterance.id in wanted)
    index = index_corpora([replace(corpus, utterances=members)], _settings_of(manifest))
    speakers = {name: number for number, name in enumerate(manifest.speakers)}
    # An older cache holds codes as they were written.
    spelled = {name: find_language(name, manifest.languages) or name for name in index.languages}
    languages = {name: number for number, name in enumerate(manifest.languages)}
    rows = {
        row.id: replace(
            row,
            speaker_id=speakers.get(row.speaker, -1),
            language=spelled[row.language],
            language_id=languages.get(spelled[row.language], -1),
        )
        for row in index.rows
    }
    return rows, {rejection.id: f"{rejection.reason} ({rejection.detail})" for _, rejection in index.rejections}


def _difference(
    maker: ExampleMaker,
    entry: UtteranceEntry,
    row: PlannedRow,
    stored: Sequence[bytes],
    spec: RecordSpec,
    manifest: Manifest,
) -> str | None:
    """Return the difference between the stored records of a clip and recomputed ones, or None.

    A predicted mel is not compared: the recomputed one stands in its place.
    """
    receipt, made = maker.make(row)
    if not made:
        return f"the corpus has {receipt.reason} ({receipt.detail}) now; {_REMEDY}"
    if receipt.checksum != entry.source.checksum:
        return f"{row.audio} is not the file that the cache was made from; {_REMEDY}"
    found, expected = decode_example(stored[0], spec), decode_example(made[0], spec)
    if manifest.mels_from is not None:
        found["mel"] = expected["mel"]
    if len(stored) > 1:
        wave = decode_values(stored[1], wave_fields(spec, manifest.audio.hop_samples))["wave"]
        if detail := _wave_difference(np.asarray(wave), found, manifest.audio):
            return detail
    if made == list(stored):
        return None
    return next(_field_differences(found, expected), None)


def _wave_difference(wave: np.ndarray, stored: Mapping[str, Any], audio: AudioConfig) -> str | None:
    """Return the difference between a stored mel and that of the stored wave, or None.

    Trimming cuts off sound that the outermost frames were computed from, so those are left out.
    """
    frames = int(stored["mel_length"])
    edge = 0 if audio.trim_db is None else -(-audio.fft_size // (2 * audio.hop_samples))
    inner = slice(edge, max(edge, frames - edge))
    sound = pcm_to_wave(wave[: frames * audio.hop_samples])
    of_wave, of_record = (np.exp(mel[inner].astype(np.float32)) for mel in (log_mel(sound, audio), stored["mel"]))
    distance = np.abs(of_wave - of_record) - MEL_TOLERANCE * of_record
    if distance.size and float(distance.max()) > ROUNDING_MAGNITUDE:
        frame = edge + int(distance.max(axis=1).argmax())
        return f"wave: its mel differs from the stored mel by {float(distance.max()):.2g} in magnitude at frame {frame}"
    return None


def _field_differences(
    stored: dict[str, np.ndarray | str | int], made: dict[str, np.ndarray | str | int]
) -> Iterator[str]:
    for name, value in stored.items():
        if name == "mel":
            distance = float(np.abs(np.asarray(value, np.float32) - np.asarray(made[name], np.float32)).max())
            if not distance <= MEL_TOLERANCE:
                detail = f"differs by up to {distance:.4f} from the recomputed one"
                yield f"mel: {detail}, at most {MEL_TOLERANCE:.4f} expected"
        elif not np.array_equal(value, made[name]):
            yield f"{name}: differs from the recomputed one"

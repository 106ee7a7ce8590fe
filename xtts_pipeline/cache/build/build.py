"""Make a cache or bring one up to date: reuse valid shards, write the others, publish the manifest last.

The cache's bytes depend on the corpus, the config and the shard counts only, never on workers, order or interruptions.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from xtts_pipeline.cache.build.bucketing import buckets_of_rows, judge_rows, resolve_buckets
from xtts_pipeline.cache.build.folder import (
    check_free_space,
    existing_counts,
    existing_shard_files,
    existing_shards,
    invalidate,
    remove_shards_but,
)
from xtts_pipeline.cache.build.plan import CorpusIndex, choose_validation_row, lay_out, plan_shards
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.pool import Pool, run_tasks
from xtts_pipeline.cache.build.publish import BuildTotals, publish_cache
from xtts_pipeline.cache.build.receipts import (
    PASSING_REASONS,
    RECEIPTS_FOLDER,
    ClipReceipt,
    Receipt,
    SourceCheck,
    changed_rows,
    load_receipt,
    receipt_bytes,
    receipt_path,
    reusable_receipt,
    source_stat,
)
from xtts_pipeline.cache.build.workers import CLIP_SECONDS, ShardResult, ShardTask, explained_write
from xtts_pipeline.cache.format.contents import require_recorded_mels
from xtts_pipeline.cache.format.example import empty_record, encode_values
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import (
    CACHE_SECTIONS,
    Manifest,
    bucket_specs,
    buckets_of,
    config_differences,
    find_manifest,
    fingerprint,
)
from xtts_pipeline.cache.format.schema import padded_wave, wave_fields
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.cache.format.tfrecord import FRAME_BYTES
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CacheError, CorpusError, Reason, listed
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.regular_files import identity_of
from xtts_pipeline.system.terminal import counted

_OTHER_BYTES_PER_ROW = 2_000  # its lines in utterances.jsonl and in a receipt
_MAX_VALIDATION_ROUNDS = 3

Layout = dict[ShardName, list[PlannedRow]]


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build; only `train_shards` and `reshard` change the result.

    A worker is killed if a clip takes longer than `clip_seconds`.
    """

    pool: Pool
    jobs: int
    check: SourceCheck = "stat"
    train_shards: int | None = None
    reshard: bool = False
    clip_seconds: float = CLIP_SECONDS


@dataclass
class BuildResult:
    """Result of a build. `stage_seconds` are summed over the workers."""

    manifest: Manifest
    totals: BuildTotals
    shards_written: int
    shards_reused: int
    settings_changed: tuple[str, ...]
    stage_seconds: Counter[str] = field(default_factory=Counter)


def build_cache(
    folder: Path,
    work_folder: Path,
    index: CorpusIndex,
    config: Config,
    options: BuildOptions,
    progress: Callable[[int], object],
    existing: Mapping[str, tuple[int, int]] | None = None,
) -> BuildResult:
    """Bring the locked cache folder up to date; `progress` receives the number of further rows done.

    `existing` is as in `plan_shards`, by default by the files in the folder. Raises CacheError if the disk is full; the
    next run reuses the finished shards.
    """
    config = resolve_buckets(config, folder, index, reshard=options.reshard)
    changed = tuple(changed_settings(folder, config, index))
    existing = existing_counts(folder) if existing is None else existing
    plan = plan_shards(index, config.cache, existing, options.train_shards, reshard=options.reshard)
    builder = _Builder(folder, work_folder, index, config, options, progress)
    with explained_write(folder):
        rejected = _rejected_ids(folder, index, final=False)
        for _ in range(_MAX_VALIDATION_ROUNDS):
            validation_id = choose_validation_row(index, config.cache, rejected)
            layout = lay_out(index, plan, validation_id)
            builder.bring_up_to_date(layout)
            rejected = _rejected_ids(folder, index, final=True)
            if choose_validation_row(index, config.cache, rejected) == validation_id:
                break
        manifest, totals = publish_cache(folder, work_folder, index, layout, config)
    written = len(builder.written & set(layout))
    return BuildResult(manifest, totals, written, len(layout) - written, changed, builder.stage_seconds)


def refuse_predicted_cache(folder: Path) -> None:
    """Raise CacheError if the folder holds a cache of predicted mels, since a build would replace them."""
    if (manifest := find_manifest(folder)) is not None:
        require_recorded_mels(folder, manifest, "choose another --cache")


def refuse_other_corpus(
    folder: Path, index: CorpusIndex, remedy: str = "choose another --cache, or remove this one"
) -> None:
    """Raise CacheError if the folder holds another corpus's clips alone, or a merged cache: a build would remove them.

    A clip of the same id is the same if its text is, or the size of its sound. `remedy` is for another corpus.
    """
    _refuse_merged_cache(folder, index)
    rows = {row.id: row for row in index.rows}
    held: set[str] = set()
    for id, raw_text, sound_bytes in _kept_clips(folder):
        if (row := rows.get(id)) is not None:
            found = source_stat(index.roots[row.corpus] / row.audio)
            if row.raw_text == raw_text or (found is not None and found.bytes == sound_bytes):
                return
        held.add(id)
    if held:
        mismatch = f"holds {counted(len(held), 'clip')} of another corpus, and {index.roots[0]} has none of them"
        raise CacheError(f"{folder}: {mismatch}; {remedy}")


def _refuse_merged_cache(folder: Path, index: CorpusIndex) -> None:
    manifest = find_manifest(folder)
    # A cache that a build has made of two corpora has receipts.
    if manifest is None or any((folder / RECEIPTS_FOLDER).glob("*")):
        return
    if (corpora := len(manifest.all_readings)) > len(index.roots):
        found = f"is a cache of {corpora} corpora, made by xtts cache merge, and would keep one of them"
        raise CacheError(f"{folder}: {found}; preprocess each into a cache of its own, and merge them again")


def _kept_clips(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Yield id, raw text and bytes of the sound of each clip that the folder holds, complete or not."""
    with suppress(CacheError):  # an unfinished cache may have no listing
        for entry in read_utterances(folder):
            yield entry.id, entry.raw_text, entry.source.bytes
        return
    for clip in _clips_of(folder, existing_shards(folder)) if folder.is_dir() else ():
        if clip.is_kept:
            yield clip.id, clip.raw_text, clip.source.bytes if clip.source is not None else 0


def changed_settings(folder: Path, config: Config, index: CorpusIndex) -> Iterator[str]:
    """Yield one line for each setting, and each list of names, that is not that of the existing cache."""
    if (manifest := find_manifest(folder)) is None:
        return
    yield from config_differences(manifest, config, CACHE_SECTIONS)
    for name, before, now in (
        ("symbols", manifest.symbols, index.symbols),
        ("speakers", manifest.speakers, index.speakers),
        ("languages", manifest.languages, index.languages),
    ):
        if before != now:
            gone, new = sorted(set(before) - set(now)), sorted(set(now) - set(before))
            counts = [
                f"{len(some)} {word} ({listed(some, 5)})" for some, word in ((new, "new"), (gone, "gone")) if some
            ]
            yield f"{name}: {', '.join(counts) or 'another order'}"


def planned_bytes(layout: Layout, config: Config, buckets: Mapping[str, int]) -> dict[ShardName, int]:
    """Return the size of each shard with its waves if none of its rows is rejected.

    `buckets` maps ids to buckets; a row without one counts as one of the largest bucket.
    """
    specs = bucket_specs(config)
    record_bytes = [FRAME_BYTES + len(empty_record(spec)) for spec in specs]
    records = 1
    if config.cache.store_waves:
        records = 2
        fields = [wave_fields(spec, config.audio.hop_samples) for spec in specs]
        silence = np.zeros(0, np.int16)
        for bucket, of_bucket in enumerate(fields):
            record_bytes[bucket] += FRAME_BYTES + len(encode_values(padded_wave("", silence, of_bucket), of_bucket))
    return {
        name: sum(record_bytes[buckets.get(row.id, -1)] + records * len(row.id.encode()) for row in rows)
        for name, rows in layout.items()
    }


def current_receipts(
    folder: Path, layout: Layout, index: CorpusIndex, config: Config, options: BuildOptions
) -> dict[ShardName, tuple[Receipt, bool]]:
    """Return the receipts of the reusable shards, and whether their modification times were updated."""
    wanted_fingerprint = fingerprint(config, index.symbols)

    def find(name: ShardName) -> tuple[Receipt, bool] | None:
        receipt = load_receipt(folder, name)
        if receipt is None or receipt.fingerprint != wanted_fingerprint:
            return None
        if bool(receipt.waves) != config.cache.store_waves:
            return None
        current = reusable_receipt(receipt, folder, layout[name], index.roots, options.check)
        return None if current is None else (current, current is not receipt)

    with ThreadPoolExecutor(options.jobs) as threads:
        found = zip(layout, threads.map(find, layout), strict=True)
        return {name: receipt for name, receipt in found if receipt is not None}


@dataclass
class _Builder:
    """State of one build: shards written so far, and time spent."""

    folder: Path
    work_folder: Path
    index: CorpusIndex
    config: Config
    options: BuildOptions
    progress: Callable[[int], object]
    written: set[ShardName] = field(default_factory=set)
    stage_seconds: Counter[str] = field(default_factory=Counter)

    def bring_up_to_date(self, layout: Layout) -> None:
        """Write every missing or stale shard of the layout and remove all others."""
        current = current_receipts(self.folder, layout, self.index, self.config, self.options)
        for name, (receipt, is_refreshed) in current.items():
            if is_refreshed:
                with atomic_write(receipt_path(self.folder, name), self.work_folder) as file:
                    file.write(receipt_bytes(receipt))
        stale = [name for name in layout if name not in current]
        self.progress(sum(len(layout[name]) for name in current))
        if stale or not set(existing_shard_files(self.folder)) <= self._files(layout):
            self._check_free_space(layout, stale)
            invalidate(self.folder)
        remove_shards_but(self.folder, layout, self._files(layout))
        tasks = [
            ShardTask(
                folder=self.folder,
                work_folder=self.work_folder,
                name=name,
                rows=tuple(layout[name]),
                roots=self.index.roots,
                config=self.config,
                symbols=self.index.symbols,
                clip_seconds=self.options.clip_seconds,
            )
            for name in stale
        ]
        run_tasks(tasks, self.options.pool, self._done)
        self._read_changed_again(tasks)
        self._check_texts()

    def _read_changed_again(self, tasks: Sequence[ShardTask]) -> None:
        """Write shards again whose sounds have changed since they were read; reject sounds that have changed twice."""
        for is_second in (False, True):
            changed = self._changed(tasks)
            if not changed:
                return
            again = [task for task in tasks if task.name in changed]
            tasks = [replace(task, condemned=changed[task.name] if is_second else {}) for task in again]
            run_tasks(tasks, self.options.pool, self._done)
        if self._changed(tasks):
            raise _changing(self.index.roots[0])

    def _check_texts(self) -> None:
        """Raise CorpusError if a table or transcript has changed since it was read: its sounds may be others too."""
        for path, identity in self.index.text_files:
            if identity_of(path) != identity:
                raise _changing(path)

    def _changed(self, tasks: Sequence[ShardTask]) -> dict[ShardName, dict[str, Reason]]:
        """Return shard -> id -> reason of the sounds that are no longer those that were read."""
        receipts = ((task.name, load_receipt(self.folder, task.name)) for task in tasks)
        changed = {name: changed_rows(receipt, self.index.roots) for name, receipt in receipts if receipt is not None}
        return {name: dict.fromkeys(ids, Reason.CHANGED_WHILE_READ) for name, ids in changed.items() if ids}

    def _files(self, names: Iterable[ShardName]) -> set[str]:
        """Return the names of all files of these shards."""
        buckets = len(bucket_specs(self.config))
        files = {file for name in names for file in name.files(buckets)}
        return files | {file for name in names for file in name.wave_files(buckets) if self.config.cache.store_waves}

    def _check_free_space(self, layout: Layout, stale: list[ShardName]) -> None:
        needed = self._needed_bytes(layout, stale, {})
        # That counts each row as one of the largest bucket.
        if needed > shutil.disk_usage(self.folder).free and buckets_of(self.config):
            verdicts = judge_rows(self.index, self.config, self.config.limits)
            needed = self._needed_bytes(layout, stale, buckets_of_rows(self.index, self.config, verdicts))
        check_free_space(self.folder, needed)

    def _needed_bytes(self, layout: Layout, stale: list[ShardName], buckets: Mapping[str, int]) -> int:
        sizes = planned_bytes(layout, self.config, buckets)
        new_bytes = sum(sizes[name] for name in stale) + _OTHER_BYTES_PER_ROW * len(self.index.rows)
        reused = self._files([name for name in layout if name not in stale])
        old_bytes = sum((self.folder / file).stat().st_size for file in set(existing_shard_files(self.folder)) - reused)
        # A shard's old file is replaced only when the new one is complete.
        unfinished_bytes = min(self.options.jobs, len(stale)) * max((sizes[name] for name in stale), default=0)
        return min(new_bytes, new_bytes - old_bytes + unfinished_bytes)

    def _done(self, result: ShardResult) -> None:
        self.written.add(result.name)
        self.stage_seconds.update(result.stage_seconds)
        self.progress(result.rows)


def _changing(path: Path) -> CorpusError:
    return CorpusError(f"{path}: changed while the corpus was read; run again when nothing writes it")


def _rejected_ids(folder: Path, index: CorpusIndex, *, final: bool) -> set[str]:
    """Return the ids that receipts call rejected, beyond validation only if validation would be empty.

    Before a run (`final` False) a clip that timed out or crashed counts as usable, since it is retried.
    """
    names = existing_shards(folder)
    validation = {row.id for row in index.rows if row.split == "val"}
    rejected = _rejected_in(folder, [name for name in names if name.split == "val"], final=final)
    if validation - rejected:
        return rejected
    return rejected | _rejected_in(folder, names, final=final)


def _rejected_in(folder: Path, names: list[ShardName], *, final: bool) -> set[str]:
    return {
        clip.id
        for clip in _clips_of(folder, names)
        if not clip.is_kept and (final or clip.reason not in PASSING_REASONS)
    }


def _clips_of(folder: Path, names: Iterable[ShardName]) -> Iterator[ClipReceipt]:
    """Yield the rows of the valid receipts of these shards, kept and rejected."""
    for name in names:
        if (receipt := load_receipt(folder, name)) is not None:
            yield from receipt.rows

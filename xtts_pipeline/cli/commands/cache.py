"""`xtts cache`, and the copy of `xtts train --stage`: copies of caches, parts of one, and several as one."""

import hashlib
import math
import sys
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from tqdm import tqdm

from xtts_pipeline.cache.build.folder import format_bytes
from xtts_pipeline.cache.compose import SourceCache, compose_cache
from xtts_pipeline.cache.copy import copy_cache, stage_cache
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import SummaryGroup
from xtts_pipeline.cli.options import (
    CACHE_FOLDER,
    COUNT,
    FOLDER,
    STORED_CACHE_FOLDER,
    Share,
    clear_place,
    json_option,
    print_report,
    print_warnings,
)
from xtts_pipeline.cli.progress import progress_bar
from xtts_pipeline.corpus.ids import read_ids
from xtts_pipeline.errors import ConfigError, did_you_mean
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import counted, escape, printable

STAGING_JOBS = 8


@dataclass(frozen=True)
class ComposeReport:
    """A new cache of the records of others."""

    cache: Path
    manifest: Manifest

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        splits = {split: self.manifest.split_records(split) for split in SPLITS}
        return {"cache": str(self.cache), "kept": self.manifest.counts.kept, "splits": splits}

    def to_text(self) -> str:
        """Return the report in a line for people."""
        splits = ", ".join(f"{split} {count}" for split in SPLITS if (count := self.manifest.split_records(split)))
        size = format_bytes(sum(entry.bytes for entry in self.manifest.all_files.values()))
        return f"{self.cache}: {counted(self.manifest.counts.kept, 'utterance')} ({splits}), {size}"


@click.group(cls=SummaryGroup)
def cache() -> None:
    """Copy caches, take a part of one, or merge several."""


@cache.command(example="xtts cache push cache/ gs://bucket/cache")
@click.argument("source", type=STORED_CACHE_FOLDER, metavar="SRC")
@click.argument("target", type=STORED_CACHE_FOLDER, metavar="DST")
@click.option("--jobs", type=COUNT, default=8, show_default=True, help="Number of files that are copied at a time.")
@json_option
def push(source: Path, target: Path, jobs: int, as_json: bool) -> None:
    """Copy the cache SRC to DST, such as gs://bucket/cache. It replaces a cache that is there.

    The manifest is copied last, so that an incomplete copy is never taken for a cache.
    """
    _copy("push", source, target, jobs, as_json)


@cache.command(example="xtts cache pull gs://bucket/cache cache/")
@click.argument("source", type=STORED_CACHE_FOLDER, metavar="SRC")
@click.argument("target", type=CACHE_FOLDER, metavar="DST")
@click.option("--jobs", type=COUNT, default=8, show_default=True, help="Number of files that are copied at a time.")
@json_option
def pull(source: Path, target: Path, jobs: int, as_json: bool) -> None:
    """Copy the cache SRC, such as gs://bucket/cache, to a local folder DST. It replaces a cache that is there.

    Each file is checked by the manifest. The same command continues a copy that was interrupted.
    """
    _copy("pull", source, target, jobs, as_json)


def _copy(title: str, source: Path, target: Path, jobs: int, as_json: bool) -> None:
    with reaching_stores(source, target), progress_bar(None, "B", title) as bar:
        report = copy_cache(source, target, jobs, bar.update, _note)
    print_report(report, as_json)


@cache.command(example="xtts cache subset --share 10% cache/ small/")
@click.argument("source", type=CACHE_FOLDER, metavar="SRC")
@click.argument("target", type=CACHE_FOLDER, metavar="DST")
@click.option("--ids", type=FOLDER, help="Text file of the ids to take, one a line; `# ` begins a comment.")
@click.option("--speaker", "speakers", multiple=True, help="Speaker to take; repeatable.")
@click.option("--share", type=Share(), help="Share of each split to take, always the same utterances.")
@json_option
def subset(
    source: Path, target: Path, ids: Path | None, speakers: tuple[str, ...], share: float | None, as_json: bool
) -> None:
    """Write a part of the cache SRC to the new folder DST.

    With several options, an utterance is taken if both `--ids` and `--speaker` take it; `--share` is a share of those.
    """
    if not (ids or speakers or share is not None):
        raise ConfigError("--ids, --speaker, --share: found none of them; name the utterances to take")
    if share == 0.0:
        raise ConfigError("--share: found 0%, expected over 0%; name a share such as 10%")
    whole = _source(source)
    known = whole.manifest.speakers
    speakers = tuple(name if name in known else unicodedata.normalize("NFC", name) for name in speakers)
    unknown = sorted(set(speakers) - set(known))
    if unknown:
        raise ConfigError(f"--speaker {unknown[0]}: unknown; {did_you_mean(unknown[0], known)}")
    wanted = None if ids is None else read_ids(ids)
    listed = list(read_utterances(source))
    entries = [
        entry
        for entry in listed
        if (wanted is None or entry.id in wanted) and (not speakers or entry.speaker in speakers)
    ]
    missing = (wanted or frozenset()) - {entry.id for entry in listed}
    if missing:
        found = f"{len(missing)} of {len(wanted or ())} are not in {source}, such as {printable(min(missing))}"
        print_warnings([f"--ids: {found}"])
    taken = {entry.id for entry in (entries if share is None else _share_of(entries, share))}
    _compose([whole], target, taken, as_json)


@cache.command(example="xtts cache merge first/ second/ both/")
@click.argument("sources", type=CACHE_FOLDER, nargs=-1, required=True, metavar="SRC...")
@click.argument("target", type=CACHE_FOLDER, metavar="DST")
@json_option
def merge(sources: tuple[Path, ...], target: Path, as_json: bool) -> None:
    """Write the utterances of several caches with the same settings to the new folder DST."""
    _compose([_source(source) for source in sources], target, None, as_json)


def _source(folder: Path) -> SourceCache:
    require_whole(folder)
    return SourceCache(folder, load_manifest(folder))


def _share_of(entries: Sequence[UtteranceEntry], share: float) -> list[UtteranceEntry]:
    """Return this share of each split, at least one; a larger share contains a smaller one."""
    chosen = []
    for split in SPLITS:
        among = sorted(
            (entry for entry in entries if entry.split == split),
            key=lambda entry: hashlib.sha256(entry.id.encode()).digest(),
        )
        # Rounded, since 0.07 * 100 is a little over 7.
        chosen += among[: max(1, math.ceil(round(share * len(among), 6)))]
    return chosen


def _compose(sources: Sequence[SourceCache], target: Path, taken: Collection[str] | None, as_json: bool) -> None:
    for source in sources:
        check_apart(target, source.folder, "choose another DST")
    target = clear_place(target, "choose another DST")
    total = sum(source.manifest.counts.kept for source in sources) if taken is None else len(taken)
    with progress_bar(total) as bar:
        manifest = compose_cache(sources, target, taken, bar.update)
    print_report(ComposeReport(target, manifest), as_json)


def stage(source: Path, folder: Path) -> Path:
    """Return a whole local copy of the cache under `folder`. Raises CacheError as `stage_cache` does."""
    with progress_bar(None, "B", "stage") as bar:
        return stage_cache(source, folder, STAGING_JOBS, bar.update, _note)


def _note(line: str) -> None:
    """Write a line on stderr, above any bar."""
    tqdm.write(escape(line), file=sys.stderr)

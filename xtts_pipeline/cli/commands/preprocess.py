"""`xtts preprocess`: turn a corpus into a cache, and report every row."""

import operator
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click

from xtts_pipeline.audio.filterbank import describe_short_window, describe_silent_filters
from xtts_pipeline.cache.build.build import (
    BuildOptions,
    BuildResult,
    build_cache,
    refuse_other_corpus,
    refuse_predicted_cache,
)
from xtts_pipeline.cache.build.estimate import BuildEstimate, estimate_build
from xtts_pipeline.cache.build.folder import check_folder, format_bytes, locked_folder
from xtts_pipeline.cache.build.outliers import Outlier, find_outliers
from xtts_pipeline.cache.build.plan import CorpusIndex, read_corpora
from xtts_pipeline.cache.build.pool import Pool, local_pool
from xtts_pipeline.cache.build.receipts import SourceCheck
from xtts_pipeline.cache.format.manifest import REJECTED_NAME
from xtts_pipeline.cache.format.padding import padding_advice, padding_share
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cli.clip_counts import clip_count_lines, like_speakers_warnings
from xtts_pipeline.cli.corpus_options import CORPUS_OPTIONS, corpus_options, print_readings
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    Choice,
    Share,
    cache_option,
    jobs_option,
    json_option,
    print_report,
    print_warnings,
)
from xtts_pipeline.cli.progress import progress_bar
from xtts_pipeline.cli.run_options import config_options, wait_workers_option
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import AudioConfig, Config
from xtts_pipeline.corpus.ids import read_ids
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.utterance import examples_by_reason
from xtts_pipeline.errors import ConfigError, InterruptedRunError, Reason
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.terminal import counted, duration_text, echo_line, join_lines
from xtts_pipeline.text.language_check import check_languages

SHOWN_OUTLIERS = 10
KNOWN_TEXTS_SHARE = 0.05  # of the validation clips; a few repeated sentences change no figure


@dataclass(frozen=True)
class PreprocessReport:
    """The result of a build."""

    build: BuildResult
    outliers: list[Outlier]
    seconds: float
    max_rejected: float
    cache: Path
    language_warnings: list[str]
    advice: list[str]

    @property
    def is_over_limit(self) -> bool:
        """Whether a larger share of the rows was rejected than allowed."""
        manifest = self.build.manifest
        excluded = len(manifest.excluded)
        return _is_over_limit(manifest.counts.rejected, manifest.counts.read, excluded, self.max_rejected)

    @property
    def examples(self) -> dict[str, dict[str, str]]:
        """The first rejected row of each reason."""
        return examples_by_reason(rejection for _, rejection in self.build.totals.rejections)

    @property
    def clips_by_bucket(self) -> list[int]:
        """The number of records in each bucket; one number if there are no buckets."""
        manifest = self.build.manifest
        return [
            sum(manifest.split_records(split, bucket) for split in SPLITS) for bucket in range(manifest.bucket_count)
        ]

    @property
    def warnings(self) -> list[str]:
        """What the user should check, one line each."""
        changes, manifest = self.build.settings_changed, self.build.manifest
        anew = "" if self.build.shards_reused else "; all shards were written anew"
        warnings = [f"changed setting: {change}{anew}" for change in changes]
        if not manifest.cache.store_waves and any(change.startswith("cache.store_waves:") for change in changes):
            warnings.append("the stored waves are gone; --set cache.store_waves=true writes them again")
        # A single clip is for training, whatever the corpus says.
        is_split = manifest.cache.validation_share > 0 and manifest.split_records("train") > 1
        if is_split and not manifest.split_records("val"):
            warnings.append(
                "no clip is for validation, since the corpus names the split of all clips, by a column or the name of "
                "a table or folder: train will have no validation loss and no best checkpoint; take that column or "
                "name away to have some set aside, or name other clips with --val-data"
            )
        known, validated = self.build.totals.known_validation_texts, manifest.split_records("val")
        if known > KNOWN_TEXTS_SHARE * validated:
            warnings.append(
                f"{known} of {counted(validated, 'validation clip')} have the text of a training clip: their figures "
                "do not tell how well new texts are spoken; move all takes of some sentences into a corpus of their "
                "own, for --val-data"
            )
        warnings += _setting_warnings(self.build.manifest.audio)
        warnings += like_speakers_warnings(manifest.speakers)
        for outlier in self.outliers[:SHOWN_OUTLIERS]:
            rates = f"{outlier.characters_per_second:.1f} characters a second, {outlier.usual:.1f} are usual"
            warnings.append(f"{outlier.id}: {rates}; does the text fit the sound?")
        if len(self.outliers) > SHOWN_OUTLIERS:
            count = len(self.outliers) - SHOWN_OUTLIERS
            warnings.append(f"{count} more clips with unusual rates; --json lists them all")
        if dense := sum(map(operator.gt, self.build.totals.tokens, self.build.totals.frames)):
            warnings.append(
                f"{counted(dense, 'clip')} of more tokens than frames: the model cannot align them and learns nothing "
                "from them; audio.hop_samples or text.blank=false changes that"
            )
        return warnings

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        manifest, build = self.build.manifest, self.build
        return {
            "read": manifest.counts.read,
            "kept": manifest.counts.kept,
            "rejected": manifest.counts.rejected,
            "max_rejected": self.max_rejected,
            "is_over_max_rejected": self.is_over_limit,
            "shards_written": build.shards_written,
            "shards_reused": build.shards_reused,
            "seconds": round(self.seconds, 3),
            "clips_per_second": round(manifest.counts.read / self.seconds, 1),
            "layout": manifest.layout,
            "clips_by_speaker": dict(Counter(self.build.totals.speakers)),
            "clips_by_language": dict(Counter(self.build.totals.languages)),
            "splits": {split: manifest.split_records(split) for split in SPLITS},
            "buckets": [
                {"max_text_length": text, "max_mel_frames": mel, "clips": clips}
                for (text, mel), clips in zip(manifest.buckets, self.clips_by_bucket, strict=False)
            ],
            "rejected_by_reason": dict(manifest.rejected_by_reason),
            "examples": self.examples,
            "stage_seconds": {stage: round(seconds, 3) for stage, seconds in build.stage_seconds.items()},
            "settings_changed": list(build.settings_changed),
            "outliers": [outlier.to_json() for outlier in self.outliers],
            "warnings": self.language_warnings + self.warnings,
        }

    def to_text(self) -> str:
        """Return the report for people."""
        manifest, build = self.build.manifest, self.build
        counts = manifest.counts
        records = {split: manifest.split_records(split) for split in SPLITS}
        rate = counts.read / self.seconds
        splits = ", ".join(f"{split} {count}" for split, count in records.items() if count)
        buckets = ", ".join(
            f"{list(bucket)} {clips}" for bucket, clips in zip(manifest.buckets, self.clips_by_bucket, strict=False)
        )
        lines = [
            f"{manifest.layout}: read {counts.read} = kept {counts.kept} + rejected {counts.rejected}",
            f"splits: {splits or 'none'}",
            *clip_count_lines(Counter(build.totals.speakers), Counter(build.totals.languages)),
            *([f"buckets: {buckets}"] if buckets else []),
            f"shards: {build.shards_written} written, {build.shards_reused} reused",
            f"padding: {padding_share(manifest):.0%} of the frames",
            f"time: {duration_text(self.seconds, 1)}, {rate:.{0 if rate >= 10 else 1}f} clips/s",
        ]
        busy = sum(build.stage_seconds.values())
        if busy:
            shares = ", ".join(f"{stage} {spent / busy:.0%}" for stage, spent in build.stage_seconds.items())
            lines.append(f"workers: {shares}")
        lines.append(f"cache: {self.cache}, {format_bytes(sum(entry.bytes for entry in manifest.all_files.values()))}")
        lines += [*self.advice, *(f"warning: {warning}" for warning in self.warnings)]
        if counts.rejected:
            limit = f"over --max-rejected {self.max_rejected:.2%}, though the cache is complete; "
            over = limit if self.is_over_limit else ""
            lines.append(f"{over}rejected rows, each in {self.cache / REJECTED_NAME} with its reason:")
        lines += _reason_table(manifest.rejected_by_reason, counts.read, self.examples)
        return join_lines(lines)


@dataclass(frozen=True)
class DryRunReport:
    """The estimate of a build."""

    plan: BuildEstimate
    max_rejected: float
    warnings: list[str]

    @property
    def is_over_limit(self) -> bool:
        """Whether a larger share of the rows would be rejected than allowed."""
        excluded = self.plan.rejected_by_reason.get(Reason.EXCLUDED, 0)
        return _is_over_limit(self.plan.rejected, self.plan.read, excluded, self.max_rejected)

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        limit = {"max_rejected": self.max_rejected, "is_over_max_rejected": self.is_over_limit}
        return {"dry_run": True, **asdict(self.plan), **limit, "warnings": self.warnings}

    def to_text(self) -> str:
        """Return the report for people."""
        plan = self.plan
        counts = f"would read {plan.read} = keep {plan.kept} + reject {plan.rejected}"
        shards = ", ".join(f"{split} {count}" for split, count in plan.shards.items())
        over = [f"over --max-rejected {self.max_rejected:.2%}:"] if self.is_over_limit else []
        return join_lines(
            [
                f"{plan.layout}: {counts}, by texts and headers",
                f"hours: {plan.hours:.2f}",
                *([f"buckets: {', '.join(str(list(bucket)) for bucket in plan.buckets)}"] if plan.buckets else []),
                f"shards: {shards or 'none'}; {plan.shards_to_write} to write, {format_bytes(plan.bytes_to_write)}",
                f"free disk: {format_bytes(plan.free_bytes)}",
                f"time: about {duration_text(plan.estimated_seconds)}, by a short sample",
                *(f"warning: {warning}" for warning in self.warnings),
                *over,
                *_reason_table(plan.rejected_by_reason, plan.read, plan.examples),
            ]
        )


@click.command(
    cls=DocumentedCommand,
    example="xtts preprocess --data LJSpeech-1.1 --config ljspeech",
    sections={
        "How the corpus is read": CORPUS_OPTIONS,
        "Rejected rows and changed clips": ["max_rejected", "exclude", "check", "dry_run"],
        "Shards and workers": ["jobs", "shards", "reshard", "backend", "scheduler", "wait_workers"],
    },
)
@click.option("--data", type=FOLDER, required=True, help="Folder of the corpus, or its manifest file.")
@cache_option
@config_options
@corpus_options
@click.option("--val-data", type=FOLDER, help="A second corpus that becomes the validation split.")
@jobs_option("Number of worker processes.")
@click.option(
    "--max-rejected",
    type=Share(),
    default="5%",
    show_default=True,
    help="Exit with 1 if a larger share of the rows is rejected.",
)
@click.option("--exclude", type=FOLDER, help="Text file of ids to leave out, one a line; `# ` begins a comment.")
@click.option(
    "--shards",
    type=COUNT,
    help="Number of training shards.  [default: that of an earlier cache, or by cache.records_per_shard]",
)
@click.option("--reshard", is_flag=True, help="Choose the number of shards, and `auto` buckets, as for a new cache.")
@click.option(
    "--check",
    type=Choice(["stat", "content"]),
    default="stat",
    show_default=True,
    help="How changed sound files are found: by size and time, or by their bytes.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be written, by texts, headers and a few clips that are timed; the exit code is that of the "
    "whole run.",
)
@click.option(
    "--backend",
    type=Choice(["local", "dask"]),
    default="local",
    show_default=True,
    help="Where the workers run: on this machine or in a dask cluster.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Address of the dask scheduler.")
@wait_workers_option
@json_option
def preprocess(
    data: Path,
    cache: Path,
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    reading: ReadOptions,
    val_data: Path | None,
    jobs: int,
    max_rejected: float,
    exclude: Path | None,
    shards: int | None,
    reshard: bool,
    check: SourceCheck,
    dry_run: bool,
    backend: Literal["local", "dask"],
    scheduler: str | None,
    wait_workers: float,
    as_json: bool,
) -> None:
    """Turn a corpus into a cache of mel spectrograms and tokens.

    A second run writes only what has changed, and an interrupted run is continued.
    """
    config = load_config(configs, overrides)
    refuse_predicted_cache(cache)
    options = BuildOptions(_pool(backend, scheduler, jobs, wait_workers), jobs, check, shards, reshard)
    excluded = frozenset[str]() if exclude is None else read_ids(exclude)
    report: PreprocessReport | DryRunReport
    if dry_run:
        check_folder(cache)
        with tempfile.TemporaryDirectory(prefix="xtts-") as sounds:
            index = _read(data, val_data, reading, config, excluded, Path(sounds))
            refuse_other_corpus(cache, index)
            warnings = _language_warnings(index, config) + _setting_warnings(config.audio)
            if any(root.is_relative_to(sounds) for root in index.roots):
                # Sounds written a moment ago have other times than those that the cache was made from.
                options = replace(options, check="content")
            report = DryRunReport(estimate_build(cache, index, config, options), max_rejected, warnings)
    else:
        with _naming_cache(cache), locked_folder(cache) as work_folder:
            index = _read(data, val_data, reading, config, excluded)
            refuse_other_corpus(cache, index)
            language_warnings = _language_warnings(index, config)
            print_warnings(language_warnings)
            with progress_bar(len(index.rows)) as bar:
                build = build_cache(cache, work_folder, index, config, options, bar.update)
        advice = padding_advice(build.manifest, config)
        report = PreprocessReport(
            build, find_outliers(build.totals), process_seconds(), max_rejected, cache, language_warnings, advice
        )
    print_report(report, as_json, is_true=not report.is_over_limit)


@contextmanager
def _naming_cache(cache: Path) -> Iterator[None]:
    """Say after an interruption that the work is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedRunError(f"{cache}: interrupted; the same command goes on") from None


def process_seconds() -> float:
    """Return the seconds since the start of this process, imports included."""
    status = Path("/proc/self/stat").read_text(encoding="ascii")
    start_ticks = int(status.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


def _read(
    data: Path,
    val_data: Path | None,
    reading: ReadOptions,
    config: Config,
    excluded: frozenset[str],
    sound_folder: Path | None = None,
) -> CorpusIndex:
    index = read_corpora(data, val_data, reading, config, excluded, sound_folder)
    print_readings(index)
    unknown = excluded - {row.id for row in index.rows} - {rejection.id for _, rejection in index.rejections}
    if unknown:
        print_warnings([f"--exclude: {len(unknown)} of {len(excluded)} ids are in no row, such as {min(unknown)}"])
    return index


def _is_over_limit(rejected: int, read: int, excluded: int, max_rejected: float) -> bool:
    """Return whether a larger share of the rows was rejected than allowed; excluded rows do not count."""
    # Rounded, since 0.29 * 100 is a little under 29.
    return rejected - excluded > round(max_rejected * (read - excluded), 6)


def _pool(backend: Literal["local", "dask"], scheduler: str | None, jobs: int, wait_workers: float) -> Pool:
    if backend == "local":
        if scheduler is not None:
            raise ConfigError(f"--scheduler {scheduler}: only --backend dask has a scheduler; add it or leave this out")
        return local_pool(jobs)
    if scheduler is None:
        raise ConfigError("--backend dask: no --scheduler; expected its address, such as tcp://10.0.0.1:8786")
    try:
        from xtts_pipeline.cache.build.dask_pool import dask_pool  # the extra `dask`
    except ImportError:
        raise ConfigError(f"--backend dask: distributed is not installed; {install_command('dask')}") from None
    return dask_pool(scheduler, wait_workers, echo_line)


def _language_warnings(index: CorpusIndex, config: Config) -> list[str]:
    return check_languages([row.raw_text for row in index.rows], [row.language for row in index.rows], config.text)


def _setting_warnings(audio: AudioConfig) -> list[str]:
    """Return warnings about settings that are valid but probably not intended."""
    return [*filter(None, (describe_silent_filters(audio), describe_short_window(audio)))]


def _reason_table(
    rejected_by_reason: Mapping[str, int], read: int, examples: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return two lines per reason, the most frequent first: its count; id, place and detail of its first row."""
    lines = []
    for reason, count in sorted(rejected_by_reason.items(), key=lambda item: (-item[1], item[0])):
        example = examples[reason]
        place = ", ".join(filter(None, (example["id"], example["where"])))
        lines += [f"  {reason:<18} {count:>8}  {count / read:>7.2%}", f"    {place}: {example['detail']}"]
    return lines

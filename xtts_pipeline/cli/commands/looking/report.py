"""`xtts report`: a page that shows a corpus, a cache or a run."""

import os

# OpenBLAS starts its threads at import. Where other work takes a core, each small product waits for them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from xtts_pipeline.cache.build.outliers import MIN_CLIPS
from xtts_pipeline.cache.build.plan import read_corpora
from xtts_pipeline.cache.build.shapes import auto_buckets
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cli.corpus_options import corpus_options, print_readings
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    CACHE_FOLDER,
    FOLDER,
    dated_folder,
    jobs_option,
    json_option,
    print_report,
    whole_folder,
)
from xtts_pipeline.cli.progress import progress_bar
from xtts_pipeline.cli.run_options import RunPath, config_options
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Bucket, LimitsConfig
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.errors import ConfigError, CorpusError, output_errors
from xtts_pipeline.quality.clips import CachedClips, CorpusClips, MeasuredClip
from xtts_pipeline.quality.duplicates import find_duplicates
from xtts_pipeline.quality.strangeness import SUSPECT_SCORE, measure_strangeness
from xtts_pipeline.quality.symbols import symbol_counts
from xtts_pipeline.reports.clips_page import STRANGEST, ClipsContent, with_unit, write_clips_page
from xtts_pipeline.reports.page import PAGE_NAME
from xtts_pipeline.reports.run_page import read_run, write_run_page
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import counted, join_lines


@dataclass(frozen=True)
class ClipsReport:
    """What the page of a corpus or cache shows, for people and programs."""

    content: ClipsContent
    page: Path

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        clips = self.content.clips
        return {
            "page": str(self.page),
            "clips": len(clips),
            "hours": round(sum(clip.sound.seconds for clip in clips) / 3600, 4),
            "rejected": len(self.content.rejections),
            "suspects": sorted(clips[number].id for number in self.content.suspects),
            "strangest": {
                found.measure.name: [
                    {
                        "id": clips[number].id,
                        "value": round(float(found.values[number]), 4),
                        "score": round(float(found.scores[number]), 2),
                    }
                    for number in found.strangest(STRANGEST)
                ]
                for found in self.content.strangeness
            },
            "duplicates": [
                {
                    "kind": group.kind,
                    "ids": [clips[number].id for number in group.clips],
                    "likeness": round(group.likeness, 4),
                }
                for group in self.content.duplicates
            ],
        }

    def to_text(self) -> str:
        """Return the report for people."""
        content = self.content
        lines = [f"{content.title}: {counted(len(content.clips), 'clip')}, {len(content.suspects)} suspect"]
        for found in content.strangeness:
            count = int((found.scores >= SUSPECT_SCORE).sum())
            first = next(iter(found.strangest(1)), None)
            worst = "" if first is None else f"{content.clips[first].id} {with_unit(found, first)}"
            lines.append(f"  {found.measure.title:<20} {count:>6}  {worst}".rstrip())
        if not content.strangeness:
            lines.append(f"  too few clips to compare them; expected {MIN_CLIPS} or more")
        lines.append(f"  {'Repeated sounds':<20} {content.count_repeated('sound'):>6}")
        lines.append(f"  {'Repeated texts':<20} {content.count_repeated('text'):>6}")
        lines.append(f"  {'Similar texts':<20} {content.count_repeated('near text'):>6}")
        if content.rejections:
            reasons = ", ".join(f"{count} {reason}" for reason, count in content.rejected_by_reason)
            lines.append(f"  {'Left out':<20} {len(content.rejections):>6}  {reasons}")
        return join_lines([*lines, f"page     {self.page}"])


@dataclass(frozen=True)
class RunReport:
    """The page of a run."""

    run: Path
    page: Path
    steps: int

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {"page": str(self.page), "run": str(self.run), "steps": self.steps}

    def to_text(self) -> str:
        """Return the report for people."""
        return join_lines([f"{self.run}: {counted(self.steps, 'step')}", f"page     {self.page}"])


@click.command(cls=DocumentedCommand, example="xtts report --data LJSpeech-1.1 --output report")
@click.option("--data", type=FOLDER, help="Folder of a corpus; each sound is read.")
@click.option("--cache", type=CACHE_FOLDER, help="Folder of a cache; it has sounds if it was made with store_waves.")
@click.option("--run", type=RunPath(), help="Folder of a run.")
@click.option(
    "--output",
    type=FOLDER,
    default=lambda: dated_folder("report"),
    help=f"Empty or new folder for {PAGE_NAME} and its sounds.  [default: report/DATE-TIME]",
)
@config_options
@corpus_options
@jobs_option("Number of worker processes.")
@json_option
def report(
    data: Path | None,
    cache: Path | None,
    run: Path | None,
    output: Path,
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    reading: ReadOptions,
    jobs: int,
    as_json: bool,
) -> None:
    """Write a page that shows a corpus, a cache or a run."""
    if sum(source is not None for source in (data, cache, run)) != 1:
        raise ConfigError("report: expected one of --data DIR, --cache DIR and --run DIR")
    if data is None and (reading != AUTO or configs or overrides):
        raise ConfigError("report: settings and options of a corpus need --data DIR; leave them out")
    if run is not None:
        check_apart(output, run)
        content = read_run(run)
        with whole_folder(output) as partial, output_errors(output, "choose another --output", names_file=True):
            write_run_page(content, partial)
        print_report(RunReport(run, output / PAGE_NAME, content.steps), as_json)
    elif cache is not None:
        check_apart(output, cache)
        manifest = load_manifest(cache)
        source = CachedClips(cache, manifest)
        shape = manifest.limits, manifest.buckets, manifest.symbols
        found = _report_clips(f"Cache {cache}", source, *shape, manifest.counts.kept, output, jobs)
        print_report(found, as_json)
    elif data is not None:
        config = load_config(configs, overrides)
        index = read_corpora(data, None, reading, config)
        print_readings(index)
        settings = config.limits, config.data.buckets, index.symbols
        clips = CorpusClips(index, config)
        print_report(_report_clips(f"Corpus {data}", clips, *settings, len(index.rows), output, jobs), as_json)


def _report_clips(
    title: str,
    source: CachedClips | CorpusClips,
    limits: LimitsConfig,
    buckets: Sequence[Bucket] | Literal["auto"] | None,
    symbols: Sequence[str],
    total: int,
    output: Path,
    jobs: int,
) -> ClipsReport:
    with whole_folder(output) as partial:
        with progress_bar(total) as bar:
            clips, rejections = source.measure(jobs, bar.update)
        if not clips:
            raise CorpusError(f"{title}: found 0 clips with sound, expected at least one; xtts preprocess says why")
        content = ClipsContent(
            title=title,
            clips=clips,
            rejections=rejections,
            strangeness=measure_strangeness(clips, jobs),
            duplicates=find_duplicates([clip.raw_text for clip in clips], [clip.sound.cepstra for clip in clips]),
            symbols=symbol_counts(clips, symbols),
            limits=limits,
            buckets=_chosen_buckets(limits, buckets, clips),
        )
        with output_errors(output, "choose another --output", names_file=True):
            write_clips_page(content, source, partial)
    return ClipsReport(content, output / PAGE_NAME)


def _chosen_buckets(
    limits: LimitsConfig, buckets: Sequence[Bucket] | Literal["auto"] | None, clips: Sequence[MeasuredClip]
) -> list[Bucket]:
    if buckets != "auto":
        return list(buckets or ())
    return list(auto_buckets(limits, [clip.tokens for clip in clips], [clip.sound.frames for clip in clips]))

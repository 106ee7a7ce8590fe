"""`xtts stats`: the lengths of clips and texts, and the limits that fit them."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from xtts_pipeline.cache.build.bucketing import RowLengths, judge_rows, rejections_of
from xtts_pipeline.cache.build.plan import CorpusIndex, read_corpora
from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.build.shapes import Shape, ShapePlan, auto_buckets, best_shapes, plan_shapes, smallest_shape
from xtts_pipeline.cache.format.listings import UtteranceEntry, read_utterances
from xtts_pipeline.cache.format.manifest import (
    REJECTED_NAME,
    UTTERANCES_NAME,
    Manifest,
    Statistics,
    load_manifest,
    summarize,
)
from xtts_pipeline.cache.format.padding import limit_options
from xtts_pipeline.cli.clip_counts import clip_count_lines, like_speakers_warnings
from xtts_pipeline.cli.corpus_options import corpus_options, print_readings
from xtts_pipeline.cli.gate import reaching_stores
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import FOLDER, PICTURE, STORED_CACHE_FOLDER, json_option, print_report, print_warnings
from xtts_pipeline.cli.run_options import config_options
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Bucket, Config, LimitsConfig, TextConfig
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.errors import CacheError, ConfigError, CorpusError
from xtts_pipeline.plots import save_histograms
from xtts_pipeline.quality.symbols import RARE_COUNT, SymbolCount, symbol_counts
from xtts_pipeline.system.storage import check_apart
from xtts_pipeline.system.terminal import counted, join_lines
from xtts_pipeline.text.language_check import check_languages

MOST_SHAPES = 4
LIMITS_DRAWN = {
    "seconds": ("min_seconds", "max_seconds"),
    "frames": ("max_mel_frames",),
    "tokens": ("max_text_length",),
}
# The statistics of the table that a histogram marks.
MARKS = ("p50", "p99")
# From here on two decimals would join the columns.
WIDE = 10_000


@dataclass(frozen=True)
class Lengths:
    """The measured lengths, one element per clip.

    excluded: the number of rows that the user left out. unusable: that of the others that are no clips, and
    first_unusable what is wrong with them, or with the first of them.
    """

    seconds: np.ndarray
    frames: np.ndarray
    characters: np.ndarray
    tokens: np.ndarray
    excluded: int
    unusable: int
    first_unusable: str
    rows: Sequence[PlannedRow | UtteranceEntry]

    @property
    def measures(self) -> Mapping[str, np.ndarray]:
        """Every measure by its name in the report."""
        return {
            "seconds": self.seconds,
            "frames": self.frames,
            "characters": self.characters,
            "tokens": self.tokens,
            "characters_per_second": self.characters / self.seconds,
        }


@dataclass(frozen=True)
class LimitShare:
    """The share of the clips that one limit alone keeps, and whether the settings have this limit."""

    limit: str
    value: float
    share: float
    is_in_force: bool


@dataclass(frozen=True)
class StatsReport:
    """The lengths of a corpus or cache, and the shapes that fit them.

    everything: the shape that keeps every clip.
    plans: 1, 2, 3, ... shapes; the first is the recommended shape alone.
    buckets: those of the cache or the settings; None if there are none.
    speakers, languages: the number of clips of each.
    """

    source: str
    clips: int
    excluded: int
    unusable: int
    first_unusable: str
    hours: float
    speakers: Mapping[str, int]
    languages: Mapping[str, int]
    spreads: Mapping[str, Statistics]
    limits: tuple[LimitShare, ...]
    everything: ShapePlan
    buckets: ShapePlan | None
    plans: tuple[ShapePlan, ...]
    plot: Path | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {
            "source": self.source,
            "clips": self.clips,
            "excluded": self.excluded,
            "unusable": self.unusable,
            "hours": round(self.hours, 4),
            "speakers": len(self.speakers),
            "clips_by_speaker": dict(self.speakers),
            "clips_by_language": dict(self.languages),
            **{
                name: {key: round(value, 4) for key, value in asdict(statistics).items()}
                for name, statistics in self.spreads.items()
            },
            "limits": [
                {
                    "limit": limit.limit,
                    "value": limit.value,
                    "keeps": round(limit.share, 4),
                    "in_force": limit.is_in_force,
                }
                for limit in self.limits
            ],
            "recommended": asdict(self.plans[0].shapes[-1]),
            "everything": self.everything.to_json(),
            "buckets": None if self.buckets is None else self.buckets.to_json(),
            "plans": [plan.to_json() for plan in self.plans],
            "plot": None if self.plot is None else str(self.plot),
            "warnings": list(self.warnings),
        }

    def _plan_line(self, name: str, plan: ShapePlan) -> str:
        shapes = ", ".join(f"{shape.max_text_length} x {shape.max_mel_frames}" for shape in plan.shapes)
        return f"  {name:12} keeps {plan.kept / self.clips:>7.2%}, padding {plan.waste:>6.1%}: {shapes}"

    def to_text(self) -> str:
        """Return the report for people."""
        left_out = f", {counted(self.excluded, 'row')} left out" if self.excluded else ""
        left_out += f", {counted(self.unusable, 'row')} cannot be used" if self.unusable else ""
        counts = f"{counted(self.clips, 'clip')}, {self.hours:.2f} hours, {counted(len(self.speakers), 'speaker')}"
        lines = [f"{self.source}: {counts}{left_out}", *[f"  {self.first_unusable}"] * bool(self.unusable)]
        lines += [*(f"  {line}" for line in clip_count_lines(self.speakers, self.languages)), ""]
        lines.append(f"{'':22}" + "".join(f"{column.name:>8}" for column in fields(Statistics)))
        for name, statistics in self.spreads.items():
            values = "".join(f"{value:>8.{2 * (value < WIDE)}f}" for value in astuple(statistics))
            lines.append(f"{name:22}{values}")
        lines += ["", "each limit alone keeps"]
        lines += [
            f"  limits.{limit.limit:<16} {limit.value:>8g} {limit.share:>9.2%}" + "  in force" * limit.is_in_force
            for limit in self.limits
        ]
        lines += ["", "limits as max_text_length x max_mel_frames"]
        names = ["all clips", "recommended", *(f"{count} shapes" for count in range(2, len(self.plans) + 1))]
        for name, plan in zip(names, (self.everything, *self.plans), strict=True):
            lines.append(self._plan_line(name, plan))
            if name == "recommended":
                lines.append(f"  {'as options':12} {limit_options(*astuple(plan.shapes[-1]))}")
        if self.buckets is not None:
            lines.append(self._plan_line("data.buckets", self.buckets))
            shapes = zip(self.buckets.shapes, self.buckets.clips, self.buckets.wastes, strict=True)
            lines += [
                f"    [{shape.max_text_length}, {shape.max_mel_frames}]: {counted(clips, 'clip')}, padding {waste:.1%}"
                for shape, clips, waste in shapes
            ]
        if self.plot is not None:
            lines += ["", f"picture  {self.plot}"]
        return join_lines(lines)


@dataclass(frozen=True)
class SymbolsReport:
    """How often each symbol is in the texts, the most frequent first; `unused`: symbols that no text has."""

    source: str
    clips: int
    symbols: tuple[SymbolCount, ...]
    unused: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        symbols = [symbol.to_json() for symbol in self.symbols]
        return {**vars(self), "symbols": symbols, "unused": list(self.unused), "warnings": list(self.warnings)}

    def to_text(self) -> str:
        """Return the report for people."""
        rare = sum(symbol.mark == "rare" for symbol in self.symbols)
        counts = f"{counted(self.clips, 'text')}, {counted(len(self.symbols), 'symbol')}"
        lines = [f"{self.source}: {counts}, {rare} rare (under {RARE_COUNT} times)", ""]
        lines.append(f"{'symbol':8}{'code':8}{'count':>9}  {'':8}example id")
        for symbol in self.symbols:
            is_mark = unicodedata.category(symbol.symbol)[0] in "MC"
            shown = " " if is_mark else f"'{symbol.symbol}'"
            code = f"U+{ord(symbol.symbol):04X}"
            lines.append(f"{shown:8}{code:8}{symbol.count:>9}  {symbol.mark:8}{symbol.example}")
        if self.unused:
            lines += ["", f"{counted(len(self.unused), 'symbol')} that no text has"]
        return join_lines(lines)


@click.command(cls=DocumentedCommand, example="xtts stats --data LJSpeech-1.1 --plot lengths.png")
@click.option("--data", type=FOLDER, help="Folder of a corpus; its headers and texts are read.")
@click.option("--cache", type=STORED_CACHE_FOLDER, help="Folder or store of a cache; its utterances.jsonl is read.")
@config_options
@corpus_options
@click.option(
    "--symbols", is_flag=True, help="Count the symbols of the texts instead: each with an example, rare ones marked."
)
@click.option("--plot", type=PICTURE, help="Write histograms of the lengths as a PNG, SVG or PDF file.")
@json_option
def stats(
    data: Path | None,
    cache: Path | None,
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    reading: ReadOptions,
    plot: Path | None,
    symbols: bool,
    as_json: bool,
) -> None:
    """Show how long clips and texts are, and which limits fit them."""
    config = load_config(configs, overrides, {} if cache is None else _limits_of(cache))
    report: StatsReport | SymbolsReport
    if symbols:
        if plot is not None:
            raise ConfigError(f"stats: --plot {plot} draws lengths, --symbols counts symbols; leave one out")
        report = count_symbols(data, cache, config, reading)
    else:
        report = measure_lengths(data, cache, config, plot, reading)
    print_warnings(report.warnings)
    print_report(report, as_json)


def _limits_of(cache: Path) -> dict[str, Any]:
    """Return the limits that a cache was made with, as settings: buckets end at them."""
    with reaching_stores(cache):
        return {"limits": load_manifest(cache).limits.model_dump(mode="json")}


def measure_lengths(
    data: Path | None, cache: Path | None, config: Config, plot: Path | None, reading: ReadOptions = AUTO
) -> StatsReport:
    """Measure the corpus `data` by its texts and headers, or a cache by its utterances.jsonl, and draw `plot`.

    The frames of a corpus are those without trimming. For a cache, `config` overrides the limits it was made with.
    Raises ConfigError unless exactly one of the two is given and the options fit it, CorpusError or CacheError if it
    cannot be read or has no clip, OutputError if the plot cannot be written.
    """
    _check_source(data, cache, reading)
    if data is not None:
        lengths, limits = _lengths_of_corpus(data, config, reading), config.limits
        buckets, text = config.data.buckets, config.text
    else:
        assert cache is not None  # noqa: S101 (for the type checker; the check is above)
        if plot is not None:
            check_apart(plot, cache, "choose another --plot")
        with reaching_stores(cache):
            manifest = load_manifest(cache)
            limits = _overlaid_limits(cache, manifest, config)
            lengths = lengths_of_cache(cache, manifest)
        buckets = config.data.buckets if config.data.are_buckets_given else manifest.buckets
        text = manifest.text
    spreads = {name: summarize(values.tolist()) for name, values in lengths.measures.items()}
    if plot is not None:
        # The numbers of the table, so that the picture agrees with it.
        marks = {name: {mark: asdict(statistics)[mark] for mark in MARKS} for name, statistics in spreads.items()}
        values = limits.model_dump()
        drawn = {measure: {name: values[name] for name in names} for measure, names in LIMITS_DRAWN.items()}
        count = f"{counted(len(lengths.seconds), 'clip')}, {lengths.seconds.sum() / 3600:.2f} h"
        save_histograms(plot, f"{data or cache}: {count}", lengths.measures, marks, drawn)
    largest = smallest_shape(lengths.tokens, lengths.frames)
    smallest_for_all = smallest_shape(lengths.tokens, lengths.frames, keep_share=1.0)
    speakers = Counter(row.speaker for row in lengths.rows)
    chains = [best_shapes(largest, count, lengths.tokens, lengths.frames) for count in range(1, MOST_SHAPES + 1)]
    return StatsReport(
        source=str(data or cache),
        clips=len(lengths.seconds),
        excluded=lengths.excluded,
        unusable=lengths.unusable,
        first_unusable=lengths.first_unusable,
        hours=float(lengths.seconds.sum()) / 3600,
        speakers=speakers,
        languages=Counter(row.language for row in lengths.rows),
        spreads=spreads,
        limits=tuple(_limit_shares(lengths, limits)),
        everything=plan_shapes([smallest_for_all], lengths.tokens, lengths.frames),
        buckets=_plan_of(buckets, limits, lengths),
        plans=tuple(plan_shapes(chain, lengths.tokens, lengths.frames) for chain in chains),
        plot=plot,
        warnings=(*like_speakers_warnings(speakers), *_language_warnings(lengths.rows, text)),
    )


def _check_source(data: Path | None, cache: Path | None, reading: ReadOptions) -> None:
    """Raise ConfigError unless one of the two is given, and the options belong to a corpus."""
    if (data is None) == (cache is None):
        raise ConfigError("stats: expected one of --data DIR and --cache DIR")
    if cache is not None and reading != AUTO:
        given = f"--layout {reading.layout}" if reading.layout != "auto" else reading.to_words()
        raise ConfigError(f"stats: {given} is for a corpus, --cache {cache} has none; leave it out, or give --data DIR")


def _language_warnings(rows: Sequence[PlannedRow | UtteranceEntry], text: TextConfig) -> tuple[str, ...]:
    texts, languages = [row.raw_text for row in rows], [row.language for row in rows]
    return tuple(check_languages(texts, languages, text, is_made=any(isinstance(row, UtteranceEntry) for row in rows)))


def count_symbols(data: Path | None, cache: Path | None, config: Config, reading: ReadOptions = AUTO) -> SymbolsReport:
    """Count the symbols of the texts of a corpus or cache, as they become tokens.

    Raises ConfigError unless exactly one of the two is given, CorpusError or CacheError if it cannot be read.
    """
    _check_source(data, cache, reading)
    rows: Sequence[PlannedRow | UtteranceEntry]
    if data is not None:
        index, text = _index(data, config, reading), config.text
        rows, known = index.rows, index.symbols
    else:
        assert cache is not None  # noqa: S101 (for the type checker; the check is above)
        with reaching_stores(cache):
            manifest = load_manifest(cache)
            _overlaid_limits(cache, manifest, config)  # refuses other settings
            rows = list(read_utterances(cache, manifest.files[UTTERANCES_NAME].bytes))
        text, known = manifest.text, manifest.symbols
    symbols = symbol_counts(rows, known)
    found = {symbol.symbol for symbol in symbols}
    return SymbolsReport(
        source=str(data or cache),
        clips=len(rows),
        symbols=symbols,
        unused=tuple(symbol for symbol in known if symbol not in found),
        warnings=_language_warnings(rows, text),
    )


def _plan_of(buckets: Sequence[Bucket] | str | None, limits: LimitsConfig, lengths: Lengths) -> ShapePlan | None:
    """Return the plan of the buckets, for `auto` of those that it would choose; None if there is one shape."""
    found = auto_buckets(limits, lengths.tokens, lengths.frames) if isinstance(buckets, str) else buckets or ()
    shapes = [Shape(*bucket) for bucket in found]
    return plan_shapes(shapes, lengths.tokens, lengths.frames) if len(shapes) > 1 else None


def _overlaid_limits(cache: Path, manifest: Manifest, config: Config) -> LimitsConfig:
    """Return the cache's limits, overridden by `config`. Raises ConfigError if `config` would change the lengths."""
    for name, cached, wanted in (("audio", manifest.audio, config.audio), ("text", manifest.text, config.text)):
        in_cache = cached.model_dump()
        for key, value in wanted.model_dump(exclude_unset=True).items():
            if value != in_cache[key]:
                found = f"{name}.{key} is {value!r}, the cache was made with {in_cache[key]!r}"
                raise ConfigError(f"{cache}: {found}; leave it out, or measure the corpus with --data DIR")
    return LimitsConfig.model_validate({**manifest.limits.model_dump(), **config.limits.model_dump(exclude_unset=True)})


def lengths_of_cache(cache: Path, manifest: Manifest) -> Lengths:
    """Return the lengths of every clip of a cache. Raises CacheError if they cannot be read or there is no clip."""
    entries = list(read_utterances(cache, manifest.files[UTTERANCES_NAME].bytes))
    if not entries:
        raise CacheError(f"{cache}: holds 0 clips, expected at least one; preprocess a corpus with usable rows")
    return Lengths(
        seconds=np.array([entry.seconds for entry in entries]),
        frames=np.array([entry.frames for entry in entries]),
        characters=np.array([len(entry.text) for entry in entries]),
        tokens=np.array([entry.tokens for entry in entries]),
        excluded=len(manifest.excluded),
        unusable=manifest.counts.rejected - len(manifest.excluded),
        first_unusable=f"each is in {cache / REJECTED_NAME}, with its reason",
        rows=entries,
    )


def _index(data: Path, config: Config, reading: ReadOptions) -> CorpusIndex:
    index = read_corpora(data, None, reading, config)
    print_readings(index)
    return index


def _lengths_of_corpus(data: Path, config: Config, reading: ReadOptions) -> Lengths:
    index = _index(data, config, reading)
    verdicts = judge_rows(index, config)
    rejections = rejections_of(index, verdicts)
    clips = [
        (row, lengths) for row, lengths in zip(index.rows, verdicts, strict=True) if isinstance(lengths, RowLengths)
    ]
    if not clips:
        raise CorpusError(
            f"{data}: 0 of {index.read} rows can be used, expected at least one; xtts preprocess --dry-run says why"
        )
    return Lengths(
        seconds=np.array([lengths.seconds for _, lengths in clips]),
        frames=np.array([lengths.frames for _, lengths in clips]),
        characters=np.array([len(row.text) for row, _ in clips]),
        tokens=np.array([lengths.tokens for _, lengths in clips]),
        excluded=0,
        unusable=len(rejections),
        first_unusable=next((f"{first.where}: {first.reason}, {first.detail}" for first in rejections), ""),
        rows=[row for row, _ in clips],
    )


def _limit_shares(lengths: Lengths, limits: LimitsConfig) -> Sequence[LimitShare]:
    """Return the shares of the clips that the present limits keep, and that limits at high percentiles would keep."""
    shares = [
        LimitShare("min_seconds", limits.min_seconds, float((lengths.seconds >= limits.min_seconds).mean()), True),
        LimitShare("max_seconds", limits.max_seconds, float((lengths.seconds <= limits.max_seconds).mean()), True),
    ]
    for name, values, limit in (
        ("max_text_length", lengths.tokens, limits.max_text_length),
        ("max_mel_frames", lengths.frames, limits.max_mel_frames),
    ):
        ranks = summarize(values.tolist())
        tried = sorted({limit, int(ranks.p90), int(ranks.p95), int(ranks.p99), int(ranks.max)})
        shares += [LimitShare(name, value, float((values <= value).mean()), value == limit) for value in tried]
    return shares

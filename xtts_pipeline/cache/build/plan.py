"""Plan the layout: read corpora, give usable rows their splits and shards.

Reads texts, never sound. The layout depends on ids, the seed and the shard counts only.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.cache.build.planned_rows import PlannedRow
from xtts_pipeline.cache.format.shards import ShardName, ShardPlan, default_shard_count, digest_of, split_of
from xtts_pipeline.config.schema import CacheConfig, Config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Corpus, Rejection, Utterance
from xtts_pipeline.errors import ConfigError, Reason, TextError
from xtts_pipeline.text.symbols import build_symbols, prepare_texts

# Keeps a shard's receipt well below receipts.MAX_RECEIPT_BYTES.
MAX_ROWS_PER_SHARD = 32_768
_WHERE = re.compile(r"(.*):(\d+)")


@dataclass(frozen=True)
class CorpusIndex:
    """Usable rows and rejections of the corpora, and what the whole cache shares."""

    readings: tuple[ReadOptions, ...]
    roots: tuple[Path, ...]
    rows: tuple[PlannedRow, ...]
    rejections: tuple[tuple[int, Rejection], ...]
    symbols: tuple[str, ...]
    speakers: tuple[str, ...]
    languages: tuple[str, ...]
    text_files: tuple[tuple[Path, tuple[int, int] | None], ...] = ()
    excluded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        """The layouts of the corpora."""
        return "+".join(reading.layout for reading in self.readings)

    @property
    def read(self) -> int:
        """Number of rows read."""
        return len(self.rows) + len(self.rejections)


def read_corpora(
    data: Path,
    val_data: Path | None,
    options: ReadOptions,
    config: Config,
    excluded: Collection[str] = (),
    sound_folder: Path | None = None,
) -> CorpusIndex:
    """Read and index a corpus and an optional validation corpus. Raises CorpusError if one is unusable.

    `options` are for both, but the layout for the first alone. `excluded` is as in `index_corpora`, `sound_folder` as
    in `read_corpus`.
    """
    language = config.text.language
    corpora = [read_corpus(data, options, language, sound_folder)]
    if val_data is not None:
        val_sounds = sound_folder / "val" if sound_folder else None
        corpora.append(read_corpus(val_data, options.with_layout("auto"), language, val_sounds))
    return index_corpora(corpora, config, excluded)


def index_corpora(corpora: Sequence[Corpus], config: Config, excluded: Collection[str] = ()) -> CorpusIndex:
    """Prepare the texts of a corpus and an optional validation corpus, and give every usable row its split.

    A row with an unusable text, an id of an earlier corpus, or one of the `excluded` ids becomes a rejection.
    """
    members, rejections = _merge(corpora)
    left_out = [(place, row) for place, row in members if row.id in excluded]
    detail = "the list of --exclude has this id"
    rejections += [(place, Rejection(row.id, row.where, Reason.EXCLUDED, detail)) for place, row in left_out]
    members = [(place, row) for place, row in members if row.id not in excluded]
    texts = prepare_texts(
        [member.text for _, member in members], [member.language for _, member in members], config.text
    )
    usable: list[tuple[int, Utterance, str]] = []
    for (place, utterance), text in zip(members, texts, strict=True):
        if isinstance(text, TextError):
            rejections.append((place, Rejection(utterance.id, utterance.where, text.reason, text.detail)))
        else:
            usable.append((place, utterance, text))
    speakers = tuple(sorted({utterance.speaker for _, utterance, _ in usable}))
    languages = tuple(sorted({utterance.language for _, utterance, _ in usable}))
    # A validation corpus is the validation split, so the hash must not choose one too.
    splits = config.cache.model_copy(update={"validation_share": 0.0}) if len(corpora) > 1 else config.cache
    return CorpusIndex(
        readings=tuple(corpus.reading for corpus in corpora),
        roots=tuple(corpus.root for corpus in corpora),
        rows=tuple(_planned_rows(usable, speakers, languages, splits)),
        rejections=tuple(rejections),
        symbols=build_symbols([text for _, _, text in usable], config.text),
        speakers=speakers,
        languages=languages,
        text_files=tuple(file for corpus in corpora for file in corpus.text_files),
        excluded=tuple(sorted(row.id for _, row in left_out)),
        notes=tuple(dict.fromkeys(note for corpus in corpora for note in corpus.notes)),
    )


def _merge(corpora: Sequence[Corpus]) -> tuple[list[tuple[int, Utterance]], list[tuple[int, Rejection]]]:
    """Return all utterances and rejections with their corpus's index; an id belongs to the first corpus that has it."""
    rejections = [(place, rejection) for place, corpus in enumerate(corpora) for rejection in corpus.rejections]
    first_ids = {utterance.id for utterance in corpora[0].utterances}
    members: list[tuple[int, Utterance]] = []
    for place, corpus in enumerate(corpora):
        for utterance in corpus.utterances:
            if place and utterance.id in first_ids:
                detail = f"id {utterance.id} is in both corpora; ids must differ"
                rejections.append((place, Rejection(utterance.id, utterance.where, Reason.DUPLICATE_ID, detail)))
            else:
                members.append((place, utterance))
    return members, rejections


def _planned_rows(
    usable: Sequence[tuple[int, Utterance, str]], speakers: Sequence[str], languages: Sequence[str], splits: CacheConfig
) -> Iterator[PlannedRow]:
    speaker_ids = {name: number for number, name in enumerate(speakers)}
    language_ids = {name: number for number, name in enumerate(languages)}
    for place, utterance, text in usable:
        digest = digest_of(splits.seed, utterance.id)
        own_split = "val" if place else utterance.split
        yield PlannedRow(
            id=utterance.id,
            corpus=place,
            audio=utterance.audio.as_posix(),
            raw_text=utterance.text,
            text=text,
            speaker=utterance.speaker,
            language=utterance.language,
            speaker_id=speaker_ids[utterance.speaker],
            language_id=language_ids[utterance.language],
            where=utterance.where,
            split=own_split or split_of(digest, splits),
            is_pinned=own_split is not None,
            digest=digest,
        )


def choose_validation_row(index: CorpusIndex, config: CacheConfig, rejected: Collection[str]) -> str | None:
    """Return the id of the training row that must serve as validation, or None if none is needed or wanted.

    `rejected` are ids known to be unusable. The smallest digest wins; the only row of a corpus is never taken.
    """
    if config.validation_share == 0:
        return None
    kept = [row for row in index.rows if row.id not in rejected]
    if any(row.split == "val" for row in kept) or len(kept) < 2:
        return None
    candidates = [row for row in kept if row.split == "train" and not row.is_pinned]
    return min(candidates, key=lambda row: row.digest).id if candidates else None


def plan_shards(
    index: CorpusIndex,
    config: CacheConfig,
    existing: Mapping[str, tuple[int, int]],
    train_shards: int | None,
    *,
    reshard: bool,
) -> ShardPlan:
    """Return the shard count of each split: existing counts are kept unless `reshard` or `train_shards` asks otherwise.

    `existing` maps a split to (count claimed by its file names, number of files found). A count above the split's rows
    is kept only if all its files exist, since any stray file name can claim one. Raises ConfigError if `train_shards`
    exceeds the rows, or a shard would exceed MAX_ROWS_PER_SHARD.
    """
    rows = Counter(row.split for row in index.rows)
    counts = {split: default_shard_count(number, config.records_per_shard) for split, number in rows.items()}
    if not reshard:
        counts |= {
            split: count
            for split, (count, found) in existing.items()
            if rows[split] and (found == count or count <= rows[split])
        }
    if train_shards is not None and "train" in counts:
        if train_shards > rows["train"]:
            raise ConfigError(
                f"--shards: found {train_shards}, expected at most the {rows['train']} rows of the train split; "
                "ask for fewer"
            )
        counts["train"] = train_shards
    for split, count in counts.items():
        # The hash gives some shards slightly more rows than the mean.
        if rows[split] > count * MAX_ROWS_PER_SHARD:
            least = -(-rows[split] // MAX_ROWS_PER_SHARD)
            raise ConfigError(
                f"{split}: found {rows[split]} rows for {count} shards, expected at most {MAX_ROWS_PER_SHARD} a shard; "
                f"give --reshard, cache.records_per_shard={MAX_ROWS_PER_SHARD} or less, or --shards {least} or more"
            )
    return ShardPlan(counts)


def lay_out(index: CorpusIndex, plan: ShardPlan, validation_id: str | None) -> dict[ShardName, list[PlannedRow]]:
    """Return every shard of the plan with its rows, ordered by digest.

    The row `validation_id` moves to a validation shard; the other counts of the plan do not change.
    """
    if validation_id is not None and "val" not in plan.counts:
        plan = ShardPlan({**plan.counts, "val": 1})
    shards: dict[ShardName, list[PlannedRow]] = {name: [] for name in plan.names()}
    for row in sorted(index.rows, key=lambda row: row.digest):
        shards[plan.shard("val" if row.id == validation_id else row.split, row.digest)].append(row)
    return shards


def reading_order(rejected: tuple[int, Rejection]) -> tuple[int, str, int, str]:
    """Return a sort key that puts rejections, each with its corpus, in the order in which their rows are read."""
    corpus, rejection = rejected
    match = _WHERE.fullmatch(rejection.where)
    file, line = (match[1], int(match[2])) if match else (rejection.where, 0)
    return corpus, file, line, rejection.id

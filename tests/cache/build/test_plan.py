"""The layout: every usable row has one shard, and adding or removing a row moves no other."""

from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from xtts_pipeline.cache.build import plan
from xtts_pipeline.cache.build.plan import (
    CorpusIndex,
    choose_validation_row,
    index_corpora,
    lay_out,
    plan_shards,
    reading_order,
)
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import CacheConfig, Config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.utterance import Corpus, Rejection, Utterance
from xtts_pipeline.errors import ConfigError, Reason

NO_VALIDATION = CacheConfig(validation_share=0.0)


def make_corpus(ids: list[str], *, speaker: str = "anna", split: str | None = None, root: str = "corpus") -> Corpus:
    utterances = [
        Utterance(id, Path(f"wavs/{id}.wav"), f"text of {id}", speaker, "en", split, f"metadata.csv:{order + 1}")
        for order, id in enumerate(ids)
    ]
    return Corpus(ReadOptions("ljspeech"), Path(root), tuple(utterances), ())


def index_of(ids: list[str], config: Config | None = None, split: str | None = None) -> CorpusIndex:
    return index_corpora([make_corpus(ids, split=split)], config or Config())


@given(st.sets(st.text("abcdefgh0123456789", min_size=1, max_size=8), min_size=12, max_size=60), st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_every_row_has_one_place_and_a_removed_row_moves_no_other(ids: set[str], shard_count: int) -> None:
    ordered = sorted(ids)
    places = []
    for chosen in (ordered, ordered[1:]):
        index = index_of(chosen)
        assume(sum(row.split == "train" for row in index.rows) >= shard_count)
        layout = lay_out(
            index, plan_shards(index, CacheConfig(), {"train": (shard_count, shard_count)}, None, reshard=False), None
        )
        places.append({row.id: str(name) for name, rows in layout.items() for row in rows})
        assert sorted(places[-1]) == chosen
        assert all([row.digest for row in rows] == sorted(row.digest for row in rows) for rows in layout.values())
    first = ordered[0]
    assert {id: place for id, place in places[0].items() if id != first and place.startswith("train")} == {
        id: place for id, place in places[1].items() if place.startswith("train")
    }


def test_a_corpus_that_chose_its_splits_keeps_them() -> None:
    index = index_of([f"clip-{number}" for number in range(50)], split="train")
    assert {row.split for row in index.rows} == {"train"}
    assert choose_validation_row(index, CacheConfig(), ()) is None


def test_the_kept_row_with_the_smallest_digest_becomes_validation() -> None:
    index = index_of(["a", "b", "c"], load_config(overrides=["cache.validation_share=1e-9"]))
    by_digest = [row.id for row in sorted(index.rows, key=lambda row: row.digest)]
    assert choose_validation_row(index, CacheConfig(), ()) == by_digest[0]
    assert choose_validation_row(index, CacheConfig(), {by_digest[0]}) == by_digest[1]
    assert choose_validation_row(index, CacheConfig(), set(by_digest[:2])) is None, "the only row left trains"
    assert choose_validation_row(index, NO_VALIDATION, ()) is None


def test_speaker_ids_follow_sorted_names() -> None:
    corpora = [make_corpus(["a"], speaker="zoe"), make_corpus(["b"], speaker="anna", root="other")]
    index = index_corpora(corpora, Config())
    assert index.speakers == ("anna", "zoe")
    assert {row.id: row.speaker_id for row in index.rows} == {"a": 1, "b": 0}
    assert {row.id: row.split for row in index.rows} == {"a": "train", "b": "val"}


def test_rows_are_never_lost() -> None:
    corpus = make_corpus(["a", "b"])
    rejected = Rejection("c", "metadata.csv:9", Reason.AUDIO_MISSING, "no such file")
    index = index_corpora(
        [Corpus(corpus.reading, corpus.root, corpus.utterances, (rejected,)), make_corpus(["b", "d"])], Config()
    )
    assert index.read == 5
    assert [rejection.reason for _, rejection in index.rejections] == [Reason.AUDIO_MISSING, Reason.DUPLICATE_ID]


def test_rejections_sort_in_reading_order() -> None:
    places = [(0, "metadata.csv:10"), (1, "metadata.csv:1"), (0, "metadata.csv:9"), (0, "a.tsv:100")]
    rejected = [(corpus, Rejection("a", where, Reason.BAD_ROW, "")) for corpus, where in places]
    ordered = [(corpus, rejection.where) for corpus, rejection in sorted(rejected, key=reading_order)]
    assert ordered == [(0, "a.tsv:100"), (0, "metadata.csv:9"), (0, "metadata.csv:10"), (1, "metadata.csv:1")]


def test_no_split_gets_more_shards_than_rows() -> None:
    index = index_of(["a", "b", "c"], split="train")
    with pytest.raises(ConfigError, match="--shards: found 9999999, expected at most the 3 rows of the train split"):
        plan_shards(index, CacheConfig(), {}, 9_999_999, reshard=False)
    assert plan_shards(index, CacheConfig(), {}, 3, reshard=False).counts == {"train": 3}
    assert plan_shards(index, CacheConfig(), {"train": (99_999_999, 1)}, None, reshard=False).counts == {"train": 1}, (
        "a stray file's claim"
    )


def test_too_many_rows_for_a_shards_receipt_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "MAX_ROWS_PER_SHARD", 2)
    index = index_of(["a", "b", "c"], split="train")
    with pytest.raises(
        ConfigError,
        match=r"train: found 3 rows for 1 shards, expected at most 2 a shard; give --reshard.* or --shards 2",
    ):
        plan_shards(index, CacheConfig(), {"train": (1, 1)}, None, reshard=False)
    assert plan_shards(index, CacheConfig(), {}, 2, reshard=False).counts == {"train": 2}


def test_a_shrunken_split_keeps_its_shards() -> None:
    index = index_of(["a", "b", "c"], split="train")
    assert plan_shards(index, CacheConfig(), {"train": (4, 4), "val": (1, 1)}, None, reshard=False).counts == {
        "train": 4
    }
    assert plan_shards(index, CacheConfig(), {"train": (4, 4)}, None, reshard=True).counts == {"train": 1}
    assert plan_shards(index, CacheConfig(), {"train": (3, 1)}, None, reshard=False).counts == {"train": 3}, (
        "the rest was not yet made"
    )

"""Clips to measure with: records without padding, and their sound."""

from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from tests.perf.corpora import write_corpus
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, CorpusError
from xtts_pipeline.perf.benchmark.clips import copy_corpus, read_examples, write_clips

WriteCache = Callable[..., Manifest]


def test_examples_are_records_without_their_padding(tmp_path: Path, write_cache: WriteCache):
    manifest = write_cache(tmp_path / "cache", train=9, val=1)
    examples = read_examples(tmp_path / "cache", manifest, 5)

    assert len(examples) == 5
    assert len({example.id for example in examples}) == 5
    assert all(2 <= len(example.mel) <= manifest.limits.max_mel_frames for example in examples)
    assert all((example.tokens != 0).all() for example in examples)


def test_examples_come_from_every_bucket(tmp_path: Path, write_cache: WriteCache):
    manifest = write_cache(tmp_path / "cache", train=40, buckets=((9, 12), (16, 24)))
    examples = read_examples(tmp_path / "cache", manifest, 20)
    small = [example for example in examples if len(example.tokens) <= 9 and len(example.mel) <= 12]

    assert 0 < len(small) < len(examples) == 20
    # Each shard gives its part: the last one, of large records, as well.
    records = sum(shard.records for shard in manifest.shards if shard.split == "train" and shard.bucket == 0)
    assert abs(len(small) - records / 2) <= 1


def test_an_empty_train_split_is_an_error(tmp_path: Path, write_cache: WriteCache):
    with pytest.raises(CacheError, match="0 training records"):
        read_examples(tmp_path / "cache", write_cache(tmp_path / "cache", train=0, val=1), 5)


def test_without_a_corpus_sound_is_rendered_as_long_as_the_mel(tmp_path: Path, write_cache: WriteCache):
    manifest = write_cache(tmp_path / "cache", train=3)
    examples = read_examples(tmp_path / "cache", manifest, 3)
    clips = write_clips(tmp_path / "work", tmp_path / "cache", manifest, examples, None)

    for clip in clips:
        info = soundfile.info(clip.wave)
        assert (info.subtype, info.samplerate) == ("PCM_16", manifest.audio.sample_rate)
        assert info.frames == (len(clip.example.mel) - 1) * manifest.audio.hop_samples


def test_a_corpus_without_the_caches_clips_is_an_error(tmp_path: Path, write_cache: WriteCache):
    manifest = write_cache(tmp_path / "cache", train=1)
    other = write_corpus(tmp_path / "other", ["somebody-else"])

    with pytest.raises(CorpusError, match="name the corpus of that cache with --data"):
        write_clips(
            tmp_path / "work", tmp_path / "cache", manifest, read_examples(tmp_path / "cache", manifest, 1), other
        )


def test_a_copied_corpus_leaves_out_what_cannot_be_decoded(tmp_path: Path):
    corpus = write_corpus(tmp_path / "corpus", ["one", "two", "three"], rate=16_000)
    (corpus / "wavs" / "two.wav").write_bytes(b"no sound")

    assert copy_corpus(tmp_path / "copy", corpus, Config(), 10) == 2
    with pytest.raises(CorpusError, match="not a pairs corpus"):
        copy_corpus(tmp_path / "copy", corpus, Config(), 10, ReadOptions("pairs"))
    assert (tmp_path / "copy" / "metadata.csv").read_text(encoding="utf-8").count("Text of three.") == 2
    assert soundfile.info(tmp_path / "copy" / "wavs" / "clip-00000.wav").samplerate == 22_050

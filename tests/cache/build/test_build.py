"""Builds: the same corpus gives the same bytes, and a rerun rewrites only what changed."""

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cache.corpora import (
    SAMPLE_RATE,
    build,
    cache_bytes,
    disk_full_after,
    make_config,
    modification_times,
    records_of,
    write_clip,
    write_corpus,
    write_metadata,
)
from tests.damage import flip_bit
from tests.json_lines import read_json_lines
from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.cache.build import plan
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.format.shards import parse_shard_name
from xtts_pipeline.errors import CacheError, TextError
from xtts_pipeline.text.symbols import prepare_texts


def test_records_match_the_corpus(data: Path, tmp_path: Path) -> None:
    cache, config = tmp_path / "cache", make_config()
    manifest = build(data, cache).manifest
    assert manifest == load_manifest(cache)
    assert (manifest.counts.read, manifest.counts.kept, manifest.counts.rejected) == (40, 40, 0)
    utterances = read_json_lines(cache / "utterances.jsonl")
    assert len(utterances) == 40
    for (shard, record), line in zip(records_of(cache), utterances, strict=True):
        assert (record["id"], shard.name) == (line["id"], line["shard"])
        assert (record["text_length"], record["mel_length"]) == (line["tokens"], line["frames"])
        wave = load_wave(data / line["source"]["path"], config.audio, config.limits)
        mel = wave_to_mel(wave, config.audio).astype(np.float16)
        np.testing.assert_array_equal(record["mel"][: record["mel_length"]], mel)
        assert line["seconds"] == round(len(wave) / SAMPLE_RATE, 6)


def test_the_same_corpus_gives_the_same_bytes_in_any_folder(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "one")
    shutil.copytree(data, tmp_path / "elsewhere")
    build(tmp_path / "elsewhere", tmp_path / "two")
    assert cache_bytes(tmp_path / "one") == cache_bytes(tmp_path / "two")


def test_an_unchanged_rerun_rewrites_nothing(data: Path, tmp_path: Path) -> None:
    first = build(data, tmp_path / "cache")
    times = modification_times(tmp_path / "cache")
    second = build(data, tmp_path / "cache")
    assert (second.shards_written, second.shards_reused) == (0, first.shards_written)
    assert modification_times(tmp_path / "cache") == times


@pytest.mark.parametrize("change", ["sound", "text", "reading", "added", "removed"])
def test_one_changed_clip_rewrites_its_shard_only(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    cache = tmp_path / "cache"
    build(data, cache)
    times = modification_times(cache)
    count = 40
    if change == "sound":
        write_clip(data, "clip-007", hz=999.0)
    elif change == "text":
        write_metadata(data, 40, changed={7: "this is clip 77"})
    elif change == "reading":  # newer rules of text, the same transcript
        monkeypatch.setattr(plan, "prepare_texts", lambda *given: _with_first_reversed(prepare_texts(*given)))
    elif change == "added":
        count = 41
        write_clip(data, "clip-040")
        write_metadata(data, 41)
    else:
        count = 39
        write_metadata(data, 39)
    result = build(data, cache)
    assert result.shards_written == 1
    assert result.manifest.counts.read == count
    rewritten = {name for name, time in modification_times(cache).items() if time != times[name]}
    assert len({name for name in rewritten if parse_shard_name(name)}) == 1
    assert {"manifest.json", "utterances.jsonl"} <= rewritten
    shard_count = sum(1 for name in times if name.startswith("train"))
    build(data, tmp_path / "fresh", train_shards=shard_count)
    assert cache_bytes(cache) == cache_bytes(tmp_path / "fresh")


def _with_first_reversed(texts: list[str | TextError]) -> list[str | TextError]:
    return [str(texts[0])[::-1], *texts[1:]]


def test_removing_a_row_changes_only_its_shard(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    train = build(data, cache).manifest.split_records("train")
    build(data, cache, train_shards=train)
    write_metadata(data, 39)
    result = build(data, cache)
    assert (result.shards_written, result.manifest.split_records("train")) == (1, train - 1)
    assert len([name for name in modification_times(cache) if name.startswith("train")]) == train


def test_a_row_that_only_moved_changes_no_shard(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    metadata = data / "metadata.csv"
    metadata.write_text("\n".join(reversed(metadata.read_text().splitlines())) + "\n")
    assert build(data, tmp_path / "cache").shards_written == 0


def test_a_changed_setting_rewrites_all_shards_and_is_named(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    result = build(data, tmp_path / "cache", make_config("audio.floor=1e-4"))
    assert result.shards_reused == 0
    assert result.settings_changed == ("audio.floor: the cache has 1e-05, the config 0.0001",)


def test_a_new_symbol_counts_as_a_changed_setting(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    write_metadata(data, 40, changed={0: "jazz"})
    result = build(data, tmp_path / "cache")
    assert result.shards_reused == 0
    assert result.settings_changed == ("symbols: 2 new (a, j)",)


def test_a_touched_clip_is_unchanged_by_content_but_changed_by_stat(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(data, cache)
    os.utime(data / "wavs" / "clip-003.wav", ns=(1, 1))
    assert build(data, cache, check="content").shards_written == 0
    assert build(data, cache, check="stat").shards_written == 0, "the receipt has the new time"
    os.utime(data / "wavs" / "clip-003.wav", ns=(2, 2))
    before = cache_bytes(cache)
    assert build(data, cache, check="stat").shards_written == 1
    assert cache_bytes(cache) == before


def test_content_is_compared_where_size_and_time_are_the_same(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    path = data / "wavs" / "clip-003.wav"
    status = path.stat()
    flip_bit(path, -1)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert build(data, tmp_path / "cache", check="stat").shards_written == 0
    assert build(data, tmp_path / "cache", check="content").shards_written == 1


def test_a_shard_that_contradicts_its_receipt_is_made_again(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(data, cache)
    whole = cache_bytes(cache)
    shards = sorted(name for name in whole if name.startswith("train"))
    (cache / shards[0]).unlink()
    (cache / shards[1]).write_bytes(whole[shards[1]][:-1] + b"x")
    (cache / "receipts" / shards[2].replace("tfrecord", "json")).write_bytes(b"{}")
    assert build(data, cache).shards_written == 3
    assert cache_bytes(cache) == whole


def test_a_copied_cache_is_reused(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    shutil.copytree(tmp_path / "cache", tmp_path / "copy", copy_function=shutil.copyfile)
    assert build(data, tmp_path / "copy").shards_written == 0


def test_the_shard_count_stays_until_reshard(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    count = len(build(data, cache).manifest.shard_names("train"))
    settings = make_config("cache.records_per_shard=2")
    assert len(build(data, cache, settings).manifest.shard_names("train")) == count
    assert len(build(data, cache, settings, reshard=True).manifest.shard_names("train")) > count
    result = build(data, cache, settings, train_shards=2)
    assert len(result.manifest.shard_names("train")) == 2
    assert sum(1 for path in cache.iterdir() if path.name.startswith("train")) == 2
    assert len(list((cache / "receipts").iterdir())) == len(result.manifest.shards)


def test_a_small_corpus_gets_a_validation_clip_that_is_kept(tmp_path: Path) -> None:
    data, cache = write_corpus(tmp_path / "data", 6), tmp_path / "cache"
    first = build(data, cache, make_config("cache.validation_share=1e-9"))
    assert first.manifest.split_records("val") == 1
    (chosen,) = [line["id"] for line in read_json_lines(cache / "utterances.jsonl") if line["split"] == "val"]
    (data / "wavs" / f"{chosen}.wav").write_bytes(b"broken")
    second = build(data, cache, make_config("cache.validation_share=1e-9"))
    assert (second.manifest.split_records("train"), second.manifest.split_records("val")) == (4, 1)
    fresh = build(data, tmp_path / "fresh", make_config("cache.validation_share=1e-9"))
    assert cache_bytes(cache) == cache_bytes(tmp_path / "fresh")
    assert build(data, cache, make_config("cache.validation_share=1e-9")).shards_written == 0
    assert fresh.manifest == second.manifest


def test_without_a_validation_share_nothing_is_taken_from_training(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 6)
    assert (
        build(data, tmp_path / "cache", make_config("cache.validation_share=0.0")).manifest.split_records("train") == 6
    )


def test_every_row_is_kept_or_rejected_with_its_reason(data: Path, tmp_path: Path) -> None:
    (data / "wavs" / "clip-001.wav").unlink()
    (data / "wavs" / "clip-002.wav").write_bytes(b"")
    write_clip(data, "clip-003", seconds=2.0)
    write_metadata(data, 40, changed={4: "a text that is much too long " * 3, 5: "\u200b \u200b"})
    manifest = build(data, tmp_path / "cache").manifest
    rejected = {str(line["id"]): line["reason"] for line in read_json_lines(tmp_path / "cache" / "rejected.jsonl")}
    assert rejected == {
        "clip-001": "audio_missing",
        "clip-002": "audio_unreadable",
        "clip-003": "mel_too_long",
        "clip-004": "text_too_long",
        "clip-005": "empty_text",
    }
    assert [line["where"] for line in read_json_lines(tmp_path / "cache" / "rejected.jsonl")] == [
        f"metadata.csv:{number}" for number in range(2, 7)
    ]
    assert (manifest.counts.read, manifest.counts.kept) == (40, 35)
    assert build(data, tmp_path / "cache").shards_written == 0


def test_a_corpus_without_usable_clips_is_counted(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 3)
    for path in (data / "wavs").iterdir():
        path.write_bytes(b"broken")
    manifest = build(data, tmp_path / "cache").manifest
    assert (manifest.counts.read, manifest.counts.rejected) == (3, 3)
    assert load_manifest(tmp_path / "cache") == manifest
    assert build(data, tmp_path / "cache").shards_written == 0


def test_an_unreadable_clip_is_retried(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cause of a read error can vanish without a change of the file's size or time."""
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "clip-003.wav":
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert build(data, tmp_path / "cache").manifest.counts.kept == 39
    result = build(data, tmp_path / "cache")
    assert (result.manifest.counts.kept, result.shards_written) == (40, 1)
    assert build(data, tmp_path / "cache").shards_written == 0


def test_a_fifo_as_a_clip_is_refused_without_opening_it(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache")
    path = data / "wavs" / "clip-000.wav"
    path.unlink()
    os.mkfifo(path)
    manifest = build(data, tmp_path / "cache").manifest
    assert manifest.counts.rejected == 1
    assert manifest.rejected_by_reason == {"audio_unreadable": 1}


def test_too_little_disk_is_found_before_anything_changes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(data, tmp_path / "cache")
    before = cache_bytes(tmp_path / "cache")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage._replace(free=50_000))
    with pytest.raises(CacheError, match=r"50 kB free, the cache needs .* kB; make room"):
        build(data, tmp_path / "cache", make_config("audio.floor=1e-4"))
    assert cache_bytes(tmp_path / "cache") == before


def test_the_room_that_is_needed_is_that_of_the_buckets(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    # 53 kB of records in buckets, 64 kB in one shape, and 80 kB for the rest.
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage._replace(free=138_000))
    with pytest.raises(CacheError, match="138 kB free, the cache needs 144 kB"):
        build(data, tmp_path / "other", make_config("data.buckets=null"))
    assert build(data, tmp_path / "cache", make_config("data.buckets=[[24,22],[40,80]]")).manifest.counts.kept == 40


def test_a_disk_that_fills_up_leaves_no_manifest_and_the_next_run_goes_on(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "whole")
    with (
        disk_full_after(24),
        pytest.raises(CacheError, match=r"tfrecord: cannot be written \(No space left on device\); make room"),
    ):
        build(data, tmp_path / "cache")
    assert not (tmp_path / "cache" / "manifest.json").exists()
    assert not [path for path in (tmp_path / "cache").iterdir() if "tmp" in path.name or "work" in path.name]
    assert build(data, tmp_path / "cache").shards_reused > 0
    assert cache_bytes(tmp_path / "cache") == cache_bytes(tmp_path / "whole")

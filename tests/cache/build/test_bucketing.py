"""Buckets in a build: each record is in the smallest shape that holds it; nothing else changes."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cache.corpora import (
    build,
    cache_bytes,
    disk_full_after,
    make_config,
    modification_times,
    write_clip,
    write_corpus,
    write_metadata,
)
from tests.json_lines import read_json_lines
from xtts_pipeline.audio.save import encode_wave
from xtts_pipeline.cache.build import shapes
from xtts_pipeline.cache.build.bucketing import RowLengths, judge_rows
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.build.receipts import load_receipt
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.cache.format.shards import parse_shard_name
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands.verify_cache import verify
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Rejection
from xtts_pipeline.errors import CacheError, Reason

PAIRS = ((24, 22), (32, 28), (40, 80))
BUCKETS = make_config(f"data.buckets={json.dumps(PAIRS)}")
AUTO = make_config("data.buckets=auto")
ONE_SHAPE = make_config("data.buckets=null")


def lines(cache: Path) -> list[dict[str, object]]:
    return read_json_lines(cache / "utterances.jsonl")


def assert_same_as_fresh(cache: Path, data: Path, manifest: Manifest) -> None:
    """Assert that a cache made in one go has the same bytes, and that they are sound."""
    fresh = cache.parent / "fresh"
    pairs = json.dumps(manifest.buckets or None)
    build(data, fresh, make_config(f"data.buckets={pairs}"), train_shards=len(manifest.shard_names("train", 0)))
    assert cache_bytes(cache) == cache_bytes(fresh)
    assert verify_cache(cache).problems == ()


def test_each_record_lies_in_the_smallest_bucket_that_holds_it(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    manifest = build(data, cache, BUCKETS).manifest
    assert manifest == load_manifest(cache)
    assert (manifest.buckets, manifest.bucket_count) == (PAIRS, 3)
    utterances = iter(lines(cache))
    found = []
    for shard in manifest.shards:
        for position, payload in enumerate(read_records(cache / shard.name)):
            record, line = decode_example(payload, manifest.spec_of_shard[shard.name]), next(utterances)
            assert (record["id"], shard.name, position) == (line["id"], line["shard"], line["position"])
            fitting = [pair for pair in PAIRS if record["text_length"] <= pair[0] and record["mel_length"] <= pair[1]]
            assert fitting[0] == PAIRS[shard.bucket or 0] == (len(record["tokens"]), len(record["mel"]))
            found.append(shard.bucket)
    assert len(found) == 40
    assert set(found) == {0, 1, 2}
    for split in ("train", "val"):
        assert sum(manifest.split_records(split, bucket) for bucket in range(3)) == manifest.split_records(split)
        assert sorted(
            name for bucket in range(3) for name in manifest.shard_names(split, bucket)
        ) == manifest.shard_names(split)
    assert verify_cache(cache).problems == ()


def test_a_shard_has_a_file_for_each_bucket_even_an_empty_one(tmp_path: Path) -> None:
    manifest = build(write_corpus(tmp_path / "data", 2), tmp_path / "cache", BUCKETS).manifest
    shards = sorted({str(parse_shard_name(shard.name)) for shard in manifest.shards})
    assert [shard.name for shard in manifest.shards] == [
        f"{shard}-bucket{bucket}.tfrecord" for shard in shards for bucket in range(3)
    ]
    assert 0 in [(tmp_path / "cache" / shard.name).stat().st_size for shard in manifest.shards]
    assert sorted(path.name for path in (tmp_path / "cache" / "receipts").iterdir()) == [
        f"{shard}.json" for shard in shards
    ]


def test_the_same_clips_are_kept_in_the_same_shards_as_without_buckets(data: Path, tmp_path: Path) -> None:
    (data / "wavs" / "clip-001.wav").write_bytes(b"broken")
    write_clip(data, "clip-003", seconds=2.0)
    build(data, tmp_path / "plain")
    build(data, tmp_path / "cache", BUCKETS)
    assert (tmp_path / "plain" / "rejected.jsonl").read_bytes() == (tmp_path / "cache" / "rejected.jsonl").read_bytes()

    def places(cache: Path) -> dict[object, object]:
        return {line["id"]: parse_shard_name(str(line["shard"])) for line in lines(cache)}

    assert places(tmp_path / "plain") == places(tmp_path / "cache")
    assert verify_cache(tmp_path / "cache").problems == ()


def test_one_bucket_is_the_same_as_none(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "none", ONE_SHAPE)
    build(data, tmp_path / "one", make_config("data.buckets=[[40, 80]]"))
    assert cache_bytes(tmp_path / "none") == cache_bytes(tmp_path / "one")
    content = json.loads((tmp_path / "none" / "manifest.json").read_bytes())
    assert "buckets" not in content
    assert {key for shard in content["shards"] for key in shard} == {"name", "split", "records", "bytes", "checksum"}
    receipt = json.loads(next((tmp_path / "none" / "receipts").iterdir()).read_bytes())
    assert not {"buckets", "more_files"} & set(receipt)


def test_an_unchanged_rerun_rewrites_nothing(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache", BUCKETS)
    times = modification_times(tmp_path / "cache")
    assert build(data, tmp_path / "cache", BUCKETS).shards_written == 0
    assert modification_times(tmp_path / "cache") == times
    shutil.copytree(tmp_path / "cache", tmp_path / "copy", copy_function=shutil.copyfile)
    assert build(data, tmp_path / "copy", BUCKETS).shards_written == 0


@pytest.mark.parametrize("change", ["longer", "broken", "removed"])
def test_one_changed_clip_rewrites_the_files_of_its_shard_only(data: Path, tmp_path: Path, change: str) -> None:
    cache = tmp_path / "cache"
    build(data, cache, BUCKETS)
    times = modification_times(cache)
    if change == "longer":
        write_clip(data, "clip-007", seconds=0.9)
    elif change == "broken":
        (data / "wavs" / "clip-007.wav").write_bytes(b"broken")
    else:
        write_metadata(data, 39)
    result = build(data, cache, BUCKETS)
    rewritten = {name for name, time in modification_times(cache).items() if time != times[name]}
    assert result.shards_written == 1
    assert len({parse_shard_name(name) for name in rewritten} - {None}) == 1
    assert_same_as_fresh(cache, data, result.manifest)


def test_changed_buckets_remake_the_records_and_leave_no_file_behind(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(data, cache)
    before = cache_bytes(cache)
    result = build(data, cache, BUCKETS)
    assert result.shards_reused == 0
    assert result.settings_changed == ("data.buckets: the cache has null, the config [[24, 22], [32, 28], [40, 80]]",)
    assert_same_as_fresh(cache, data, result.manifest)
    assert build(data, cache, make_config("data.buckets=[[32,28],[40,80]]")).shards_reused == 0
    assert build(data, cache, ONE_SHAPE).shards_reused == 0
    assert cache_bytes(cache) == before
    assert verify_cache(cache).problems == ()


def test_a_bucket_file_that_contradicts_its_receipt_remakes_its_shard(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(data, cache, BUCKETS)
    whole = cache_bytes(cache)
    train = sorted(name for name in whole if name.startswith("train"))
    damaged = [
        next(name for name in train if name.startswith(f"train-{number:05d}") and whole[name]) for number in range(2)
    ]
    (cache / damaged[0]).unlink()
    (cache / damaged[1]).write_bytes(whole[damaged[1]][:-1] + b"x")
    (cache / train[0].replace("bucket0", "bucket7")).write_bytes(b"stray")
    assert build(data, cache, BUCKETS).shards_written == 2
    assert cache_bytes(cache) == whole


def test_an_interrupted_run_is_continued(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "whole", BUCKETS)
    with (
        disk_full_after(24),
        pytest.raises(CacheError, match=r"cannot be written \(No space left on device\); make room"),
    ):
        build(data, tmp_path / "cache", BUCKETS)
    assert not (tmp_path / "cache" / "manifest.json").exists()
    assert build(data, tmp_path / "cache", BUCKETS).shards_reused > 0
    assert cache_bytes(tmp_path / "cache") == cache_bytes(tmp_path / "whole")


def test_resharding_splits_every_bucket_again(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    count = len(build(data, cache, BUCKETS).manifest.shard_names("train", 0))
    result = build(data, cache, BUCKETS, train_shards=count + 2)
    assert [len(result.manifest.shard_names("train", bucket)) for bucket in range(3)] == [count + 2] * 3
    assert build(data, cache, BUCKETS).shards_written == 0, "the count is kept"
    assert_same_as_fresh(cache, data, result.manifest)


def test_repair_makes_a_damaged_bucket_again_and_leaves_the_rest(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    manifest = build(data, cache, BUCKETS).manifest
    whole = cache_bytes(cache)
    name = next(name for name in manifest.shard_names("train", 1) if whole[name])
    (cache / name).write_bytes(whole[name][:-1])
    (cache / manifest.shard_names("val", 2)[0]).unlink()
    report = verify(cache, level="full", data=data, sample=None, repair=True, jobs=1)
    assert report.valid
    assert cache_bytes(cache) == whole
    assert {parse_shard_name(file) for file in report.repaired} - {None} == {
        parse_shard_name(file) for file in (name, manifest.shard_names("val", 2)[0])
    }


def test_records_are_recomputed_in_every_bucket(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "cache", BUCKETS)
    report = verify(tmp_path / "cache", level="deep", data=data, sample=40, repair=False, jobs=1)
    assert (report.sampled, report.problems) == (40, ())


def test_auto_chooses_buckets_and_keeps_them_until_it_may_choose_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    cache = tmp_path / "cache"
    first = build(data, cache, AUTO).manifest
    assert first.bucket_count == 3
    assert min(first.split_records("train", bucket) for bucket in range(2)) >= 4
    assert first.buckets[-1] == (40, 80)
    assert all(tokens % 8 == frames % 16 == 0 for tokens, frames in first.buckets[:-1])
    assert_same_as_fresh(cache, data, first)
    assert build(data, cache, AUTO).shards_written == 0
    for number in range(30):
        write_clip(data, f"clip-{number:03d}", hz=200 + 10 * number, seconds=0.1 + 0.03 * number)
    second = build(data, cache, AUTO)
    assert second.manifest.buckets == first.buckets
    assert second.settings_changed == ()
    third = build(data, cache, AUTO, reshard=True)
    assert third.manifest.buckets != first.buckets
    assert third.settings_changed[0].startswith("data.buckets: the cache has ")


def test_auto_keeps_the_buckets_of_an_unfinished_cache(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    cache = tmp_path / "cache"
    build(data, cache, BUCKETS)
    (cache / "manifest.json").unlink()
    result = build(data, cache, AUTO)
    assert (result.manifest.buckets, result.shards_written) == (PAIRS, 0)


def test_a_build_with_other_settings_that_was_broken_off_does_not_choose_buckets(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    cache, mistake = tmp_path / "cache", tmp_path / "mistake"
    build(data, cache, ONE_SHAPE)
    build(data, mistake, make_config("data.buckets=null", "audio.floor=1e-4"))
    first = min(path.name for path in cache.glob("*.tfrecord"))
    for name in (first, f"receipts/{first.removesuffix('.tfrecord')}.json"):
        shutil.copy(mistake / name, cache / name)
    (cache / "manifest.json").unlink()
    again = build(data, cache, make_config())
    assert (again.manifest.buckets, again.shards_written) == ((), 1)


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_new_cache_gets_buckets_and_one_of_one_shape_keeps_it_until_buckets_are_set(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_finished: bool
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    cache = tmp_path / "cache"
    build(data, cache, ONE_SHAPE)
    before = cache_bytes(cache)
    if not is_finished:
        (cache / "manifest.json").unlink()
    again = build(data, cache)
    assert (again.shards_written, again.settings_changed) == (0, ())
    assert cache_bytes(cache) == before
    chosen = build(data, cache, AUTO).manifest
    assert chosen.bucket_count == 3
    assert build(data, tmp_path / "new").manifest == chosen


@pytest.mark.parametrize("chosen", [AUTO, ONE_SHAPE], ids=["auto", "one shape"])
def test_auto_chooses_again_after_the_limits_change(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Config
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    build(data, tmp_path / "cache", chosen)
    result = build(data, tmp_path / "cache", make_config("limits.max_mel_frames=72"))
    assert result.manifest.buckets[-1] == (40, 72)


def test_auto_uses_one_shape_for_few_clips(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "none", ONE_SHAPE)
    build(data, tmp_path / "auto", AUTO)
    assert cache_bytes(tmp_path / "none") == cache_bytes(tmp_path / "auto")


def test_a_sound_that_cannot_be_reached_is_rejected_alone(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path.name == "clip-003.wav":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    config = make_config()
    index = index_corpora([read_corpus(data, ReadOptions("ljspeech"))], config)
    monkeypatch.setattr(Path, "stat", refuse)
    rejected = [found for found in judge_rows(index, config) if isinstance(found, Rejection)]
    assert [(found.id, found.reason) for found in rejected] == [("clip-003", Reason.AUDIO_UNREADABLE)]
    assert rejected[0].detail == "wavs/clip-003.wav: cannot be read (Permission denied)"


def test_the_lengths_of_a_cut_mp3_are_read_in_silence(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sound = encode_wave(Path("clip.mp3"), np.zeros(44_100, np.float32), 22_050)
    (data / "wavs" / "clip-000.wav").write_bytes(sound[: len(sound) // 2])
    lengths = judge_rows(index_corpora([read_corpus(data, ReadOptions(), "en")], AUTO), AUTO)
    assert isinstance(lengths[0], RowLengths)
    assert lengths[0].seconds == pytest.approx(2.0, abs=0.1)
    assert capfd.readouterr().err == ""


def test_a_receipt_lists_every_file_of_its_shard(data: Path, tmp_path: Path) -> None:
    manifest = build(data, tmp_path / "cache", BUCKETS).manifest
    name = parse_shard_name(manifest.shards[0].name)
    assert name is not None
    receipt = load_receipt(tmp_path / "cache", name)
    assert receipt is not None
    assert receipt.buckets == PAIRS
    assert [(file.shard, file.records, file.bytes, file.shard_checksum) for file in receipt.files] == [
        (shard.name, shard.records, shard.bytes, shard.checksum) for shard in manifest.shards[:3]
    ]

"""A cache compared with its corpus: recomputed records and repair."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cache.corpora import (
    THREAD_POOL,
    build,
    cache_bytes,
    make_config,
    modification_times,
    write_clip,
    write_corpus,
    write_metadata,
    write_records,
)
from tests.calling import xtts
from tests.damage import flip_bit
from xtts_pipeline.cache.build.pool import Pool, local_pool
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import load_manifest, record_spec
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify import recompute
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands.verify_cache import verify
from xtts_pipeline.errors import CacheError, ConfigError, CorpusError

CLIPS = 24


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its cache, side by side; tests work on copies."""
    root = tmp_path_factory.mktemp("pristine")
    build(write_corpus(root / "data", CLIPS), root / "cache")
    return root


def deep(root: Path, sample: int = CLIPS) -> list[tuple[str, str]]:
    report = verify(root / "cache", level="deep", data=root / "data", sample=sample, repair=False, jobs=1)
    assert report.sampled == sample
    return [(str(problem.kind), problem.detail) for problem in report.problems]


def repair(root: Path, data: str = "data", pool: Pool = THREAD_POOL) -> bool:
    """Repair a cache, by default in this process: a worker process takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "local_pool", lambda _jobs: pool)
        return verify(root / "cache", level="full", data=root / data, sample=None, repair=True, jobs=1).valid


def remove_sounds(data: Path) -> None:
    """Leave the folder of the sounds empty, as a disk that is not mounted does."""
    shutil.rmtree(data / "wavs")
    (data / "wavs").mkdir()


def write_other_corpus(data: Path) -> None:
    shutil.rmtree(data)
    write_corpus(data, 3)
    write_metadata(data, 3, changed={number: f"other words {number}" for number in range(3)})
    for number in range(3):
        write_clip(data, f"clip-{number:03d}", seconds=0.9 + 0.1 * number)


def test_a_cache_is_what_its_corpus_gives(root: Path) -> None:
    assert deep(root) == []


def test_the_summary_says_how_many_clips_were_recomputed(root: Path) -> None:
    def summary(sample: int | None) -> str:
        report = verify(root / "cache", level="deep", data=root / "data", sample=sample, repair=False, jobs=1)
        assert (report.to_json()["level"], report.to_json()["sampled"]) == ("deep", sample or 20)
        return report.to_text()

    assert summary(2).startswith(f"valid (deep: 2 of {CLIPS} clips recomputed): {CLIPS} records, ")
    assert summary(None).startswith(f"valid (deep: 20 of {CLIPS} clips recomputed): ")


def test_nothing_is_recomputed_after_problems_of_the_full_level(root: Path) -> None:
    (root / "cache" / "rejected.jsonl").write_text("x")

    report = verify(root / "cache", level="deep", data=root / "data", sample=2, repair=False, jobs=1)

    assert {problem.where.split(":")[0] for problem in report.problems} == {"rejected.jsonl"}
    assert "NOT VALID (deep: no clip recomputed, the full level found problems), " in report.to_text()


def test_repair_lists_the_files_it_wrote(root: Path) -> None:
    cache = root / "cache"
    shard = load_manifest(cache).shard_names("train")[0]
    (cache / shard).unlink()
    (cache / "train-00000-of-00099.tfrecord").touch()

    report = verify(cache, level="full", data=root / "data", sample=None, repair=True, jobs=1)

    names = ["manifest.json", f"receipts/{Path(shard).stem}.json", "train-00000-of-00099.tfrecord", shard]
    assert list(report.repaired) == sorted(names)
    assert report.to_text().startswith(f"repaired: {', '.join(sorted(names))}\nvalid (full): ")


def test_a_changed_source_is_named(root: Path) -> None:
    write_clip(root / "data", "clip-003", hz=999.0)

    [(kind, detail)] = deep(root)

    assert kind == "source"
    assert detail.startswith("clip-003: wavs/clip-003.wav is not the file that the cache was made from")


def test_a_changed_text_and_a_lost_clip_are_named(root: Path) -> None:
    write_metadata(root / "data", CLIPS, changed={5: "this is clip 6"})
    (root / "data" / "wavs" / "clip-007.wav").unlink()

    details = sorted(detail for _, detail in deep(root))

    assert details[0].startswith("clip-005: tokens: differs")
    assert details[1].startswith("clip-007: the corpus has audio_missing (no sound file wavs/clip-007.wav")
    assert len(details) == 2


def test_a_record_with_another_mel_is_found_though_every_checksum_fits(
    root: Path, reseal: Callable[[Path], None]
) -> None:
    cache = root / "cache"
    spec = record_spec(load_manifest(cache))
    shard = cache / load_manifest(cache).shard_names("train")[0]
    payloads = list(read_records(shard))
    mel = decode_example(payloads[0], spec)["mel"]
    payloads[0] = payloads[0].replace(
        mel.tobytes(), np.where(np.arange(len(mel))[:, None] == 1, mel + np.float16(0.5), mel).tobytes()
    )
    write_records(shard, payloads)
    reseal(cache)
    for receipt in (cache / "receipts").iterdir():
        receipt.unlink()

    assert verify_cache(cache).valid
    assert [detail.split(": ")[1:3] for _, detail in deep(root)] == [
        ["mel", "differs by up to 0.5000 from the recomputed one, at most 0.0078 expected"]
    ]

    report = verify(cache, level="deep", data=root / "data", sample=CLIPS, repair=True, jobs=1)
    assert report.valid
    assert shard.name in report.repaired


def test_validation_clips_of_a_second_corpus_are_no_problem(tmp_path: Path) -> None:
    """Both corpora have the same layout, and the copy has no receipts to tell them apart."""
    first, second = write_corpus(tmp_path / "data", 20), write_corpus(tmp_path / "other", 6)
    metadata = second / "metadata.csv"
    metadata.write_text(metadata.read_text().replace("clip-", "other-"), encoding="utf-8")
    for path in (second / "wavs").iterdir():
        path.rename(path.with_name(path.name.replace("clip-", "other-")))
    done = xtts("preprocess", "--data", first, "--val-data", second, "--cache", tmp_path / "cache")
    assert done.exit_code == 0, done.output
    assert deep(tmp_path, 20) == []
    shutil.rmtree(tmp_path / "cache" / "receipts")
    path = tmp_path / "cache" / load_manifest(tmp_path / "cache").shard_names("train")[0]
    path.write_bytes(path.read_bytes()[:-1])
    before = cache_bytes(tmp_path / "cache")
    with pytest.raises(CacheError, match="made with --val-data"):
        repair(tmp_path)
    assert cache_bytes(tmp_path / "cache") == before


def test_clips_of_a_merged_cache_from_another_corpus_are_left_out(tmp_path: Path) -> None:
    for name in ("data", "other"):
        corpus = write_corpus(tmp_path / name, 12)
        (corpus / "metadata.csv").write_text((corpus / "metadata.csv").read_text().replace("clip-", f"{name}-"))
        for path in (corpus / "wavs").iterdir():
            path.rename(path.with_name(path.name.replace("clip-", f"{name}-")))
        build(corpus, tmp_path / f"{name}-cache")
    done = xtts("cache", "merge", *(tmp_path / name for name in ("data-cache", "other-cache", "cache")))
    assert done.exit_code == 0, done.output
    report = verify(tmp_path / "cache", level="deep", data=tmp_path / "data", sample=24, repair=False, jobs=1)
    assert (report.sampled, report.problems) == (12, ())


def test_each_corpus_of_a_merged_cache_is_read_in_its_own_layout(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data", 6), tmp_path / "data-cache")
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "data" / "wavs", other / "clips")
    rows = [line.split("|") for line in (tmp_path / "data" / "metadata.csv").read_text().splitlines()]
    lines = [f"clips/{row[0]}.wav,{row[-1]},other-{row[0]}" for row in rows]
    (other / "list.csv").write_text("\n".join(["file,text,id", *lines]) + "\n")
    build(other, tmp_path / "other-cache")
    done = xtts("cache", "merge", *(tmp_path / name for name in ("data-cache", "other-cache", "cache")))
    assert done.exit_code == 0, done.output
    for corpus in ("data", "other"):
        report = verify(tmp_path / "cache", level="deep", data=tmp_path / corpus, sample=24, repair=False, jobs=1)
        assert (report.sampled, report.problems) == (6, ())


def test_a_lost_validation_clip_is_named(root: Path) -> None:
    """The clip came from this corpus, like every clip of the cache."""
    lines = (root / "data" / "metadata.csv").read_text().splitlines(keepends=True)
    val = {entry.id for entry in read_utterances(root / "cache") if entry.split == "val"}
    assert val
    (root / "data" / "metadata.csv").write_text("".join(line for line in lines if line.split("|")[0] not in val))
    assert len(deep(root)) == len(val)


def test_a_smaller_sample_recomputes_fewer_clips(root: Path) -> None:
    write_metadata(root / "data", CLIPS, changed={number: f"that is clip {number}" for number in range(CLIPS)})

    assert len(deep(root, 5)) == 5
    assert set(deep(root, 5)) < set(deep(root, 9))


@pytest.mark.parametrize("level", ["full", "deep"])
def test_deep_and_repair_need_the_corpus(root: Path, level: str) -> None:
    with pytest.raises(ConfigError, match="add --data DIR"):
        verify(root / "cache", level=level, data=None, sample=None, repair=level == "full", jobs=1)


def test_repair_writes_what_is_broken_and_nothing_else(root: Path) -> None:
    cache = root / "cache"
    expected, times = cache_bytes(cache), modification_times(cache)
    shards = load_manifest(cache).shard_names("train")
    flip_bit(cache / shards[0], 700, 2)
    os.utime(cache / shards[0], ns=(times[shards[0]], times[shards[0]]))
    (cache / shards[1]).unlink()
    (cache / "receipts" / f"{Path(shards[2]).stem}.json").write_text("{}")
    (cache / "rejected.jsonl").unlink()
    (cache / "rejected.jsonl").symlink_to("/dev/null")

    assert repair(root, pool=local_pool(1))

    assert cache_bytes(cache) == expected
    untouched = set(expected) - {*shards[:3], "manifest.json", "rejected.jsonl"}
    assert {name: modification_times(cache)[name] for name in untouched} == {name: times[name] for name in untouched}


def test_repair_keeps_more_shards_than_rows(tmp_path: Path) -> None:
    build(
        write_corpus(tmp_path / "data", 8), tmp_path / "cache", make_config("cache.validation_share=0"), train_shards=8
    )
    write_metadata(tmp_path / "data", 7)
    shards = load_manifest(tmp_path / "cache").shard_names("train")
    flip_bit(next(path for name in shards if (path := tmp_path / "cache" / name).stat().st_size), 700, 2)

    assert repair(tmp_path)
    assert load_manifest(tmp_path / "cache").shard_names("train") == shards


def test_repair_keeps_the_number_of_shards_of_a_split_without_a_file(tmp_path: Path) -> None:
    data, cache, config = tmp_path / "data", tmp_path / "cache", make_config("cache.validation_share=0.5")
    for clips in (20, 80):  # more shards by default
        build(write_corpus(data, clips), cache, config)
    expected = cache_bytes(cache)
    for name in load_manifest(cache).shard_names("val"):
        (cache / name).unlink()

    assert repair(tmp_path)
    assert cache_bytes(cache) == expected


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/nowhere"), os.mkfifo])
def test_repair_makes_a_receipt_anew_that_is_no_file(root: Path, make: Callable[[Path], object]) -> None:
    expected = cache_bytes(root / "cache")
    receipt = next((root / "cache" / "receipts").iterdir())
    receipt.unlink()
    make(receipt)

    assert repair(root)
    assert cache_bytes(root / "cache") == expected


def test_repair_names_a_folder_in_a_receipts_place(root: Path) -> None:
    receipt = next((root / "cache" / "receipts").iterdir())
    receipt.unlink()
    receipt.mkdir()

    with pytest.raises(CacheError, match=rf"{receipt.name}: cannot be written \(Is a directory\); mend that"):
        repair(root)


def test_repair_needs_no_modification_times(root: Path) -> None:
    (root / "data").rename(root / "moved")
    for path in (root / "moved").rglob("*.wav"):
        os.utime(path)
    times = modification_times(root / "cache")
    (root / "cache" / "utterances.jsonl").write_text("")

    assert repair(root, "moved")

    after = modification_times(root / "cache")
    assert {name for name in times if after[name] != times[name]} == {"utterances.jsonl", "manifest.json"}


def test_repair_of_a_sound_cache_changes_nothing(root: Path) -> None:
    times = modification_times(root / "cache")

    assert repair(root)
    assert modification_times(root / "cache") == times


def test_a_failed_repair_loses_nothing(root: Path) -> None:
    before = cache_bytes(root / "cache")
    (root / "cache" / "rejected.jsonl").write_text("x")

    with pytest.raises(CorpusError):
        repair(root, "elsewhere")

    assert cache_bytes(root / "cache") == {**before, "rejected.jsonl": b"x"}


@pytest.mark.parametrize("change", [remove_sounds, write_other_corpus])
def test_repair_by_a_corpus_without_a_clip_of_the_cache_loses_nothing(
    root: Path, change: Callable[[Path], object]
) -> None:
    change(root / "data")
    before = cache_bytes(root / "cache")
    (root / "cache" / "rejected.jsonl").write_text("x")

    remedy = "has none of them; name the corpus that the cache was made from"
    with pytest.raises(CacheError, match=rf"holds {CLIPS} clips of another corpus, and .*/data {remedy}$"):
        repair(root)

    assert cache_bytes(root / "cache") == {**before, "rejected.jsonl": b"x"}


def test_repair_says_that_clips_are_gone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted((root / "data" / "wavs").iterdir())[:20]:
        path.write_text("version https://git-lfs.github.com/spec/v1\n")
    (root / "cache" / "rejected.jsonl").write_text("x")

    assert repair(root)
    assert f"cache: had {CLIPS} clips, the corpus gives {CLIPS - 20}; see its rejected.jsonl" in capsys.readouterr().err


def test_repair_needs_the_manifest(root: Path) -> None:
    (root / "cache" / "manifest.json").write_text("{}")

    with pytest.raises(CacheError, match=r"manifest\.json"):
        repair(root)


def test_repair_refuses_a_file_that_is_no_part_of_a_cache_and_says_to_remove_it(root: Path) -> None:
    (root / "cache" / "notes.txt").write_text("mine")
    with pytest.raises(CacheError) as caught:
        repair(root)
    found = "holds notes.txt, which is no part of a cache; remove it, and repair again"
    assert str(caught.value) == f"{root / 'cache'}: {found}"
    assert (root / "cache" / "notes.txt").read_text() == "mine"

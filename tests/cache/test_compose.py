"""Caches of the records of others: a part is what preprocess would make, and the parts together are the whole."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from click.testing import Result

from tests.cache.corpora import CONFIG, build, cache_bytes, make_config, write_clip, write_corpus
from tests.calling import refusal, xtts
from tests.damage import flip_bit, forged
from xtts_pipeline.cache.build import shapes
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.cli.commands import cache
from xtts_pipeline.errors import CacheError, ConfigError, OutputError

CLIPS = 40
WAVES, BUCKETS = "cache.store_waves=true", "data.buckets=[[24,22],[40,80]]"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and its cache, with waves and buckets."""
    root = tmp_path_factory.mktemp("whole")
    build(write_corpus(root / "data", CLIPS), root / "cache", make_config(WAVES, BUCKETS))
    return root / "cache"


def run(*words: object) -> Result:
    result = xtts("cache", *words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ids_of(cache: Path) -> set[str]:
    return {entry.id for entry in read_utterances(cache)}


def listed(path: Path, ids: set[str]) -> Path:
    path.write_text("".join(f"{id}\n" for id in sorted(ids)))
    return path


def shard_bytes(cache: Path) -> dict[str, bytes]:
    return {name: data for name, data in cache_bytes(cache).items() if name not in ("manifest.json", "rejected.jsonl")}


def every_third_left_out(whole: Path) -> set[str]:
    return ids_of(whole) - {f"clip-{number:03d}" for number in range(0, CLIPS, 3)}


def without_validation(whole: Path) -> set[str]:
    """Return a row more than two shards of `train` have; one of them moves to `val`."""
    return {entry.id for entry in islice((entry for entry in read_utterances(whole) if entry.split == "train"), 17)}


@pytest.mark.parametrize("choose", [every_third_left_out, without_validation])
def test_a_part_has_the_shards_that_preprocess_would_write(
    whole: Path, tmp_path: Path, choose: Callable[[Path], set[str]]
) -> None:
    ids = choose(whole)
    result = run("subset", "--ids", listed(tmp_path / "ids.txt", {*ids, "nobody"}), whole, tmp_path / "part")
    assert result.stderr == f"warning: --ids: 1 of {len(ids) + 1} are not in {whole}, such as nobody\n"
    config = make_config(WAVES, BUCKETS)
    build(whole.parent / "data", tmp_path / "made", config, excluded=ids_of(whole) - ids)
    assert shard_bytes(tmp_path / "part") == shard_bytes(tmp_path / "made")
    run("subset", "--ids", tmp_path / "ids.txt", tmp_path / "part", tmp_path / "again")
    assert shard_bytes(tmp_path / "again") == shard_bytes(tmp_path / "made")
    part, made = load_manifest(tmp_path / "part"), load_manifest(tmp_path / "made")
    assert (part.fingerprint, part.counts, part.excluded) == (made.fingerprint, made.counts, made.excluded)
    assert verify_cache(tmp_path / "part", "full", 1).problems == ()


def test_merged_parts_are_the_whole(whole: Path, tmp_path: Path) -> None:
    run("subset", "--share", "50%", whole, tmp_path / "one")
    rest = ids_of(whole) - ids_of(tmp_path / "one")
    run("subset", "--ids", listed(tmp_path / "ids.txt", rest), whole, tmp_path / "two")
    report = json.loads(run("merge", tmp_path / "one", tmp_path / "two", tmp_path / "both", "--json").stdout)
    assert (report["kept"], len(ids_of(tmp_path / "one"))) == (CLIPS, 21)  # half of each split, rounded up
    assert shard_bytes(tmp_path / "both") == shard_bytes(whole)
    both = load_manifest(tmp_path / "both")
    assert (both.counts, both.excluded, both.layout) == (load_manifest(whole).counts, (), "ljspeech+ljspeech")
    assert verify_cache(tmp_path / "both", "full", 1).problems == ()


def test_files_of_another_build_are_not_composed(whole: Path, tmp_path: Path) -> None:
    """Padded records are as large whatever they hold."""
    source = shutil.copytree(whole, tmp_path / "source")
    build(whole.parent / "data", tmp_path / "other", make_config(WAVES, BUCKETS, "audio.floor=1e-4"))
    shard = next(shard for shard in load_manifest(source).shards if shard.records > 1)
    shutil.copy(tmp_path / "other" / shard.name, source / shard.name)
    with pytest.raises(CacheError, match=rf"{shard.name}: found other bytes than the manifest says"):
        run("subset", "--share", "100%", source, tmp_path / "part")
    assert not (tmp_path / "part" / "manifest.json").exists()


def test_a_merged_cache_is_not_replaced_by_one_of_its_corpora(whole: Path, tmp_path: Path) -> None:
    run("subset", "--share", "50%", whole, tmp_path / "one")
    rest = ids_of(whole) - ids_of(tmp_path / "one")
    run("subset", "--ids", listed(tmp_path / "ids.txt", rest), whole, tmp_path / "two")
    run("merge", tmp_path / "one", tmp_path / "two", tmp_path / "both")
    settings = [f"--set={setting}" for setting in (*CONFIG, WAVES, BUCKETS)]
    words = refusal("preprocess", "--data", whole.parent / "data", "--cache", tmp_path / "both", *settings)
    assert "is a cache of 2 corpora, made by xtts cache merge" in words
    assert ids_of(tmp_path / "both") == ids_of(whole)


def test_a_cache_of_another_version_of_the_format_is_not_replaced(whole: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(whole, cache)
    with forged(cache / "manifest.json") as content:
        content["format_version"] = 1
    before, settings = cache_bytes(cache), [f"--set={setting}" for setting in (*CONFIG, WAVES, BUCKETS)]
    preprocess = ("preprocess", "--data", whole.parent / "data", "--cache", cache, *settings)
    for command in (preprocess, (*preprocess, "--dry-run"), ("cache", "push", whole, cache)):
        assert "found format_version 1, expected 2; remove the cache, and run the command that" in refusal(*command)
    assert cache_bytes(cache) == before


def test_rejections_at_the_same_line_of_two_corpora_are_both_kept(tmp_path: Path) -> None:
    for name in ("data", "val"):
        corpus = write_corpus(tmp_path / name, 8)
        rows = (corpus / "metadata.csv").read_text().splitlines()
        rows = [f"{row if name == 'data' else f'val-{row}'}\n" for row in rows[:-1]]
        (corpus / "metadata.csv").write_text("".join([*rows, "lost|x|this is lost\n"]))
        for path in (corpus / "wavs").iterdir() if name == "val" else ():
            path.rename(path.with_name(f"val-{path.name}"))
    settings = [f"--set={setting}" for setting in CONFIG]
    places = ("--data", tmp_path / "data", "--val-data", tmp_path / "val", "--cache", tmp_path / "whole")
    assert xtts("preprocess", *places, "--jobs", 1, "--max-rejected", "50%", *settings).exit_code == 0
    run("subset", "--share", "50%", tmp_path / "whole", tmp_path / "part")
    counts = [load_manifest(tmp_path / name).rejected_by_reason["audio_missing"] for name in ("whole", "part")]
    assert counts == [2, 2]
    rest = ids_of(tmp_path / "whole") - ids_of(tmp_path / "part")
    run("subset", "--ids", listed(tmp_path / "ids.txt", rest), tmp_path / "whole", tmp_path / "rest")
    run("merge", tmp_path / "part", tmp_path / "rest", tmp_path / "both")
    assert load_manifest(tmp_path / "both").rejected_by_reason == {"audio_missing": 2}


def test_clips_that_the_corpus_puts_into_training_stay_there(tmp_path: Path) -> None:
    data, settings = tmp_path / "data", make_config("cache.validation_share=0.05")
    for number in range(20):
        write_clip(data, f"c{number:02d}", hz=200 + 10 * number)
    rows = (f"wavs/c{number:02d}.wav,this is clip {number},train\n" for number in range(20))
    (data / "manifest.csv").write_text("".join(["audio,text,split\n", *rows]))
    build(data, tmp_path / "whole", settings)
    left_out = {f"wavs/c{number:02d}" for number in range(10)}
    build(data, tmp_path / "part", settings, excluded=left_out)

    kept = listed(tmp_path / "kept.txt", ids_of(tmp_path / "whole") - left_out)
    run("subset", "--ids", kept, tmp_path / "whole", tmp_path / "subset")
    run("merge", tmp_path / "whole", tmp_path / "merged")

    assert shard_bytes(tmp_path / "subset") == shard_bytes(tmp_path / "part")
    assert shard_bytes(tmp_path / "merged") == shard_bytes(tmp_path / "whole")


def test_speakers_and_symbols_of_merged_caches_get_new_ids(tmp_path: Path) -> None:
    for name, texts in (("anna", "one two"), ("ben", "three six")):
        clips = [f"{name}-{number}" for number in range(6)]
        for number, clip in enumerate(clips):
            write_clip(tmp_path / name, clip, hz=300 + 20 * number)
        rows = "".join(f"wavs/{clip}.wav,{texts},{name}\n" for clip in clips)
        (tmp_path / name / "list.csv").write_text(f"audio,text,speaker\n{rows}")
        build(tmp_path / name, tmp_path / f"{name}-cache")
    run("merge", tmp_path / "anna-cache", tmp_path / "ben-cache", tmp_path / "both")
    manifest = load_manifest(tmp_path / "both")
    assert (manifest.speakers, "".join(manifest.symbols)) == (("anna", "ben"), " ehinorstwx")
    # Tokens and speakers of the records are compared with the listing.
    assert verify_cache(tmp_path / "both", "full", 1).problems == ()
    run("subset", "--speaker", "ben", tmp_path / "both", tmp_path / "ben again")
    again, first = shard_bytes(tmp_path / "ben again"), shard_bytes(tmp_path / "ben-cache")
    assert again == first
    with pytest.raises(ConfigError, match=r"--speaker bem: unknown; did you mean ben\?"):
        run("subset", "--speaker", "bem", tmp_path / "both", tmp_path / "none")


@pytest.mark.parametrize(("min_clips", "count"), [(5, 3), (100, 0)])
def test_caches_of_other_buckets_get_new_ones_for_all_clips(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_clips: int, count: int
) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", min_clips)
    run("subset", "--share", "50%", whole, tmp_path / "one")
    rest = ids_of(whole) - ids_of(tmp_path / "one")
    for name, buckets in (("two", "data.buckets=[[20,30],[40,80]]"), ("all", "data.buckets=auto")):
        excluded = ids_of(whole) - rest if name == "two" else set()
        build(whole.parent / "data", tmp_path / name, make_config(WAVES, buckets), excluded=excluded)
    merged = run("merge", tmp_path / "one", tmp_path / "two", tmp_path / "both")
    assert merged.exit_code == 0, merged.output
    both = load_manifest(tmp_path / "both")
    assert (both.buckets, len(both.buckets)) == (load_manifest(tmp_path / "all").buckets, count)
    assert shard_bytes(tmp_path / "both") == shard_bytes(tmp_path / "all")
    assert verify_cache(tmp_path / "both", "full", 1).problems == ()


def test_caches_that_cannot_be_merged_are_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"id clip-\d+ is in .* too; leave it out of one"):
        run("merge", whole, whole, tmp_path / "both")
    build(write_corpus(tmp_path / "data", 4), tmp_path / "other", make_config(WAVES, BUCKETS, "audio.trim_db=30.0"))
    expected = f"has other settings than {whole}: audio.trim_db is 30.0 there, null in the first; make both"
    with pytest.raises(CacheError, match=expected):
        run("merge", whole, tmp_path / "other", tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_damaged_source_or_an_empty_choice_leaves_no_cache(whole: Path, tmp_path: Path) -> None:
    source = shutil.copytree(whole, tmp_path / "source")
    shard = next(shard for shard in load_manifest(source).shards if shard.records > 1)
    flip_bit(source / shard.name, -50)
    for words, message in (
        (["--share", "100%"], "the payload's checksum does not match"),
        (["--ids", str(listed(tmp_path / "ids.txt", {"nobody"}))], "no utterance is left"),
    ):
        with pytest.raises(CacheError, match=message):
            run("subset", *words, source, tmp_path / "part")
        assert not (tmp_path / "part" / "manifest.json").exists()
    with pytest.raises(ConfigError, match="found none of them"):
        run("subset", source, tmp_path / "part")
    for share in ("0%", "0"):
        with pytest.raises(ConfigError, match=r"^--share: found 0%, expected over 0%; name a share such as 10%$"):
            run("subset", "--share", share, source, tmp_path / "part")


def test_a_target_that_is_a_link_to_itself_is_one_line(whole: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OutputError, match="loop"):
        run("subset", "--share", "50%", whole, loop)


def test_a_cache_is_pulled_once(whole: Path, tmp_path: Path) -> None:
    assert json.loads(run("pull", whole, tmp_path / "copy", "--json").stdout)["copied_files"] > 0
    assert cache_bytes(tmp_path / "copy") == cache_bytes(whole)
    assert "nothing to copy" in run("pull", whole, tmp_path / "copy").stdout


def test_seven_percent_of_a_hundred_is_seven(whole: Path) -> None:
    entries = [replace(entry, split="train") for entry in read_utterances(whole)]
    assert [len(cache._share_of((entries * 5)[:100], percent / 100)) for percent in range(1, 101)] == [*range(1, 101)]


def test_the_current_folder_is_not_replaced(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", tmp_path):
        with pytest.raises(OutputError, match="is the current folder, which would be replaced; choose another DST"):
            run("subset", "--share", "50%", whole, name)


def test_a_mount_point_is_not_replaced(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), os.fspath(path))

    monkeypatch.setattr(Path, "rmdir", refuse)
    with pytest.raises(OutputError, match="new: is a mount point, which cannot be replaced; name a folder in it"):
        run("subset", "--share", "50%", whole, tmp_path / "new")


def test_the_cache_is_written_where_a_link_leads(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    run("subset", "--share", "50%", whole, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert verify_cache(tmp_path / "empty").valid

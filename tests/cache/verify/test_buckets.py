"""Verification of caches with buckets: records in the wrong bucket are found."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.corpora import write_records
from tests.damage import flip_bit, forged
from tests.json_lines import read_json_lines
from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs, fingerprint, load_manifest, record_spec
from xtts_pipeline.cache.format.schema import without_padding
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.config.schema import Config, DataConfig
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.sealed_json import canonical_json

BUCKETS = ((8, 12), (12, 18), (16, 24))
SMALL = "train-00001-of-00003-bucket0.tfrecord"
LARGE = "train-00001-of-00003-bucket2.tfrecord"


@pytest.fixture
def cache(tmp_path: Path, write_cache: Callable[..., Manifest]) -> Path:
    """A sound cache in three buckets: 29 training clips in 3 shards, 5 validation clips in one."""
    write_cache(tmp_path / "cache", buckets=BUCKETS)
    return tmp_path / "cache"


def problems_of(cache: Path, level: str = "full") -> list[tuple[str, str, str]]:
    return [(str(problem.kind), problem.where, problem.detail) for problem in verify_cache(cache, level).problems]  # type: ignore[arg-type]


def move_first_record(cache: Path, source: str, target: str) -> str:
    """Move a file's first record to the end of another's, padded as that one's are, with its line; return its id."""
    manifest = load_manifest(cache)
    payload, *rest = read_records(cache / source)
    example = without_padding(decode_example(payload, manifest.spec_of_shard[source]))
    moved = encode_example(example, manifest.spec_of_shard[target])
    for name, payloads in ((source, rest), (target, [*read_records(cache / target), moved])):
        write_records(cache / name, payloads)
    lines = read_json_lines(cache / "utterances.jsonl")
    next(line for line in lines if line["id"] == example.id)["shard"] = target
    positions: dict[str, int] = {}
    lines.sort(key=lambda line: line["shard"])
    for line in lines:
        line["position"] = positions.setdefault(line["shard"], 0)
        positions[line["shard"]] += 1
    (cache / "utterances.jsonl").write_text("".join(f"{canonical_json(line)}\n" for line in lines))
    return example.id


def test_a_sound_cache_in_buckets_is_valid(cache: Path) -> None:
    report = verify_cache(cache)

    assert (report.problems, report.records, report.shards) == ((), 34, 12)
    assert verify_cache(cache, "quick").valid


def test_a_record_that_would_fit_a_smaller_bucket_is_found_even_if_everything_else_agrees(
    cache: Path, reseal: Callable[[Path], None]
) -> None:
    move_first_record(cache, SMALL, LARGE)
    reseal(cache)
    shutil.rmtree(cache / "receipts")

    problems = problems_of(cache)

    [line] = [detail for kind, where, detail in problems if kind == "utterance" and "belong" in detail]
    [record] = [detail for kind, where, detail in problems if where.startswith(LARGE) and "belong" in detail]
    assert line.endswith("belong in bucket 0, found in bucket 2")
    assert record == line


def test_a_record_of_another_buckets_size_is_found(cache: Path, reseal: Callable[[Path], None]) -> None:
    [payload, *_] = read_records(cache / LARGE)
    with (cache / SMALL).open("ab") as file:
        RecordWriter(file).write(payload)
    reseal(cache)

    found = [detail for kind, where, detail in problems_of(cache) if kind == "record" and where.startswith(SMALL)]

    assert any(
        "feature mel holds 192 bytes, expected 96" in detail or "feature tokens holds" in detail for detail in found
    )


def test_swapped_files_of_two_buckets_are_found(cache: Path, reseal: Callable[[Path], None]) -> None:
    small, large = (cache / SMALL).read_bytes(), (cache / LARGE).read_bytes()
    (cache / SMALL).write_bytes(large)
    (cache / LARGE).write_bytes(small)
    reseal(cache)

    assert {where.split(" ")[0] for kind, where, _ in problems_of(cache) if kind == "record"} >= {SMALL, LARGE}


@pytest.mark.parametrize("level", ["quick", "full"])
def test_missing_and_stray_bucket_files_are_found(cache: Path, level: str) -> None:
    (cache / LARGE).unlink()
    (cache / "train-00001-of-00003-bucket3.tfrecord").touch()
    (cache / "train-00001-of-00003.tfrecord").touch()

    assert [(kind, where) for kind, where, _ in problems_of(cache, level)] == [
        ("missing", LARGE),
        ("extra", "train-00001-of-00003-bucket3.tfrecord"),
        ("extra", "train-00001-of-00003.tfrecord"),
    ]


def test_a_bucket_file_in_a_cache_of_one_shape_is_extra(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    write_cache(tmp_path / "cache")
    (tmp_path / "cache" / SMALL).touch()

    assert [(kind, where) for kind, where, _ in problems_of(tmp_path / "cache")] == [("extra", SMALL)]


def test_a_damaged_byte_in_any_bucket_is_found(cache: Path) -> None:
    for name in (SMALL, LARGE):
        flip_bit(cache / name, (cache / name).stat().st_size // 2)

    assert {where.split(" ")[0] for kind, where, _ in problems_of(cache) if kind in ("checksum", "record")} == {
        SMALL,
        LARGE,
    }


@pytest.mark.parametrize("key", ["records", "bytes", "mtime_ns", "shard_checksum", "shard"])
def test_a_receipt_of_other_files_is_found(cache: Path, key: str) -> None:
    with forged(cache / "receipts" / "train-00001-of-00003.json") as content:
        entry = content["more_files"][1]
        entry[key] = {"shard_checksum": "0" * 32, "shard": SMALL}.get(key, 1 if key == "mtime_ns" else 0)

    found = [kind for kind, where, _ in problems_of(cache, "quick") if where.startswith("receipts/")]

    assert found == ([] if key == "mtime_ns" else ["receipt"])  # a time is nobody's business but preprocess's


def test_a_wrong_bucket_number_in_the_manifest_is_found(cache: Path) -> None:
    with forged(cache / "manifest.json") as content:
        content["shards"][0]["bucket"] = 1

    assert problems_of(cache)[0][:2] == ("manifest", "manifest.json")
    with pytest.raises(CacheError, match=r"train-00000-of-00003-bucket0.tfrecord.bucket: found 1, expected 0"):
        load_manifest(cache)


@pytest.mark.parametrize(
    ("buckets", "message"),
    [
        (None, "missing keys|fingerprint|bucket"),
        ([], "missing keys|fingerprint|bucket"),
        ([[16, 24]], "found 1, expected several"),
        ([[8, 12], [16, 24]], "fingerprint|shards"),
        ([[12, 18], [8, 12], [16, 24]], "comes after"),
        ([[8, 12], [12, 18], [16, 23]], "the last one is"),
        ([[-1, 12], [12, 18], [16, 24]], "expected at least 1 token"),
        ([[8, 12, 1], [12, 18], [16, 24]], "buckets"),
        ([[8, 12], [12, 18.0], [16, 24]], "buckets"),
    ],
)
def test_buckets_that_break_the_rules_are_found(cache: Path, buckets: object, message: str) -> None:
    with forged(cache / "manifest.json") as content:
        content["buckets"] = buckets

    with pytest.raises(CacheError, match=message):
        load_manifest(cache)


def test_other_edges_with_a_fingerprint_to_match_do_not_fit_the_records(cache: Path) -> None:
    manifest, edges = load_manifest(cache), ((9, 12), (12, 18), (16, 24))
    config = Config(audio=manifest.audio, text=manifest.text, limits=manifest.limits, data=DataConfig(buckets=edges))
    prints = fingerprint(config, manifest.symbols)
    with forged(cache / "manifest.json") as content:
        content.update(buckets=[list(pair) for pair in edges], fingerprint=prints)

    assert any(kind == "record" and "bucket0" in where for kind, where, _ in problems_of(cache))


def test_each_bucket_has_a_spec_of_its_own(cache: Path) -> None:
    manifest = load_manifest(cache)

    specs = bucket_specs(manifest)
    assert [(spec.max_text_length, spec.max_mel_frames) for spec in specs] == list(BUCKETS)
    assert record_spec(manifest) == specs[-1]

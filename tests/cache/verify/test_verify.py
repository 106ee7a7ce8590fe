"""The verifier: sound caches pass, and every contradiction is named."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cache.corpora import build, write_corpus, write_records
from tests.damage import flip_bit, forged
from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.listings import UTTERANCES, read_utterances
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest, manifest_bytes, record_spec
from xtts_pipeline.cache.format.schema import Example, without_padding
from xtts_pipeline.cache.format.shards import ShardName
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify.listings import _order_problems
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.sealed_json import canonical_json, seal_json, unseal_json

SHARD = "train-00001-of-00003.tfrecord"
OTHER_SHARD = "train-00002-of-00003.tfrecord"
RECEIPT = "receipts/train-00001-of-00003.json"


def problems_of(cache: Path, level: str = "full") -> list[tuple[str, str]]:
    """Return kind and place of every problem."""
    return [(str(problem.kind), problem.where) for problem in verify_cache(cache, level).problems]


def change_record(cache: Path, change: Callable[[Example], Example]) -> None:
    """Rewrite the first record of SHARD, its framing sound."""
    spec = record_spec(load_manifest(cache))
    payloads = list(read_records(cache / SHARD))
    example = without_padding(decode_example(payloads[0], spec))
    write_records(cache / SHARD, [encode_example(change(example), spec), *payloads[1:]])


@pytest.mark.parametrize("level", ["quick", "full"])
def test_a_sound_cache_is_valid(cache: Path, level: str) -> None:
    report = verify_cache(cache, level)

    shard_bytes = sum(path.stat().st_size for path in cache.glob("*.tfrecord"))
    counts = {"records": 34, "shards": 4, "bytes": shard_bytes}
    assert report.to_json() == {"valid": True, "problems": (), **counts, "level": level, "sampled": 0, "repaired": ()}
    proof = {"quick": "quick: names and sizes; no record was read", "full": "full"}[level]
    assert report.to_text() == f"valid ({proof}): 34 records, 4 shard files, {shard_bytes / 1e6:.1f} MB"


def test_a_cache_without_validation_and_with_an_empty_shard_is_valid(
    tmp_path: Path, write_cache: Callable[..., Manifest]
) -> None:
    write_cache(tmp_path, train=3, val=0, shards=7)

    assert any(not path.stat().st_size for path in tmp_path.glob("*.tfrecord"))
    assert verify_cache(tmp_path).valid


def test_receipts_lock_and_gitignore_are_optional(cache: Path) -> None:
    (cache / ".gitignore").write_text("*\n")
    (cache / ".lock").unlink()
    for receipt in (cache / "receipts").iterdir():
        receipt.unlink()
    (cache / "receipts").rmdir()

    assert verify_cache(cache).valid


@pytest.mark.parametrize("name", ["manifest.json", "utterances.jsonl", "rejected.jsonl", SHARD, RECEIPT])
def test_any_flipped_bit_is_found_and_its_file_is_named(cache: Path, name: str) -> None:
    path = cache / name
    bits = np.random.default_rng(len(name)).integers(path.stat().st_size * 8, size=20).tolist()
    for bit in [0, path.stat().st_size * 8 - 1, *bits]:
        flip_bit(path, *divmod(bit, 8))
        assert name in {where.split(":")[0].split(" ")[0] for _, where in problems_of(cache)}, f"bit {bit}"
        flip_bit(path, *divmod(bit, 8))

    assert verify_cache(cache).valid


@pytest.mark.slow
def test_a_thousand_flipped_bits_are_found(cache: Path) -> None:
    files = sorted(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size)
    chance = np.random.default_rng(0)
    for _ in range(1_000):
        path = files[chance.integers(len(files))]
        bit = int(chance.integers(path.stat().st_size * 8))
        flip_bit(path, *divmod(bit, 8))
        assert not verify_cache(cache).valid, f"{path.name} bit {bit}"
        flip_bit(path, *divmod(bit, 8))

    assert verify_cache(cache).valid


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("name", [SHARD, "utterances.jsonl", "rejected.jsonl"])
def test_the_quick_level_finds_truncated_and_missing_files(cache: Path, name: str, level: str) -> None:
    (cache / name).write_bytes((cache / name).read_bytes()[:-1])
    assert ("size", name) in problems_of(cache, level)

    (cache / name).unlink()
    assert problems_of(cache, level) == [("missing", name)]


@pytest.mark.parametrize("level", ["quick", "full"])
def test_extra_and_renamed_shards_are_found(cache: Path, level: str) -> None:
    (cache / "train-00000-of-00009.tfrecord").write_bytes(b"")
    assert problems_of(cache, level) == [("extra", "train-00000-of-00009.tfrecord")]

    (cache / SHARD).rename(cache / "train-00000-of-00009.tfrecord")
    assert problems_of(cache, level) == [("extra", "train-00000-of-00009.tfrecord"), ("missing", SHARD)]


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("notes.txt", "no part of a cache; remove it"),
        ("train-1-of-2.tfrecord", "no part of a cache; remove it"),
        ("train-00000-of-00009.tfrecord", "not in the manifest; remove it, or run xtts preprocess to finish the cache"),
        (".work-0123abcd", "not in the manifest; remove it, or run xtts preprocess to finish the cache"),
    ],
)
def test_an_extra_files_remedy_fits_its_kind(cache: Path, name: str, detail: str) -> None:
    (cache / name).touch()

    assert [(problem.where, problem.detail) for problem in verify_cache(cache, "quick").problems] == [(name, detail)]


def test_swapped_shard_names_are_found(cache: Path) -> None:
    (cache / SHARD).rename(cache / "aside")
    (cache / OTHER_SHARD).rename(cache / SHARD)
    (cache / "aside").rename(cache / OTHER_SHARD)

    assert {("checksum", SHARD), ("checksum", OTHER_SHARD)} <= set(problems_of(cache))


def test_every_problem_is_listed(cache: Path) -> None:
    flip_bit(cache / SHARD, 500)
    flip_bit(cache / RECEIPT, 50)
    (cache / OTHER_SHARD).unlink()
    (cache / "rejected.jsonl").write_bytes(b"")
    (cache / "notes.txt").write_text("remember")

    report = verify_cache(cache)

    found = {(str(problem.kind), problem.where.split(" ")[0]) for problem in report.problems}
    expected = {
        ("checksum", SHARD),
        ("receipt", RECEIPT),
        ("missing", OTHER_SHARD),
        ("size", "rejected.jsonl"),
        ("extra", "notes.txt"),
    }
    assert expected <= found
    assert len(report.to_text().splitlines()) == len(report.problems) + 1


def test_a_damaged_record_is_named_by_number(cache: Path) -> None:
    first_bytes = len(next(read_records(cache / SHARD))) + 16
    flip_bit(cache / SHARD, first_bytes + 100)

    [problem] = [problem for problem in verify_cache(cache).problems if problem.kind == "record"]

    assert problem.where == f"{SHARD} record 1"
    assert problem.detail.startswith(f"at byte {first_bytes}: ")
    assert problem.detail.endswith("; run xtts verify-cache --cache CACHE --repair --data DIR")


def test_a_record_that_is_no_example_is_named_by_number_and_says_what_to_do(
    cache: Path, reseal: Callable[[Path], None]
) -> None:
    payloads = list(read_records(cache / SHARD))
    write_records(cache / SHARD, [payloads[0], b"\xff", *payloads[2:]])
    reseal(cache)
    receipts_removed(cache)

    [problem] = verify_cache(cache).problems

    assert (problem.kind, problem.where) == ("record", f"{SHARD} record 1")
    assert problem.detail.endswith("no tf.train.Example; run xtts verify-cache --cache CACHE --repair --data DIR")


@pytest.mark.parametrize(
    ("key", "value"),
    [("counts", {"kept": 33, "read": 34, "rejected": 1}), ("layout", "vctk"), ("speakers", ["anna", "carl"])],
)
def test_a_changed_manifest_is_found(cache: Path, key: str, value: object) -> None:
    path = cache / "manifest.json"
    content = unseal_json(path.read_bytes())
    path.write_bytes(seal_json({**content, key: value}).replace(b'"checksum":"', b'"checksum":"0', 1))

    assert problems_of(cache) == [("manifest", "manifest.json")]


def test_a_manifest_resealed_with_wrong_numbers_is_found(cache: Path) -> None:
    manifest = load_manifest(cache)
    statistics = {
        **manifest.statistics,
        "frames": replace(manifest.statistics["frames"], mean=manifest.statistics["frames"].mean + 0.5),
    }
    (cache / "manifest.json").write_bytes(manifest_bytes(replace(manifest, statistics=statistics)))
    assert problems_of(cache) == [("manifest", "manifest.json")]

    wrong_reason = replace(manifest, rejected_by_reason={"audio_empty": 1})
    (cache / "manifest.json").write_bytes(manifest_bytes(wrong_reason))
    assert problems_of(cache) == [("rejected", "rejected.jsonl")]

    another_seed = replace(manifest, cache=manifest.cache.model_copy(update={"seed": 1}))
    (cache / "manifest.json").write_bytes(manifest_bytes(another_seed))
    assert "utterance" in {kind for kind, _ in problems_of(cache)}


def test_a_record_swapped_between_shards_is_found_though_every_checksum_fits(
    cache: Path, reseal: Callable[[Path], None]
) -> None:
    first, second = list(read_records(cache / SHARD)), list(read_records(cache / OTHER_SHARD))
    first[0], second[0] = second[0], first[0]
    write_records(cache / SHARD, first)
    write_records(cache / OTHER_SHARD, second)
    reseal(cache)
    receipts_removed(cache)

    assert {where for kind, where in problems_of(cache) if kind == "record"} == {
        f"{SHARD} record 0",
        f"{OTHER_SHARD} record 0",
    }

    lines = (cache / "utterances.jsonl").read_bytes().splitlines(keepends=True)
    entries = [UTTERANCES.parse_line(line) for line in lines]
    places = [[entry.shard for entry in entries].index(shard) for shard in (SHARD, OTHER_SHARD)]
    one, other = (entries[place] for place in places)
    entries[places[0]], entries[places[1]] = replace(other, shard=one.shard), replace(one, shard=other.shard)
    (cache / "utterances.jsonl").write_bytes(
        b"".join(f"{canonical_json(asdict(entry))}\n".encode() for entry in entries)
    )
    reseal(cache)

    problems = verify_cache(cache).problems
    assert {problem.kind for problem in problems} == {"utterance"}
    assert sum("its digest says" in problem.detail for problem in problems) == 2


def test_shards_are_ordered_by_number_beyond_a_hundred_thousand(cache: Path) -> None:
    manifest, line = load_manifest(cache), next(read_utterances(cache))
    names = [ShardName("train", number, 100_001).file() for number in (99_999, 100_000)]
    shards = [replace(manifest.shards[0], name=name) for name in names]
    listed = SimpleNamespace(shards=shards, cache=manifest.cache)
    entries = [replace(line, shard=name, position=0) for name in names]
    by_shard = {entry.shard: [entry] for entry in entries}
    assert list(_order_problems(entries, by_shard, listed)) == []  # type: ignore[arg-type]
    assert len(list(_order_problems(entries[::-1], by_shard, listed))) == 1  # type: ignore[arg-type]


def receipts_removed(cache: Path) -> None:
    for receipt in (cache / "receipts").iterdir():
        receipt.unlink()


def test_records_in_another_order_are_found_though_every_checksum_fits(
    cache: Path, reseal: Callable[[Path], None]
) -> None:
    payloads = list(read_records(cache / SHARD))
    write_records(cache / SHARD, payloads[::-1])
    reseal(cache)
    receipts_removed(cache)

    assert ("record", f"{SHARD} record 0") in problems_of(cache)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda example: replace(example, mel=example.mel[:-1]), "mel_length"),
        (lambda example: replace(example, tokens=example.tokens[:-1]), "text_length"),
        (
            lambda example: replace(example, tokens=np.where(example.tokens == example.tokens[1], 10, example.tokens)),
            "tokens",
        ),
        (lambda example: replace(example, speaker=1 - example.speaker), "speaker"),
        (lambda example: replace(example, language=1), "language"),
        (lambda example: replace(example, id="../../x"), "id"),
        (
            lambda example: replace(example, mel=np.where(example.mel == example.mel[0, 0], np.nan, example.mel)),
            "not finite",
        ),
        (
            lambda example: replace(example, mel=np.where(example.mel == example.mel[0, 0], -np.inf, example.mel)),
            "not finite",
        ),
    ],
)
def test_a_record_that_contradicts_its_utterance_is_found(
    cache: Path, reseal: Callable[[Path], None], change: Callable[[Example], Example], expected: str
) -> None:
    change_record(cache, change)
    reseal(cache)
    receipts_removed(cache)

    problems = [problem for problem in verify_cache(cache).problems if problem.kind == "record"]

    assert {problem.where for problem in problems} == {f"{SHARD} record 0"}
    assert any(expected in problem.detail for problem in problems)


def test_sound_in_the_padding_is_found(cache: Path, reseal: Callable[[Path], None]) -> None:
    spec = record_spec(load_manifest(cache))
    payloads = list(read_records(cache / SHARD))
    index = next(
        i for i, payload in enumerate(payloads) if decode_example(payload, spec)["mel_length"] < spec.max_mel_frames
    )
    values = decode_example(payloads[index], spec)
    loud = values["mel"].copy()
    loud[-1, -1] = 0.0
    payloads[index] = payloads[index].replace(values["mel"].tobytes(), loud.tobytes())
    write_records(cache / SHARD, payloads)
    reseal(cache)
    receipts_removed(cache)

    assert [problem.detail for problem in verify_cache(cache).problems] == [
        f"mel: found sound after frame {values['mel_length']}, expected silence ({spec.pad_value:.4f})"
    ]


def test_receipts_of_other_shards_are_found(cache: Path) -> None:
    (cache / RECEIPT).rename(cache / "receipts" / "train-00007-of-00009.json")
    assert problems_of(cache, "quick") == [("extra", "receipts/train-00007-of-00009.json")]

    (cache / "receipts" / "train-00007-of-00009.json").rename(cache / "receipts" / "train-00002-of-00003.json")
    assert problems_of(cache, "quick") == [("receipt", "receipts/train-00002-of-00003.json")]


@pytest.mark.parametrize("name", ["manifest.json", SHARD, "utterances.jsonl", "rejected.jsonl", RECEIPT, ".lock"])
def test_links_and_pipes_are_named_and_not_opened(cache: Path, tmp_path: Path, name: str) -> None:
    (cache / name).rename(tmp_path / "elsewhere")
    (cache / name).symlink_to(tmp_path / "elsewhere")
    assert ("not_a_file", name) in problems_of(cache)

    (cache / name).unlink()
    os.mkfifo(cache / name)
    assert ("not_a_file", name) in problems_of(cache)


def test_a_manifest_with_a_path_outside_the_cache_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with forged(cache / "manifest.json") as content:
        content["shards"][0]["name"] = "../secret"

    report = verify_cache(cache)

    assert [problem.kind for problem in report.problems] == ["manifest"]
    assert "is not a shard's name" in report.problems[0].detail


def test_a_folder_without_a_sound_manifest_is_not_valid(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert problems_of(tmp_path) == [("manifest", "manifest.json")]

    (tmp_path / "manifest.json").write_text("{}")
    assert problems_of(tmp_path) == [("manifest", "manifest.json")]


@pytest.mark.parametrize("name", ["absent", "empty", "ignored"])
def test_a_missing_cache_is_an_input_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "ignored").mkdir()
    (tmp_path / "ignored" / ".gitignore").touch()

    with pytest.raises(CacheError, match=r"expected a cache; run xtts preprocess") as error:
        verify_cache(tmp_path / name)

    assert error.value.exit_code == 2


def test_a_file_is_not_taken_for_a_missing_folder(cache: Path) -> None:
    with pytest.raises(CacheError, match=r"manifest\.json: is a file, expected the folder of a cache"):
        verify_cache(cache / "manifest.json")


def test_tensorflow_and_librosa_are_not_imported(cache: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from xtts_pipeline.cache.verify.verify import verify_cache
assert verify_cache(Path({str(cache)!r})).valid
print([name for name in ("tensorflow", "librosa", "scipy", "soundfile") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("utterances.jsonl", "size"), ("rejected.jsonl", "size"), (RECEIPT, "receipt"), ("manifest.json", "manifest")],
)
def test_an_endless_file_is_named_and_not_read(cache: Path, name: str, kind: str) -> None:
    os.truncate(cache / name, 1 << 40)
    assert problems_of(cache) == [(kind, name)]


@pytest.mark.parametrize(
    ("key", "value"),
    [("raw_text", "other"), ("seconds", 9.5), ("audio", "wavs/other.wav"), ("source", None), ("frames", 9)],
)
def test_a_kept_row_changed_in_a_resealed_receipt_is_found(cache: Path, key: str, value: object) -> None:
    with forged(cache / RECEIPT) as content:
        content["rows"][0][key] = value
    assert problems_of(cache) == [("receipt", RECEIPT)]


@pytest.mark.parametrize(
    ("key", "value"), [("reason", "audio_empty"), ("reason", "no such reason"), ("detail", "other"), ("id", "other")]
)
def test_a_rejected_row_changed_in_a_resealed_receipt_is_found(tmp_path: Path, key: str, value: str) -> None:
    data, cache = write_corpus(tmp_path / "data", 4), tmp_path / "cache"
    (data / "wavs" / "clip-002.wav").write_bytes(b"no sound")
    build(data, cache)
    assert problems_of(cache) == []
    for path in (cache / "receipts").iterdir():
        with forged(path) as content:
            for row in content["rows"]:
                if row["reason"] is not None:
                    row[key] = value
    assert [kind for kind, _ in problems_of(cache)] == ["receipt"]

"""A record that is compared by its bytes gets the verdict of one that is decoded."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cache.corpora import write_records
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cache.verify import shards
from xtts_pipeline.cache.verify.shards import ShardVerifier

# Infinity, NaN and a finite number in the high byte of a float16; other numbers elsewhere.
CHANGES = (0x7C, 0xFE, 0x01)


@pytest.fixture(params=[None, ((8, 12), (16, 24))], ids=["one shape", "buckets"])
def verdict(
    request: pytest.FixtureRequest, tmp_path: Path, write_cache: Callable[..., Manifest]
) -> tuple[Callable[[bytes], list[str]], bytes]:
    """A function from the bytes of a record to its problems, and the bytes of a sound record."""
    cache = tmp_path / "cache"
    manifest = write_cache(cache, buckets=request.param)
    entry = next(entry for entry in read_utterances(cache) if entry.frames < 24)
    shard = next(shard for shard in manifest.shards if shard.name == entry.shard)
    payload = list(read_records(cache / shard.name))[entry.position]
    verifier, one = ShardVerifier(cache, manifest), shard.__class__(**{**vars(shard), "records": 1})

    def problems(changed: bytes) -> list[str]:
        write_records(cache / shard.name, [changed])
        found = verifier.check(one, [entry]).problems
        return [problem.detail for problem in found if problem.kind == "record"]

    return problems, payload


def test_a_changed_byte_gets_the_verdict_of_decoding(
    verdict: tuple[Callable[[bytes], list[str]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    problems, payload = verdict
    assert problems(payload) == []
    places = [*range(100), *range(100, len(payload) - 100, 7), *range(len(payload) - 100, len(payload))]
    changed = [
        payload[:place] + bytes([value]) + payload[place + 1 :]
        for place in sorted({place for place in places if 0 <= place < len(payload)})
        for value in CHANGES
    ]
    by_bytes = [problems(each) for each in changed]
    monkeypatch.setattr(shards, "_sound_of", lambda *_: None)

    assert by_bytes == [problems(each) for each in changed]
    assert sum(map(bool, by_bytes)) > len(changed) // 4


def test_the_same_features_in_another_order_are_decoded(
    verdict: tuple[Callable[[bytes], list[str]], bytes],
) -> None:
    problems, payload = verdict
    # An Example begins with a tag and a size of two bytes. Move its first entry, that of the id, to the end.
    start, end = 3, 5 + payload[4]
    assert payload[start] == 0x0A
    assert b"id" in payload[start:end]
    assert problems(payload[:start] + payload[end:] + payload[start:end]) == []
    assert len(problems(payload[:start] + payload[end:])) == 1

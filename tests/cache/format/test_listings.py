import re
from pathlib import Path

import pytest

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.errors import CacheError


def test_utterances_come_in_the_order_of_their_lines(cache: Path) -> None:
    lines = (cache / "utterances.jsonl").read_text(encoding="utf-8").splitlines()
    entries = list(read_utterances(cache))
    assert len(entries) == len(lines) > 1
    assert all(f'"id":"{entry.id}"' in line for entry, line in zip(entries, lines, strict=True))


@pytest.mark.parametrize("line", [b"{}\n", b"no JSON\n", b'{ "id": "a" }\n'])
def test_a_malformed_line_is_an_error_with_its_number(cache: Path, line: bytes) -> None:
    path = cache / "utterances.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, line, *others]))
    with pytest.raises(CacheError, match=rf"{path}:2: .*; run xtts verify-cache"):
        list(read_utterances(cache))


@pytest.mark.parametrize("path", [b"/etc/passwd", b"../a.wav", b"wavs/../../a.wav", b"a\\u0000.wav"])
def test_a_sound_outside_the_corpus_is_an_error(cache: Path, path: bytes) -> None:
    listing = cache / "utterances.jsonl"
    lines, found = re.subn(rb'"path":"[^"]*"', lambda _: b'"path":"' + path + b'"', listing.read_bytes(), count=1)
    listing.write_bytes(lines)
    assert found == 1
    with pytest.raises(CacheError, match=rf"{listing}:1: source.path: .*a path that leaves the corpus; run"):
        list(read_utterances(cache))


@pytest.mark.parametrize(("seconds", "is_canonical"), [(b"1e-05", True), (b"1e-5", False), (b"1.50", False)])
def test_a_float_is_written_as_python_writes_it(cache: Path, seconds: bytes, is_canonical: bool) -> None:
    path = cache / "utterances.jsonl"
    path.write_bytes(re.sub(rb'"seconds":[0-9.]+', b'"seconds":' + seconds, path.read_bytes(), count=1))
    if is_canonical:
        assert next(read_utterances(cache)).seconds == 1e-5
    else:
        with pytest.raises(CacheError, match=rf"{path}:1: found JSON that is not in its canonical form"):
            list(read_utterances(cache))


def test_a_listing_that_is_missing_or_too_large_is_an_error(cache: Path) -> None:
    path = cache / "utterances.jsonl"
    with pytest.raises(
        CacheError, match=r"cannot be read \(found \d+ bytes, expected at most 10\); run xtts verify-cache"
    ):
        list(read_utterances(cache, most_bytes=10))
    path.unlink()
    with pytest.raises(CacheError, match=f"{path}: cannot be read"):
        list(read_utterances(cache))

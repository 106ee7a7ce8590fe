"""A program that follows docs/cache-format.md, its example or its rules, reads a cache as the package does."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cache.corpora import build, make_config, records_of
from tests.json_lines import read_json_lines
from xtts_pipeline.cache.format.manifest import Manifest

DOCUMENT = Path(__file__).parents[3] / "docs" / "cache-format.md"


@pytest.mark.parametrize("buckets", [None, ((8, 12), (16, 24))])
def test_the_documents_example_reads_every_record(
    tmp_path: Path,
    write_cache: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    buckets: tuple[tuple[int, int], ...] | None,
) -> None:
    cache = tmp_path / "cache"
    write_cache(cache, buckets=buckets)
    [program] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(cache.parent)
    names: dict[str, Any] = {}

    exec(compile(program, str(DOCUMENT), "exec"), names)  # noqa: S102

    expected = [record for _, record in records_of(cache)]
    found = list(names["read_cache"](cache))
    assert len(found) == len(expected) == 34
    for have, want in zip(found, expected, strict=True):
        assert have.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_array_equal(have[name], value)
    assert capsys.readouterr().out.count("clip-") == 34


@pytest.mark.parametrize("settings", [(), ("data.buckets=[[20,60],[40,80]]", "cache.seed=7")], ids=["plain", "buckets"])
def test_fingerprint_splits_and_shards_follow_from_the_documents_rules(
    data: Path, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    cache = tmp_path / "cache"
    build(data, cache, make_config("cache.validation_share=0.3", "cache.test_share=0.2", *settings))

    manifest = json.loads((cache / "manifest.json").read_bytes())
    keys = ("format_version", "audio", "text", "limits", "symbols", "fields", "buckets")
    hashed = {key: manifest[key] for key in keys if key in manifest}
    line = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert manifest["fingerprint"] == hashlib.sha256(line.encode()).hexdigest()
    assert ("buckets" in manifest) is bool(settings)

    seed, val_share, test_share = (manifest["cache"][key] for key in ("seed", "validation_share", "test_share"))
    rows = read_json_lines(cache / "utterances.jsonl")
    assert {row["split"] for row in rows} == {"train", "val", "test"}
    for row in rows:
        digest = hashlib.sha256(f"{seed}:{row['id']}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        assert row["split"] == ("val" if share < val_share else "test" if share < val_share + test_share else "train")
        count = int(re.search("-of-([0-9]{5})", row["shard"])[1])
        number = int.from_bytes(digest[8:16], "big") % count
        assert row["shard"].startswith(f"{row['split']}-{number:05d}-of-")

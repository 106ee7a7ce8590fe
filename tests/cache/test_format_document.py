"""The document of the format: its example reads a cache as the package does."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xtts_pipeline.cache.example import decode_example
from xtts_pipeline.cache.manifest import load_manifest, record_spec
from xtts_pipeline.cache.records import read_records

DOCUMENT = Path(__file__).parents[2] / "docs" / "cache-format.md"


def test_the_documents_example_reads_every_record(cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(cache.parent)
    names: dict[str, Any] = {}

    exec(compile(program, str(DOCUMENT), "exec"), names)  # noqa: S102

    manifest = load_manifest(cache)
    payloads = [payload for shard in manifest.shards for payload in read_records(cache / shard.name)]
    expected = [decode_example(payload, record_spec(manifest)) for payload in payloads]
    found = list(names["read_cache"](cache))
    assert len(found) == len(expected) == 34
    for have, want in zip(found, expected, strict=True):
        assert have.keys() == want.keys()
        for name, value in want.items():
            np.testing.assert_array_equal(have[name], value)
    assert capsys.readouterr().out.count("clip-") == 34

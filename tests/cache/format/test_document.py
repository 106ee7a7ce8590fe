"""The example in docs/cache-format.md reads a cache as the package does."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cache.corpora import records_of
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

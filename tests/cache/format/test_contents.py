"""The remedies for a cache without waves."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.config.schema import CacheConfig
from xtts_pipeline.errors import CacheError


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, r"add them by xtts preprocess --data DIR --cache '.*/my cache' --set cache\.store_waves=true, .* before$"),
        (
            {"excluded": ("clip-1",)},
            r"add them by .*, --exclude included; or take the subset of a cache that has them$",
        ),
        ({"has_several_corpora": True}, "add them to the caches of its corpora, and merge those again$"),
    ],
)
def test_waves_are_added_where_no_clip_is_lost(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    made = {"cache": CacheConfig(), "has_several_corpora": False, "excluded": (), **changes}
    with pytest.raises(CacheError, match=f"my cache: has no stored waves; {said}"):
        require_waves(tmp_path / "my cache", SimpleNamespace(**made))  # type: ignore[arg-type]

"""The cache that `benchmarks/report_page.py` makes and finds again."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.report_page import repeat_cache
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest


def test_a_cache_is_used_again_for_the_same_clips_alone(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    (tmp_path / "work").mkdir()
    made = []
    for name, train, clips in (("one", 5, 4), ("one", 5, 9), ("two", 6, 4), ("one", 5, 4)):
        if not (tmp_path / name).exists():
            write_cache(tmp_path / name, train=train)
        made.append(repeat_cache(tmp_path / name, clips, tmp_path / "work"))
    assert [load_manifest(cache).counts.kept for cache in made] == [4, 9, 4, 4]
    assert (len(set(made)), made[0]) == (3, made[3])

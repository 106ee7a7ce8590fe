"""Which run of the demo `benchmarks/pictures.py` shows."""

from pathlib import Path

from benchmarks.pictures import finished_run
from xtts_pipeline.training.checkpoints.run_folder import write_cache_path


def test_the_first_finished_run_of_the_demos_own_sentences_is_shown(tmp_path: Path) -> None:
    for name, cache, is_finished in (("1", "cache", False), ("2", "cache-other", True), ("3", "cache", True)):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        write_cache_path(run, tmp_path / cache)
        assert finished_run(tmp_path) is None
        if is_finished:
            (run / "summary.json").touch()
    assert finished_run(tmp_path) == tmp_path / "runs" / "3"

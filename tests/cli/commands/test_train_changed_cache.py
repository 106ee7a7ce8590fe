"""`xtts train` on a cache that another program replaces: the run ends, with the checkpoints from before."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from tests.cli.commands.conftest import WriteCache, begin
from tests.damage import forged
from tests.training.tiny_run import NullMonitor, TinyStep, TinyValidation
from tests.waiting import wait_until
from xtts_pipeline.cache.build.receipts import RECEIPTS_FOLDER
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, Manifest, manifest_bytes
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.errors import EXIT_UNTRUE, CacheError, TrainingError
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training import context
from xtts_pipeline.training.acoustic import task

SETTINGS = (
    "training.keep_checkpoints=9",
    "training.evaluate_every=500",
    "model.width=16",
    "model.heads=2",
    "training.sample_every_evaluations=null",
)


def rebuild(path: Path, manifest: Manifest) -> None:
    path.write_bytes(manifest_bytes(replace(manifest, layout="another")))


def start_to_rebuild(path: Path, _manifest: Manifest) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("change", "said"), [(rebuild, "has another content than when the run started"), (start_to_rebuild, "is gone")]
)
@pytest.mark.parametrize(
    ("save_every", "is_read_wrongly", "saved"), [(2, False, [2]), (2, True, [2]), (500, False, [])]
)
def test_a_run_ends_where_its_cache_has_changed(
    tmp_path: Path,
    write_cache: WriteCache,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, Manifest], None],
    said: str,
    save_every: int,
    is_read_wrongly: bool,
    saved: list[int],
) -> None:
    cache, run = tmp_path / "cache", tmp_path / "run"
    manifest, changed_at = write_cache(cache, train=24), 3
    folders = [run / "checkpoints" / f"step-{step:08d}" for step in saved]

    class Step(TinyStep):
        def __call__(self, batch: Batch) -> tf.Tensor:
            result = super().__call__(batch)
            if int(self.step) == changed_at:
                wait_until(lambda: all(folder.is_dir() for folder in folders))
                change(cache / MANIFEST_NAME, manifest)
                if is_read_wrongly:
                    raise tf.errors.InvalidArgumentError(None, None, "indices[0] = 50 is not in [0, 20)")
            return result

    monkeypatch.setattr(context, "CompilationMonitor", lambda *_, **__: NullMonitor())
    monkeypatch.setattr(task, "AcousticStep", Step)
    monkeypatch.setattr(task, "AcousticValidation", lambda *_: TinyValidation())
    with pytest.raises(TrainingError, match=rf"manifest.json: {said}; the last checkpoint is from before") as caught:
        begin(cache, run, steps=400, settings=(*SETTINGS, f"training.save_every={save_every}"))
    assert caught.value.exit_code == EXIT_UNTRUE
    assert list((run / "checkpoints").glob("*")) == folders


def test_a_manifest_that_claims_more_records_than_its_shards_hold_is_refused_at_once(
    tmp_path: Path, write_cache: WriteCache
) -> None:
    cache = tmp_path / "cache"
    write_cache(cache, train=24)
    shutil.rmtree(cache / RECEIPTS_FOLDER)
    with forged(cache / MANIFEST_NAME) as content:
        shard = next(shard for shard in content["shards"] if shard["split"] == "train")
        more = 10**15 - shard["records"]
        shard["records"] += more
        for count in ("read", "kept"):
            content["counts"][count] += more
    said = rf"{shard['name']} has 1000000000000000 records in {shard['bytes']} bytes, expected at least \d+ bytes"
    (problem,) = verify_cache(cache, "quick").problems
    assert re.match(said, problem.detail)
    with pytest.raises(CacheError, match=said):
        begin(cache, tmp_path / "run")

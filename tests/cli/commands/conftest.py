"""Runs of `xtts train` in this process, whose training itself is replaced or never reached."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cli.commands import train as train_module
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.training import init_from, loop
from xtts_pipeline.training.checkpoints.files import save_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import write_config
from xtts_pipeline.training.checkpoints.state import RunState
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.settings import training_config

WriteCache = Callable[..., Manifest]
SUMMARY: dict[str, Any] = {
    "steps": 7,
    "network": "acoustic",
    "stopped_early": True,
    "parameters": 2_000_000,
    "loss": {"first": 3.0, "last": 1.0},
    "best": {"step": 5, "metric": "loss", "value": 1.25},
    "weights_sha256": "5e" * 32,
    "resumed_at_steps": [3, 4],
    "origin": None,
    "traces": 1,
    "compilations": 1,
    "by_function": {"train_step": {"traces": 1, "compilations": 1}},
    "step_ms": None,
    "data_wait_share": None,
    "device_share": None,
    "examples_per_second": None,
    "mel_frames_per_second": None,
    "startup_seconds": {"import": 4.0, "run": 0.0},
    "memory": {"estimated_bytes": None, "program_bytes": None, "peak_bytes": 2_000_000_000},
    "profile": None,
}


class Killed(BaseException):
    """Stands for SIGKILL: no code of the run catches it."""


def begin(cache: Path | None, run: Path, *, settings: Sequence[str] = (), **options: Any) -> None:
    rest = {"configs": (), "steps": 2, "allow_change": (), "echo_native_log": False, "resume": False}
    train_module.run_training(cache, output=run, overrides=("training.batch_size=2", *settings), **{**rest, **options})


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The base checkpoint of each run; every run is killed before its first checkpoint."""
    found: list[Any] = []

    def killed_at_once(context: RunContext) -> None:
        found.append(context.base)
        raise Killed

    monkeypatch.setattr(loop, "run", killed_at_once)
    monkeypatch.setattr(train_module, "read_settings", lambda *_: Config())
    monkeypatch.setattr(
        init_from,
        "load_checkpoint",
        lambda path: SimpleNamespace(folder=path, require=lambda _: None, weights_sha256="0" * 64),
    )
    return found


@pytest.fixture
def stopped(tmp_path: Path, write_cache: WriteCache) -> tuple[Path, Path]:
    """A cache, and a run on it that stopped after its first step. Its weights are one number: they are never loaded."""
    cache, run = tmp_path / "cache", tmp_path / "run"
    manifest = write_cache(cache)
    config = training_config(manifest, (), ("training.batch_size=2",), 2)
    run.mkdir()
    write_config(run, dump_config(config), "acoustic")
    source = CachedSource(cache, manifest)
    state = RunState(source.records_digest())
    save_checkpoint(run, 1, config, source.identity(), {"weight": np.ones(1, np.float32)}, keep=3, state=state)
    return cache, run

"""Which cache and settings `xtts diagnose` takes. tests/perf/diagnose covers the diagnoses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from tests.calling import refusal, xtts
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cli.commands import diagnose as module
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.errors import CacheError, CheckpointError
from xtts_pipeline.training.checkpoints.run_folder import NETWORK_NAME, write_cache_path, write_config
from xtts_pipeline.training.settings import training_config


@pytest.fixture
def diagnosed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of each diagnosis, which is not made."""
    calls: list[tuple[Any, ...]] = []

    def stop(*arguments: Any, **_: Any) -> None:
        calls.append(arguments)
        raise click.Abort

    monkeypatch.setattr(module, "with_tensorflow", stop)
    return calls


@pytest.mark.parametrize("kind", ["input", "retracing", "gpu"])
def test_a_run_is_diagnosed_with_its_own_cache_and_settings(
    tmp_path: Path, write_cache: Callable[..., Manifest], diagnosed: list[tuple[Any, ...]], kind: str
) -> None:
    run = tmp_path / "run"
    manifest = write_cache(tmp_path / "own")
    run.mkdir()
    config = training_config(manifest, (), ["training.batch_size=3", "training.seed=9"], 2)
    write_config(run, dump_config(config), "acoustic")
    (run / NETWORK_NAME).unlink()
    write_cache_path(run, tmp_path / "own")

    result = xtts("diagnose", kind, "--run", run, "--set", "training.batch_size=2")

    ((_, cache, _, config),) = diagnosed
    assert cache == tmp_path / "own"
    assert (config.training.batch_size, config.training.seed) == (2, 9)
    assert result.stderr.startswith(
        f"{run}: neither network.txt nor a checkpoint says what it trains: diagnosed as an acoustic model"
    )


@pytest.mark.parametrize("kind", ["retracing", "gpu"])
def test_a_run_says_before_its_first_checkpoint_what_it_trains(
    tmp_path: Path, write_cache: Callable[..., Manifest], kind: str
) -> None:
    manifest = write_cache(tmp_path / "cache")
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run", dump_config(training_config(manifest, (), (), 2)), "vocoder")
    write_cache_path(tmp_path / "run", tmp_path / "cache")

    error = xtts("diagnose", kind, "--run", tmp_path / "run").exception

    assert isinstance(error, CacheError)
    assert "has no stored waves" in str(error)


@pytest.mark.parametrize("kind", ["retracing", "gpu"])
def test_a_vocoder_needs_stored_waves(tmp_path: Path, write_cache: Callable[..., Manifest], kind: str) -> None:
    write_cache(tmp_path / "cache")
    error = xtts("diagnose", kind, "--cache", tmp_path / "cache", "--network", "vocoder").exception
    assert isinstance(error, CacheError)
    assert "has no stored waves; add them by" in str(error)


def test_a_run_without_a_cache_needs_one(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    config = dump_config(training_config(write_cache(tmp_path / "cache"), (), (), 2))
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run", config, "acoustic")
    assert "names no cache, such as a run of xtts train --data; name one with --cache" in refusal(
        "diagnose", "input", "--run", tmp_path / "run"
    )


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    error = xtts("diagnose", "input", "--run", tmp_path).exception
    assert isinstance(error, CheckpointError)
    assert "no config.yaml here; expected a run folder" in str(error)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.yaml", b"", "config.yaml: empty, expected the run's settings; restore it from a state.json"),
        ("network.txt", b"banana\n", "its network.txt names 'banana', expected acoustic or vocoder; remove the file"),
    ],
)
def test_an_empty_or_unknown_file_of_a_run_does_not_stand_for_the_defaults(
    tmp_path: Path, write_cache: Callable[..., Manifest], name: str, content: bytes, said: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_config(run, dump_config(training_config(write_cache(tmp_path / "cache"), (), (), 2)), "acoustic")
    (run / name).write_bytes(content)
    assert said in refusal("diagnose", "retracing", "--run", run)

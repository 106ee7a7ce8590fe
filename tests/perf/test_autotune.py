"""`training.autotune`: what is chosen follows from what is measured, and real processes measure it."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.perf.commands import run_command
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import TrainingError
from xtts_pipeline.perf import autotune as tuning
from xtts_pipeline.perf.autotune import Tuning, tune
from xtts_pipeline.perf.measurement import REQUEST, Request, measure_in_process
from xtts_pipeline.system.machine import Cores
from xtts_pipeline.training.settings import tuned_overrides

LENGTHS = (np.full(400, 16), np.full(400, 24))  # no padding at all
STEP_MS = 10.0


@pytest.fixture
def manifest(tmp_path: Path, write_cache: Callable[..., Manifest]) -> Manifest:
    return write_cache(tmp_path / "made", train=70)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Request]]:
    """Return a function that replaces the measuring processes by a made-up machine, and returns their requests."""

    def pretend(
        rate: Callable[[int], float], most_rows: int = 1_000, inputs: Callable[[dict[str, Any]], float] = lambda _: 1e6
    ) -> list[Request]:
        asked: list[Request] = []

        def measure(request: Request) -> Any:
            asked.append(REQUEST.validate_json(REQUEST.dump_json(request)))
            if request.inputs:
                return [inputs(data) for data in request.inputs]
            training = request.config.training
            if training.batch_size // training.accumulation_steps > most_rows:
                return {"fits": False}
            took = {"step_ms": STEP_MS, "peak_bytes": 1e6 * training.batch_size, "on_gpu": False}
            return {"fits": True, "examples_per_second": rate(training.batch_size), **took}

        monkeypatch.setattr(tuning, "measure_in_process", measure)
        monkeypatch.setattr(tuning, "memory_limit_bytes", lambda: 10**9)
        return asked

    return pretend


def tuned(manifest: Manifest, *overrides: str) -> Tuning:
    config = load_config(overrides=["training.batch_size=8", "training.autotune=true", *overrides])
    return tune(Path("cache"), manifest, config, LENGTHS, lambda _: None)


def test_a_larger_batch_is_taken_where_it_pays_and_that_is_said(
    manifest: Manifest, machine: Callable[..., list[Request]]
) -> None:
    machine(lambda rows: {8: 100.0, 16: 150.0, 32: 155.0}.get(rows, 50.0))
    found = tuned(manifest)
    assert found.config.training.batch_size == 16
    assert found.report["chosen"]["training.batch_size"]["before"] == 8
    assert [step["batch_size"] for step in found.report["steps"]] == [8, 16, 32]
    (line,) = found.lines
    assert line.startswith(
        "training.batch_size 8 -> 16: 1.50 times the clips a second. Each update is now the mean over 16 clips, not 8"
    )


def test_what_gains_little_stays_as_it_was(manifest: Manifest, machine: Callable[..., list[Request]]) -> None:
    machine(lambda rows: 100.0 + rows / 10)
    found = tuned(manifest)
    assert found.config == load_config(overrides=["training.batch_size=8", "training.autotune=true"])
    assert [step["batch_size"] for step in found.report["steps"]] == [8, 16, 4]
    assert (found.report["chosen"], found.lines) == ({}, [])


def test_a_batch_that_does_not_fit_is_gone_through_in_parts(
    manifest: Manifest, machine: Callable[..., list[Request]]
) -> None:
    machine(lambda _: 100.0, most_rows=2)
    found = tuned(manifest)
    assert (found.config.training.batch_size, found.config.training.accumulation_steps) == (8, 4)
    assert "the update is the same" in found.report["chosen"]["training.accumulation_steps"]["why"]
    machine(lambda _: 100.0, most_rows=0)
    with pytest.raises(TrainingError, match=r"training\.batch_size=8 in 8 parts does not fit into memory"):
        tuned(manifest)


@pytest.mark.parametrize(
    ("overrides", "memory_bytes", "sizes"), [((), 15 * 10**6, [8, 4]), (("training.batch_size=40",), 10**9, [40, 20])]
)
def test_no_batch_is_tried_that_memory_or_corpus_cannot_fill(
    manifest: Manifest,
    machine: Callable[..., list[Request]],
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    memory_bytes: int,
    sizes: list[int],
) -> None:
    machine(lambda _: 100.0)
    monkeypatch.setattr(tuning, "memory_limit_bytes", lambda: memory_bytes)
    assert [step["batch_size"] for step in tuned(manifest, *overrides).report["steps"]] == sizes


def test_the_pipeline_is_changed_only_where_the_step_might_wait(
    manifest: Manifest, machine: Callable[..., list[Request]]
) -> None:
    def rate(data: dict[str, Any]) -> float:
        return (
            150.0
            * (2.0 if data["num_workers"] == "auto" else 1.0)
            * (1.5 if data["prefetch_buffer_size"] == 8 else 1.0)
        )

    one = ("data.num_workers=1", "data.prefetch_buffer_size=1")
    machine(lambda _: 100.0, inputs=rate)
    found = tuned(manifest, *one)
    assert (found.config.data.num_workers, found.config.data.prefetch_buffer_size) == ("auto", 8)
    assert found.report["headroom"] == 1.5
    machine(lambda _: 10.0, inputs=rate)
    assert tuned(manifest, *one).config.data.num_workers == 1


def test_buckets_are_reckoned_and_left_to_preprocessing(
    manifest: Manifest, machine: Callable[..., list[Request]]
) -> None:
    machine(lambda _: 100.0)
    config = load_config(overrides=["training.batch_size=8"])
    short, long = np.full(200, 6), np.full(200, 16)
    lengths = (np.concatenate([short, long]), np.concatenate([short, long + 8]))
    found = tune(Path("cache"), manifest, config, lengths, lambda _: None)
    (line,) = found.lines
    assert line.startswith("data.buckets stay as the cache has them")
    assert found.report["buckets"]["reckoned_gain"] == 1.25, "8 x 16 and 16 x 24 instead of 16 x 24 for all"
    assert found.config.data.buckets == config.data.buckets


def test_a_run_goes_on_with_what_was_chosen() -> None:
    config = load_config(overrides=["training.autotune=true", "training.batch_size=24", "data.num_workers=3"])
    kept = tuned_overrides(config, ())
    assert load_config(overrides=["training.batch_size=8", *kept]).training.batch_size == 24
    assert load_config(overrides=kept).data.num_workers == 3
    assert (
        load_config(overrides=["training.batch_size=8", *tuned_overrides(config, ["training"])]).training.batch_size
        == 8
    )
    assert tuned_overrides(Config(), ()) == []


def test_the_real_pipeline_is_measured_in_a_process_of_its_own_on_machines_of_any_size(
    cache: Path, manifest: Manifest, machine: Callable[..., list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, workers = machine(lambda _: 100.0), (16, 64, 128)
    for cores in workers:
        monkeypatch.setattr(tuning, "usable_cores", partial(Cores, cores, cores, None))
        tuned(manifest)
    inputs = [data for request in asked for data in request.inputs if data["num_workers"] in workers]
    assert [data["num_workers"] for data in inputs] == list(workers)
    config = load_config(
        overrides=["training.batch_size=4", "audio.mel_bins=4", "limits.max_text_length=16", "limits.max_mel_frames=24"]
    )
    rates = measure_in_process(Request(cache, config, 0.02, tuple(inputs)))
    assert len(rates) == len(inputs)
    assert min(rates) > 0.0
    with pytest.raises(TrainingError, match=r"measuring failed \(.*; set training.autotune=false"):
        measure_in_process(Request(cache / "none", config, 0.1))


@pytest.mark.slow
def test_a_tuned_run_trains_with_what_it_chose_and_goes_on_with_it(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = (
        "training.jit_compile=false",
        "training.autotune=true",
        "training.autotune_seconds=1",
        "training.steps=2",
    )
    train = ("train", "--cache", cache, "--output", run)
    done = run_command("none", *train, settings=settings)
    assert done.exit_code == 0, done.stderr
    assert "autotune: training.batch_size=4" in done.stderr
    report = json.loads((run / "autotune.json").read_text(encoding="utf-8"))
    assert report["steps"][0]["fits"]
    chosen = load_config([str(run / "config.yaml")])
    more = run_command("none", *train, "--resume", "--steps", 3, settings=settings[:-1])
    assert more.exit_code == 0, more.stderr
    assert "autotune" not in more.stderr
    assert load_config([str(run / "config.yaml")]).training.batch_size == chosen.training.batch_size

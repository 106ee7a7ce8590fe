"""A new run that starts with another run's weights: which weights are kept, which are not, and what is logged."""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.model.conftest import SPEC
from tests.training.test_loop import CONFIG, TRAINING, MadeUpSource, NoCompilations, Watcher
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config, ModelConfig
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.model.network import Network
from xtts_pipeline.text.tokens import FIRST_SYMBOL_ID
from xtts_pipeline.training import loop
from xtts_pipeline.training import resume as resume_module
from xtts_pipeline.training.acoustic import task
from xtts_pipeline.training.checkpoints.files import Checkpoint, build_network, load_checkpoint, load_network
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders
from xtts_pipeline.training.checkpoints.state import Origin, read_settings
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.init_from import copy_weights, describe_origin, load_base, warn_of_little
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.resume import Resumption
from xtts_pipeline.training.settings import training_config

BEFORE = CacheIdentity("f" * 64, SPEC, tuple("abc"), ("anna", "ben"), ("en",))
NOW = CacheIdentity("e" * 64, SPEC, tuple("bcd"), ("ben", "carl", "anna"), ("en", "fa"))


def with_seed(seed: int, **model: object) -> Config:
    training, changed = TRAINING.model_copy(update={"seed": seed}), CONFIG.model.model_copy(update=model)
    return CONFIG.model_copy(update={"training": training, "model": changed})


def checkpoint_of(cache: CacheIdentity, config: Config) -> Checkpoint:
    """Return a checkpoint whose trained weights differ from its EMA weights."""
    arrays = {name: variable.numpy() for name, variable in named_variables(build_network(cache, config)).items()}
    content = {f"average.{name}": array for name, array in arrays.items()}
    content |= {f"network.{name}": array + np.float32(1.0) for name, array in arrays.items()}
    return Checkpoint(Path("run/checkpoints/step-00000007"), 7, config, cache, content, "5e" * 32, None)


def begin(checkpoint: Checkpoint, cache: CacheIdentity, config: Config) -> tuple[Network, Network, Origin]:
    network, average = (build_network(cache, config) for _ in range(2))
    return network, average, copy_weights(network, average, checkpoint, config, cache)


@pytest.fixture(scope="module")
def fine_tuned() -> tuple[Checkpoint, Network, Network, Origin]:
    checkpoint = checkpoint_of(BEFORE, with_seed(1))
    return checkpoint, *begin(checkpoint, NOW, with_seed(2))


def test_a_weight_of_the_same_name_and_shape_is_the_ema_weight_of_the_other_run(fine_tuned: Any) -> None:
    checkpoint, network, average, origin = fine_tuned
    tables = {"text_encoder.embedding", "aligner.embedding", "speaker_embedding", "language_embedding"}
    for name, variable in named_variables(network).items():
        np.testing.assert_array_equal(variable, named_variables(average)[name], err_msg=name)
        if name not in tables:
            np.testing.assert_array_equal(variable, checkpoint.arrays[f"average.{name}"], err_msg=name)
    assert (origin.misfits, origin.left_behind, origin.new) == ((), (), ())
    assert (origin.step, origin.weights_sha256) == (7, "5e" * 32)
    assert 0.9 < origin.kept_share < 1.0


@pytest.mark.parametrize("table", ["text_encoder.embedding", "aligner.embedding"])
def test_symbols_keep_their_rows_at_any_position(fine_tuned: Any, table: str) -> None:
    checkpoint, network, _, origin = fine_tuned
    before, now = checkpoint.arrays[f"average.{table}"], named_variables(network)[table].numpy()
    np.testing.assert_array_equal(now[:FIRST_SYMBOL_ID], before[:FIRST_SYMBOL_ID])  # pad, begin and end
    np.testing.assert_array_equal(
        now[FIRST_SYMBOL_ID : FIRST_SYMBOL_ID + 2], before[FIRST_SYMBOL_ID + 1 : FIRST_SYMBOL_ID + 3]
    )  # b and c
    fresh = named_variables(build_network(NOW, with_seed(2)))[table].numpy()
    np.testing.assert_array_equal(now[-1], fresh[-1])  # d
    assert (origin.symbols.kept, origin.symbols.new, origin.symbols.left_behind) == (
        FIRST_SYMBOL_ID + 2,
        ("d",),
        ("a",),
    )


def test_speakers_keep_their_vectors_by_name_and_a_new_one_gets_a_new_row(fine_tuned: Any) -> None:
    checkpoint, network, _, origin = fine_tuned
    before, now = checkpoint.arrays["average.speaker_embedding"], network.speaker_embedding.numpy()
    np.testing.assert_array_equal(now[[2, 0]], before)
    np.testing.assert_array_equal(now[1], build_network(NOW, with_seed(2)).speaker_embedding[1])
    assert (origin.speakers.kept, origin.speakers.new, origin.speakers.left_behind) == (2, ("carl",), ())


def test_the_single_language_of_the_other_run_gets_a_zero_row(fine_tuned: Any) -> None:
    _, network, _, origin = fine_tuned
    assert not network.language_embedding[0].numpy().any()
    assert network.language_embedding[1].numpy().any()
    assert (origin.languages.kept, origin.languages.new) == (1, ("fa",))


def test_a_speaker_table_that_the_new_network_lacks_is_left_behind() -> None:
    *_, origin = begin(checkpoint_of(BEFORE, with_seed(1)), replace(BEFORE, speakers=("ben",)), with_seed(2))
    assert origin.left_behind == ("speaker_embedding",)
    # A network of one speaker has no vectors, so that of the remaining speaker is lost too.
    assert (origin.speakers.kept, origin.speakers.left_behind) == (0, BEFORE.speakers)
    assert origin.kept_share == 1.0


def test_another_model_keeps_the_weights_that_fit_and_lists_the_rest() -> None:
    checkpoint = checkpoint_of(BEFORE, with_seed(1))
    network, _, origin = begin(checkpoint, BEFORE, with_seed(2, frames_per_step=2, encoder_layers=3, flow_layers=1))
    assert any(
        line.startswith("frame_decoder.to_frames.weight: [16, 15] there, [16, 10] here") for line in origin.misfits
    )
    assert all(name.startswith("text_encoder.layers.2.") for name in origin.new)
    assert origin.new
    assert origin.left_behind
    np.testing.assert_array_equal(network.text_encoder.embedding, checkpoint.arrays["average.text_encoder.embedding"])
    assert "model.frames_per_step: 3 there, 2 here" in origin.settings


def test_a_checkpoint_without_any_fitting_weight_is_refused() -> None:
    checkpoint = checkpoint_of(BEFORE, with_seed(1))
    none = replace(checkpoint, arrays={name: array[None] for name, array in checkpoint.arrays.items()})
    with pytest.raises(
        CheckpointError, match="nothing of its weights fits this network; use the model settings of that run"
    ):
        begin(none, BEFORE, with_seed(2))


def test_each_kind_of_weight_that_was_not_kept_is_logged() -> None:
    *_, origin = begin(
        checkpoint_of(BEFORE, with_seed(1)), replace(NOW, speakers=("ben",)), with_seed(2, frames_per_step=2)
    )
    first, *lines = describe_origin(origin)
    assert first.startswith("begun with the averaged weights of run/checkpoints/step-00000007, which make ")
    assert lines[0] == f"symbols: {FIRST_SYMBOL_ID + 2} kept, 1 new ('d'), 1 left behind ('a')"
    # The network of one speaker has no vectors, so ben's is left behind too.
    assert lines[1] == "speakers: 0 kept, 2 left behind (anna, ben)"
    assert lines[2] == "languages: 1 kept, 1 new (fa)"
    assert lines[3] == "other settings than that run's: model.frames_per_step: 3 there, 2 here"
    named = "(summary.json has their names)"
    assert lines[4] == f"begun anew, because the shape is another: {len(origin.misfits)} weights {named}"
    assert lines[5] == f"left behind, because this network has none: 1 weight {named}"
    many = replace(origin, settings=tuple(f"model.{number}" for number in range(9)))
    assert describe_origin(many)[4].endswith("model.5; and 3 more (summary.json has all)")


def test_a_run_that_takes_less_than_half_of_its_network_warns(fine_tuned: Any) -> None:
    origin = fine_tuned[3]
    assert not warn_of_little(origin)
    found = "only 0.8% of the network came from run/checkpoints/step-00000007"
    remedy = "leave out --config, and --set for the network, to take its network"
    assert warn_of_little(replace(origin, kept_share=0.008)) == [f"{found}; {remedy}"]


def test_the_model_is_that_of_the_other_run_unless_set(tmp_path: Path, write_cache: Any) -> None:
    manifest: Manifest = write_cache(tmp_path / "cache")
    model = ModelConfig(width=32, heads=2)
    base = Config(model=model)
    assert training_config(manifest, (), (), None, init_from=base).model == model
    overlaid = training_config(manifest, (), ("model.encoder_layers=1",), None, init_from=base).model
    assert overlaid == model.model_copy(update={"encoder_layers": 1})


def run_loop(
    folder: Path, steps: int, resumption: Resumption | None = None, base: Checkpoint | None = None
) -> tuple[Any, Watcher]:
    settings = TRAINING.model_copy(
        update={
            "steps": steps,
            "aligned_by_step": 50,
            "evaluate_every": 50,
            "keep_checkpoints": 9,
            "save_every": 1,
            "sample_every_evaluations": None,
        }
    )
    config = CONFIG.model_copy(update={"training": settings})
    watcher, monitor = Watcher(), CompilationMonitor(NoCompilations(), is_strict=True, is_compiled=False)  # type: ignore[arg-type]
    source: Any = MadeUpSource()
    with RunContext(folder, config, source, monitor, watcher, resumption=resumption, base=base) as context:
        return loop.run(context), watcher


@pytest.fixture
def _no_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    validation = SimpleNamespace(
        evaluations=0, best_metric="loss", evaluate=lambda _: {"loss": 1.0}, are_samples_due=lambda **_: False
    )
    monkeypatch.setattr(task, "AcousticValidation", lambda *_: validation)
    monkeypatch.setattr(resume_module, "check_same_cache", lambda *_: None)


@pytest.mark.usefixtures("_no_validation")
def test_a_resumed_fine_tuned_run_keeps_its_origin_and_does_not_start_again(tmp_path: Path) -> None:
    first, run = tmp_path / "first", tmp_path / "fine-tuned"
    for folder in (first, run):
        folder.mkdir()
    assert run_loop(first, 2)[0]["origin"] is None
    base = load_base(first, "acoustic", None, lambda _: None)
    assert base is not None
    summary, watcher = run_loop(run, 2, base=base)
    assert watcher.logged[0][1].endswith("step-00000002, which make 100.0% of this network")
    assert summary["origin"]["weights_sha256"] == load_checkpoint(first).weights_sha256
    assert json.loads((run / "summary.json").read_text())["origin"] == summary["origin"]
    begun, one = load_network(base), load_checkpoint(checkpoint_folders(run)[0])
    # The learning rate of the first step is small, so the weights are still those that were copied.
    np.testing.assert_allclose(one.arrays["network.text_encoder.embedding"], begun.text_encoder.embedding, atol=1e-4)
    assert one.arrays["optimizer.first_moment.text_encoder.position_scale"] != 0.0

    logged: list[str] = []
    newest = load_checkpoint(run)
    assert newest.state is not None
    resumption = Resumption(newest, newest.state.resumed(newest.step))
    assert load_base(tmp_path / "gone", "acoustic", resumption, logged.append) is None
    assert logged[0].startswith(f"--init-from {tmp_path / 'gone'} is not read again: the run began with {first}")
    again, watcher = run_loop(run, 3, resumption)
    assert again["origin"] == summary["origin"]
    assert [line.split(" after ")[0] for _, line in watcher.logged] == ["first step done"]

    other = load_checkpoint(first)
    assert other.state is not None
    with pytest.raises(CheckpointError, match="was not begun with another one's weights; leave --init-from out"):
        load_base(run, "acoustic", Resumption(other, other.state), logged.append)


@pytest.mark.usefixtures("_no_validation")
def test_settings_are_read_without_loading_the_weights(tmp_path: Path) -> None:
    run_loop(tmp_path, 1)
    weights = checkpoint_folders(tmp_path)[-1] / "weights.safetensors"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert read_settings(tmp_path, "acoustic").model == CONFIG.model
    with pytest.raises(CheckpointError, match="elsewhere: nothing is there"):
        read_settings(tmp_path / "elsewhere", "acoustic")


@pytest.mark.usefixtures("_no_validation")
def test_a_base_of_another_network_or_with_cut_weights_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    run_loop(tmp_path, 1)
    with pytest.raises(CheckpointError, match="found the weights of an acoustic model, expected those of a vocoder"):
        read_settings(tmp_path, "vocoder")
    os.truncate(checkpoint_folders(tmp_path)[-1] / "weights.safetensors", 100)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors: 100 bytes, expected \d+; the file is damaged"):
        read_settings(tmp_path, "acoustic")

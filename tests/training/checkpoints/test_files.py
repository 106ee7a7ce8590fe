import errno
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.damage import flip_bit, forged
from tests.model.conftest import MODEL, SPEC
from tests.training.conftest import SETTINGS
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.schema import AudioConfig, Config, LimitsConfig
from xtts_pipeline.errors import CheckpointError, DamagedCheckpointError
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints import files
from xtts_pipeline.training.checkpoints.files import (
    link_best,
    load_checkpoint,
    load_network,
    restore_variables,
    save_checkpoint,
)
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders
from xtts_pipeline.training.checkpoints.variables import named_variables

CONFIG = Config(
    audio=AudioConfig(mel_bins=SPEC.mel_bins, floor=math.exp(SPEC.pad_value)),
    limits=LimitsConfig(max_text_length=SPEC.max_text_length, max_mel_frames=SPEC.max_mel_frames),
    model=MODEL,
    training=SETTINGS,
)
CACHE = CacheIdentity("f" * 64, SPEC, tuple("abcdefgh"), ("anna",), ("en",))


@pytest.fixture
def step(train_step: AcousticStep) -> AcousticStep:
    return train_step


def save(run: Path, step: AcousticStep, number: int, keep: int = 3) -> Path:
    return save_checkpoint(run, number, CONFIG, CACHE, arrays_of(step), keep)


def arrays_of(step: AcousticStep) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in named_variables(step).items()}


def test_every_variable_has_one_path(step: AcousticStep) -> None:
    variables = named_variables(step)
    assert "network.text_encoder.layers.1.attention.query.weight" in variables
    assert "optimizer.first_moment.frame_decoder.to_frames.bias" in variables
    assert "step" in variables
    assert {id(variable) for variable in variables.values()} == {id(variable) for variable in step.variables}
    assert len(variables) == len(step.variables)


def test_a_loaded_checkpoint_equals_the_saved_run(step: AcousticStep, batch: Batch, tmp_path: Path) -> None:
    step(batch)
    save(tmp_path, step, 1)
    loaded = load_checkpoint(tmp_path)
    assert (loaded.step, loaded.config, loaded.cache) == (1, CONFIG, CACHE)
    for name, variable in named_variables(step).items():
        np.testing.assert_array_equal(loaded.arrays[name], variable.numpy())


def test_a_weight_of_prosody_without_axes_is_refused(step: AcousticStep, tmp_path: Path) -> None:
    variables = named_variables(step)
    name = "network.prosody_to_tokens.weight"
    arrays = arrays_of(step) | {name: np.zeros((), np.float32)}
    save_checkpoint(tmp_path, 1, CONFIG, CACHE, arrays, 1)
    with pytest.raises(CheckpointError, match=name):
        restore_variables(variables, load_checkpoint(tmp_path))


def test_training_continues_bit_for_bit_after_loading(step: AcousticStep, batch: Batch, tmp_path: Path) -> None:
    step(batch)
    save(tmp_path, step, 1)
    step(batch)
    expected = {name: variable.numpy() for name, variable in named_variables(step).items()}
    restore_variables(named_variables(step), load_checkpoint(tmp_path))
    step(batch)
    for name, variable in named_variables(step).items():
        np.testing.assert_array_equal(variable.numpy(), expected[name], err_msg=name)


def test_a_loaded_network_has_the_ema_weights(step: AcousticStep, batch: Batch, tmp_path: Path) -> None:
    step(batch)
    step(batch)
    save(tmp_path, step, 1)
    network = load_network(load_checkpoint(tmp_path))
    np.testing.assert_array_equal(network.text_encoder.embedding, step.average.text_encoder.embedding)
    assert not np.array_equal(network.text_encoder.embedding, step.network.text_encoder.embedding)


def test_a_network_larger_than_the_weights_is_refused_before_it_is_built(
    step: AcousticStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, step, 1)
    checkpoint = load_checkpoint(tmp_path)
    wide = checkpoint.config.model.model_copy(update={"width": 4_096})
    larger = replace(checkpoint, config=checkpoint.config.model_copy(update={"model": wide}))
    monkeypatch.setattr(files, "build_network", lambda *_: pytest.fail("built"))
    with pytest.raises(CheckpointError, match=r"found \d+ weights, its settings make \d{9}; another model's weights"):
        load_network(larger)


def test_only_the_last_checkpoints_are_kept(step: AcousticStep, tmp_path: Path) -> None:
    for number in (1, 2, 30):
        save(tmp_path, step, number, keep=2)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["step-00000002", "step-00000030"]
    assert load_checkpoint(tmp_path).step == 30
    assert load_checkpoint(tmp_path / "checkpoints" / "step-00000002").step == 2


def write_until_full(path: Path, content: bytes) -> None:
    """Stand for `Path.write_bytes` on a disk with room for ten bytes."""
    with path.open("wb") as file:
        file.write(content[:10])
    raise OSError(errno.ENOSPC, "No space left on device")


def refuse_link(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def save_and_link_best(run: Path, step: AcousticStep, number: int) -> Path:
    return link_best(run, save(run, step, number, keep=1))


def test_the_best_checkpoint_stays_when_the_last_ones_rotate(step: AcousticStep, batch: Batch, tmp_path: Path) -> None:
    best = save_and_link_best(tmp_path, step, 1)
    first = step.network.text_encoder.embedding.numpy()
    step(batch)
    save(tmp_path, step, 2, keep=1)
    assert [folder.name for folder in checkpoint_folders(tmp_path)] == ["step-00000002"]
    assert [load_checkpoint(path).step for path in (tmp_path, tmp_path / "best", best)] == [2, 1, 1]
    np.testing.assert_array_equal(load_checkpoint(tmp_path / "best").arrays["network.text_encoder.embedding"], first)


def test_a_better_checkpoint_replaces_the_best(step: AcousticStep, tmp_path: Path) -> None:
    for number in (3, 7):
        save_and_link_best(tmp_path, step, number)
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["step-00000007"]
    assert load_checkpoint(tmp_path / "best").step == 7


def test_weights_of_the_last_and_the_best_checkpoint_are_hard_links(step: AcousticStep, tmp_path: Path) -> None:
    last = save(tmp_path, step, 5)
    best = link_best(tmp_path, last)
    assert (last / "weights.safetensors").samefile(best / "weights.safetensors")


def test_a_file_system_without_hard_links_gets_a_copy(
    step: AcousticStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", refuse_link)
    last = save(tmp_path, step, 5)
    best = link_best(tmp_path, last)
    assert not (last / "weights.safetensors").samefile(best / "weights.safetensors")
    assert load_checkpoint(best).step == 5


def test_a_full_disk_keeps_the_previous_best_checkpoint(
    step: AcousticStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_and_link_best(tmp_path, step, 1)
    last = save(tmp_path, step, 2)

    monkeypatch.setattr(os, "link", refuse_link)
    monkeypatch.setattr(Path, "write_bytes", write_until_full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        link_best(tmp_path, last)
    assert [path.name for path in (tmp_path / "best").iterdir()] == ["step-00000001"]
    assert load_checkpoint(tmp_path / "best").step == 1


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json"])
def test_every_flipped_bit_is_found(step: AcousticStep, tmp_path: Path, name: str) -> None:
    weights = save(tmp_path, step, 1) / name
    for position in np.random.default_rng(0).integers(0, weights.stat().st_size * 8, 40).tolist():
        flip_bit(weights, *divmod(position, 8))
        with pytest.raises(CheckpointError, match=r"checksum|not a sound checkpoint"):
            load_checkpoint(tmp_path)
        flip_bit(weights, *divmod(position, 8))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_name(step: AcousticStep, tmp_path: Path, wrong: float) -> None:
    arrays = arrays_of(step)
    name = "average.frame_decoder.to_frames.bias"
    arrays[name][1] = wrong
    folder = save_checkpoint(tmp_path, 1, CONFIG, CACHE, arrays, 1)
    with pytest.raises(DamagedCheckpointError, match=f"{name}: found 1 of .* not finite; use an earlier step") as error:
        load_checkpoint(tmp_path)
    assert str(error.value).startswith(str(folder / "weights.safetensors"))


def test_weights_of_another_size_are_refused(step: AcousticStep, tmp_path: Path) -> None:
    weights = save(tmp_path, step, 1) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes() + b"more")
    with pytest.raises(CheckpointError, match=r"found \d+ bytes, expected at most \d+"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_is_never_replaced(step: AcousticStep, tmp_path: Path) -> None:
    save(tmp_path, step, 1)
    with pytest.raises(CheckpointError, match="there is a checkpoint of this step"):
        save(tmp_path, step, 1)


def test_partial_folders_of_a_killed_run_are_removed(step: AcousticStep, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / ".step-00000007.partial").mkdir(parents=True)
    save(tmp_path, step, 8)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000008"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"checkpoint_version": 1}', b"\xff\xfe"])
def test_a_damaged_state_is_named(step: AcousticStep, tmp_path: Path, content: bytes) -> None:
    folder = save(tmp_path, step, 1)
    (folder / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="step-00000001"):
        load_checkpoint(tmp_path)


def test_another_version_is_refused(step: AcousticStep, tmp_path: Path) -> None:
    with forged(save(tmp_path, step, 1) / "state.json") as state:
        state["checkpoint_version"] = 99
    with pytest.raises(CheckpointError, match="version 99, expected 7"):
        load_checkpoint(tmp_path)


def test_the_error_for_a_folder_without_checkpoints_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint here; expected a run folder"):
        load_checkpoint(tmp_path)


def test_weights_of_another_model_are_refused(step: AcousticStep, tmp_path: Path) -> None:
    save(tmp_path, step, 1)
    checkpoint = load_checkpoint(tmp_path)
    wider = {**named_variables(step.network), "text_encoder.embedding": tf.Variable(tf.zeros([5, 5]))}
    with pytest.raises(
        CheckpointError, match=r"text_encoder.embedding: found float32 \(11, 16\), expected float32 \(5, 5\)"
    ):
        restore_variables(wider, checkpoint, "network.")
    more = {**named_variables(step.network), "new.bias": tf.Variable(0.0)}
    with pytest.raises(CheckpointError, match=r"new.bias: found nothing"):
        restore_variables(more, checkpoint, "network.")
    del more["new.bias"], more["frame_decoder.to_frames.bias"]
    with pytest.raises(CheckpointError, match=r"to_frames.bias: found float32 .* expected nothing"):
        restore_variables(more, checkpoint, "network.")


def test_a_full_disk_keeps_the_old_checkpoint(
    step: AcousticStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, step, 1)

    monkeypatch.setattr(Path, "write_bytes", write_until_full)
    with pytest.raises(CheckpointError, match=r"No space left on device.*earlier checkpoints are untouched"):
        save(tmp_path, step, 2)
    assert load_checkpoint(tmp_path).step == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("speakers", [], "cache.speakers: found 0 names"),
        ("speaker_languages", ["fr"], "cache.speaker_languages: found fr, expected a language of each speaker"),
        ("languages", ["en", "en"], "cache.languages: found 2 names, 1 of them distinct"),
        ("spec", {"max_text_length": 9, "max_mel_frames": 21, "mel_bins": 5, "pad_value": -11.5}, "cache.spec: found"),
    ],
)
def test_a_cache_that_does_not_fit_the_config_is_refused(
    step: AcousticStep, tmp_path: Path, key: str, value: object, said: str
) -> None:
    with forged(save(tmp_path, step, 1) / "state.json") as state:
        state["cache"][key] = value
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(tmp_path)


def test_a_pipe_or_a_huge_file_is_not_read(step: AcousticStep, tmp_path: Path) -> None:
    folder = save(tmp_path, step, 1)
    os.truncate(folder / "state.json", 1 << 40)
    with pytest.raises(
        CheckpointError, match=r"state.json: cannot be read \(found 1099511627776 bytes, expected at most 67108864\)"
    ):
        load_checkpoint(tmp_path)
    (folder / "state.json").unlink()
    os.mkfifo(folder / "state.json")
    with pytest.raises(CheckpointError, match=r"state.json: cannot be read \(no regular file\)"):
        load_checkpoint(tmp_path)

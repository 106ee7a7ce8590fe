"""Runs on disk: checkpoints written beside and renamed, proved by checksum when loaded.

Weights are safetensors files, the rest is JSON: nothing in a checkpoint can execute.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from pydantic import TypeAdapter
from safetensors.numpy import load, save

from xtts_pipeline import __version__
from xtts_pipeline.cache.format.manifest import CacheIdentity, record_spec_of
from xtts_pipeline.config.load import override_synthesis
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError, DamagedCheckpointError
from xtts_pipeline.model.network import Network
from xtts_pipeline.system.sealed_json import read_regular_file, seal_json, unseal_json
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.run_folder import BEST_FOLDER, LAST_FOLDER, place, step_name
from xtts_pipeline.training.checkpoints.saved_state import (
    CHECKPOINT_VERSION,
    MAX_STATE_BYTES,
    STATE_NAME,
    damage_explained,
    find_checkpoint,
    read_state,
)
from xtts_pipeline.training.checkpoints.state import RunState, state_from_json, state_to_json
from xtts_pipeline.training.checkpoints.variables import named_variables

WEIGHTS_NAME = "weights.safetensors"

# What a run has on its device, or a copy of it on the host.
Values = Mapping[str, tf.Variable] | Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: its step, settings and arrays, the latter proved against their checksum.

    state is None where none was saved: such a checkpoint speaks, and no run goes on from it.
    """

    folder: Path
    step: int
    config: Config
    cache: CacheIdentity
    arrays: dict[str, np.ndarray]
    weights_sha256: str
    state: RunState | None

    def with_synthesis(self, overrides: Sequence[str]) -> "Checkpoint":
        """Return the checkpoint with each `synthesis.key=value` in place of what it was trained with. Raises ConfigError."""
        return replace(self, config=override_synthesis(self.config, overrides))


def build_network(cache: CacheIdentity, config: Config, dtype: tf.DType = tf.float32) -> Network:
    """Return a fresh network for what a cache holds, multiplying matrices in `dtype`."""
    symbol_count = Tokenizer(cache.symbols, config.text.blank).symbol_count
    return Network(
        config.model, cache.spec, symbol_count, len(cache.speakers), len(cache.languages), config.training.seed, dtype
    )


def load_network(checkpoint: Checkpoint) -> Network:
    """Return the network that a checkpoint holds, ready to speak: the average of the trained weights."""
    network = build_network(checkpoint.cache, checkpoint.config)
    restore_variables(named_variables(network), checkpoint, "average.")
    return network


def save_checkpoint(
    run: Path,
    step: int,
    config: Config,
    cache: CacheIdentity,
    variables: Values,
    keep: int,
    state: RunState | None = None,
) -> Path:
    """Write checkpoints/step-NNNNNNNN whole or not at all, then remove all but the last `keep`.

    Raises CheckpointError if the disk refuses, or if the step has one already; earlier checkpoints are then still there.
    """
    return place(
        run / LAST_FOLDER / step_name(step), lambda beside: _write(beside, step, config, cache, variables, state), keep
    )


def save_best(
    run: Path, step: int, config: Config, cache: CacheIdentity, variables: Values, state: RunState | None = None
) -> Path:
    """Make best/step-NNNNNNNN whole or not at all, then remove the best one before it; checkpoints/ stays as it is.

    Where the step has just been saved its files are linked, so they lie on the disk once. Raises CheckpointError as `save_checkpoint` does.
    """
    last = run / LAST_FOLDER / step_name(step)

    def fill(beside: Path) -> None:
        if last.is_dir():
            _link(last, beside)
        else:
            _write(beside, step, config, cache, variables, state)

    return place(run / BEST_FOLDER / step_name(step), fill, keep=1)


def link_best(run: Path, checkpoint: Path) -> Path:
    """Make best/ of one of the run's checkpoints; nothing happens where it is that already."""
    best = run / BEST_FOLDER / checkpoint.name
    return best if best.exists() else place(best, lambda beside: _link(checkpoint, beside), keep=1)


def _write(
    folder: Path, step: int, config: Config, cache: CacheIdentity, variables: Values, state: RunState | None
) -> None:
    weights = save({name: np.asarray(variable) for name, variable in variables.items()})
    content = {
        "checkpoint_version": CHECKPOINT_VERSION,
        "xtts_pipeline": __version__,
        "tensorflow": tf.__version__,
        "step": step,
        "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
        "config": config.model_dump(mode="json"),
        "cache": TypeAdapter(CacheIdentity).dump_python(cache, mode="json"),
        "run": None if state is None else state_to_json(state),
    }
    (folder / WEIGHTS_NAME).write_bytes(weights)
    (folder / STATE_NAME).write_bytes(seal_json(content))


def _link(checkpoint: Path, folder: Path) -> None:
    for name in (WEIGHTS_NAME, STATE_NAME):
        try:
            os.link(checkpoint / name, folder / name)
        except OSError:
            # A file system without hard links; a disk that is full refuses the copy as well.
            (folder / name).write_bytes((checkpoint / name).read_bytes())


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint folder, a run's newest one, or, given RUN/best, its best one.

    Raises CheckpointError if there is none or it is of another version, DamagedCheckpointError if any byte of it changed.
    """
    folder = find_checkpoint(path)
    with damage_explained(folder):
        state = read_state(folder)
        weights_path = folder / WEIGHTS_NAME
        found, expected = weights_path.stat().st_size, state["weights"]["bytes"]
        if found != expected:
            raise DamagedCheckpointError(
                f"{weights_path}: {found} bytes, expected {expected}; the file is damaged, use an earlier step"
            )
        weights = read_regular_file(weights_path, expected)
        checksum = hashlib.sha256(weights).hexdigest()
        if checksum != state["weights"]["sha256"]:
            raise DamagedCheckpointError(
                f"{weights_path}: checksum differs from {STATE_NAME}; the file is damaged, use an earlier step"
            )
        identity = TypeAdapter(CacheIdentity).validate_json(json.dumps(state["cache"]), strict=True)
        config = Config.model_validate(state["config"])
        _check_identity(identity, config)
        run_state = None if state.get("run") is None else state_from_json(json.dumps(state["run"]))
        return Checkpoint(folder, int(state["step"]), config, identity, load(weights), checksum, run_state)


def saved_weights_sha256(folder: Path) -> str:
    """Return the checksum that a checkpoint just saved has for its weights, without reading them again."""
    state = unseal_json(read_regular_file(folder / STATE_NAME, MAX_STATE_BYTES))
    return str(state["weights"]["sha256"])


def _check_identity(cache: CacheIdentity, config: Config) -> None:
    """Raise ValueError unless a network of this config can speak for what the cache held."""
    for name, values in (("speakers", cache.speakers), ("languages", cache.languages)):
        if not values or len(set(values)) != len(values):
            raise ValueError(
                f"cache.{name}: found {len(values)} names, {len(set(values))} of them distinct, expected at least one and none twice"
            )
    spec = record_spec_of(config.audio, config.limits)
    if cache.spec != spec:
        raise ValueError(f"cache.spec: found {cache.spec}, the config gives {spec}")


def restore_variables(variables: Mapping[str, tf.Variable], checkpoint: Checkpoint, prefix: str = "") -> None:
    """Assign the checkpoint's arrays under `prefix` to the variables; both must have the same names, shapes and types."""
    arrays = {name.removeprefix(prefix): array for name, array in checkpoint.arrays.items() if name.startswith(prefix)}
    for name in sorted(arrays.keys() | variables.keys()):
        found = f"{arrays[name].dtype} {arrays[name].shape}" if name in arrays else "nothing"
        expected = f"{variables[name].dtype.name} {tuple(variables[name].shape)}" if name in variables else "nothing"
        if found != expected:
            raise CheckpointError(
                f"{checkpoint.folder}: {prefix}{name}: found {found}, expected {expected}; another model's weights?"
            )
    for name, variable in variables.items():
        variable.assign(arrays[name])

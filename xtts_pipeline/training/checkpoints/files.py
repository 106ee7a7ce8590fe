"""Checkpoint files: write them atomically, and load them only after their checksums are verified.

Weights are safetensors and the rest is JSON, so nothing in a checkpoint can execute.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load, save

from xtts_pipeline import __version__
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import record_spec
from xtts_pipeline.config.load import override_synthesis
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError, DamagedCheckpointError
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count
from xtts_pipeline.model.network import Network
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import seal_json
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.run_folder import (
    BEST_FOLDER,
    LAST_FOLDER,
    STATE_NAME,
    WEIGHTS_NAME,
    find_checkpoint,
    placing_checkpoint,
    step_name,
)
from xtts_pipeline.training.checkpoints.state import (
    CHECKPOINT_VERSION,
    NetworkKind,
    RunState,
    SavedState,
    damaged,
    digest_of,
    explaining_damage,
    read_state,
    require_network,
    state_to_json,
)
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.vocoder.generator import Generator

# What precedes the names of the EMA weights.
AVERAGE = "average."
OTHER_WEIGHTS = (
    "another model's weights, or an earlier version's? choose another checkpoint, or start a new run, with --init-from "
    "from these weights"
)


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: its step, settings and arrays, with verified checksums.

    network: which network its weights are of.
    state: None if it was saved without one; such a checkpoint can synthesize but cannot be resumed.
    """

    folder: Path
    step: int
    config: Config
    cache: CacheIdentity
    arrays: dict[str, np.ndarray]
    weights_sha256: str
    state: RunState | None
    network: NetworkKind = "acoustic"

    @property
    def average(self) -> dict[str, np.ndarray]:
        """The EMA weights, by the names of the network's variables."""
        return {name.removeprefix(AVERAGE): array for name, array in self.arrays.items() if name.startswith(AVERAGE)}

    def require(self, network: NetworkKind) -> None:
        """Raise CheckpointError unless the weights are of this network."""
        require_network(self.folder, self.network, network)

    def with_synthesis(self, overrides: Sequence[str]) -> "Checkpoint":
        """Return the checkpoint with each `synthesis.key=value` overridden. Raises ConfigError."""
        return replace(self, config=override_synthesis(self.config, overrides))


def build_network(cache: CacheIdentity, config: Config, dtype: tf.DType = tf.float32) -> Network:
    """Return a new network for a cache's contents, which multiplies matrices in `dtype`."""
    return Network(config.model, config.audio, _network_sizes(cache, config), config.training.seed, dtype)


def _network_sizes(cache: CacheIdentity, config: Config) -> NetworkSizes:
    symbols = Tokenizer(cache.symbols, config.text.blank).symbol_count
    return NetworkSizes(cache.spec, symbols, len(cache.speakers), len(cache.languages))


def load_network(checkpoint: Checkpoint) -> Network:
    """Return the checkpoint's network with the EMA of the trained weights, ready for synthesis.

    Raises CheckpointError for a vocoder, and, before any memory is allocated, if the network is larger than the
    weights.
    """
    checkpoint.require("acoustic")
    cache, config = checkpoint.cache, checkpoint.config
    found = sum(array.size for array in checkpoint.average.values())
    if (expected := parameter_count(config.model, _network_sizes(cache, config))) > found:
        problem = f"found {found} weights, its settings make {expected}"
        raise CheckpointError(f"{checkpoint.folder}: {problem}; {OTHER_WEIGHTS}")
    network = build_network(cache, config)
    restore_variables(named_variables(network), checkpoint, AVERAGE)
    return network


def build_generator(config: Config) -> Generator:
    """Return a new generator of the vocoder that the settings describe."""
    return Generator(config.audio, config.vocoder.width, config.vocoder.blocks, config.training.seed)


def load_generator(checkpoint: Checkpoint) -> Generator:
    """Return the generator of a vocoder's checkpoint with the EMA of the trained weights.

    Raises CheckpointError for an acoustic model, or if the weights do not fit the settings.
    """
    checkpoint.require("vocoder")
    generator = build_generator(checkpoint.config)
    restore_variables(named_variables(generator), checkpoint, AVERAGE)
    return generator


def save_checkpoint(
    run: Path,
    step: int,
    config: Config,
    cache: CacheIdentity,
    arrays: Mapping[str, np.ndarray],
    keep: int,
    state: RunState | None = None,
    network: NetworkKind = "acoustic",
) -> Path:
    """Write checkpoints/step-NNNNNNNN atomically, then remove all but the last `keep`.

    Raises CheckpointError if the disk refuses or the step has a checkpoint; earlier checkpoints are then untouched.
    """
    files = _checkpoint_files(step, config, cache, arrays, state, network)
    folder = run / LAST_FOLDER / step_name(step)
    with placing_checkpoint(folder, keep) as partial:
        for name, content in files.items():
            (partial / name).write_bytes(content)
    return folder


def replace_state(folder: Path, config: Config, state: RunState) -> None:
    """Replace the settings and the state of the run in a checkpoint. Raises CheckpointError if the disk refuses."""
    with explaining_damage(folder):
        content = replace(read_state(folder), config=config, run=state)
    try:
        with atomic_write(folder / STATE_NAME) as file:
            file.write(seal_json(state_to_json(content)))
    except OSError as error:
        raise CheckpointError(f"{folder / STATE_NAME}: cannot be written ({error.strerror}); it is as before") from None


def save_for_speech(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint of the EMA weights alone, which cannot be resumed, into a new folder. Raises OSError."""
    weights = {name: array for name, array in checkpoint.arrays.items() if name.startswith(AVERAGE)}
    folder.mkdir()
    about = checkpoint.step, checkpoint.config, checkpoint.cache
    for name, content in _checkpoint_files(*about, weights, None, checkpoint.network).items():
        (folder / name).write_bytes(content)


def _checkpoint_files(
    step: int,
    config: Config,
    cache: CacheIdentity,
    arrays: Mapping[str, np.ndarray],
    state: RunState | None,
    network: NetworkKind,
) -> dict[str, bytes]:
    """Return the content of a checkpoint's files by name."""
    # The value of a variable without axes is a number, which safetensors refuses.
    weights = save({name: np.asarray(array) for name, array in arrays.items()})
    digest = digest_of(weights)
    content = SavedState(CHECKPOINT_VERSION, __version__, tf.__version__, step, digest, config, cache, state, network)
    return {WEIGHTS_NAME: weights, STATE_NAME: seal_json(state_to_json(content))}


def link_best(run: Path, checkpoint: Path) -> Path:
    """Make best/ hold one of the run's checkpoints, by hard links if possible. Raises CheckpointError."""
    best = run / BEST_FOLDER / checkpoint.name
    if best.exists():
        return best
    with placing_checkpoint(best, keep=1) as partial:
        for name in (WEIGHTS_NAME, STATE_NAME):
            try:
                os.link(checkpoint / name, partial / name)
            except OSError:
                # The file system has no hard links. A full disk refuses the copy too.
                (partial / name).write_bytes((checkpoint / name).read_bytes())
    return best


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint folder, a run's newest checkpoint, for RUN/best its best one, or that of a voice folder.

    Raises CheckpointError if there is none or it has another version, DamagedCheckpointError if any byte changed or a
    weight is not finite: training saves none.
    """
    folder = find_checkpoint(path)
    with explaining_damage(folder):
        state = read_state(folder)
        weights_path, expected = folder / WEIGHTS_NAME, state.weights
        weights = read_regular_file(weights_path, expected.bytes, follow_links=False)
        if len(weights) != expected.bytes:
            raise damaged(weights_path, f"{len(weights)} bytes, expected {expected.bytes}")
        if hashlib.sha256(weights).hexdigest() != expected.sha256:
            raise damaged(weights_path, f"checksum differs from {STATE_NAME}")
        _check_identity(state.cache, state.config)
        arrays = load(weights)
        _check_finite(weights_path, arrays)
        about = state.step, state.config, state.cache
        return Checkpoint(folder, *about, arrays, expected.sha256, state.run, state.network)


def _check_finite(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise DamagedCheckpointError if a number of the arrays is not finite: it would make silence, or NaN, of all."""
    for name, array in arrays.items():
        if lost := int(array.size - np.isfinite(array).sum()):
            found = f"{name}: found {lost} of {array.size} numbers that are not finite"
            raise DamagedCheckpointError(f"{path}: {found}; use an earlier step")


def _check_identity(cache: CacheIdentity, config: Config) -> None:
    """Raise ValueError unless the config's network fits the cache."""
    for name, values in (("speakers", cache.speakers), ("languages", cache.languages)):
        distinct = len(set(values))
        if not values or distinct != len(values):
            found = f"found {len(values)} names, {distinct} of them distinct"
            raise ValueError(f"cache.{name}: {found}, expected at least one and none twice")
    spoken = cache.speaker_languages
    if spoken and (len(spoken) != len(cache.speakers) or not set(spoken) <= set(cache.languages)):
        raise ValueError(f"cache.speaker_languages: found {', '.join(spoken)}, expected a language of each speaker")
    spec = record_spec(config)
    if cache.spec != spec:
        raise ValueError(f"cache.spec: found {cache.spec}, the config gives {spec}")


def restore_step(variables: Mapping[str, tf.Variable], checkpoint: Checkpoint) -> None:
    """Assign a checkpoint's arrays to the variables of a training step; raises as `restore_variables` does.

    The loss scale, which only float16 has, is left out if the precision differs: it begins anew, or is gone.
    """
    changed = {name for name in variables.keys() ^ checkpoint.arrays.keys() if name.startswith("loss_scale.")}
    kept = {name: variable for name, variable in variables.items() if name not in changed}
    arrays = {name: array for name, array in checkpoint.arrays.items() if name not in changed}
    restore_variables(kept, replace(checkpoint, arrays=arrays))


def restore_variables(variables: Mapping[str, tf.Variable], checkpoint: Checkpoint, prefix: str = "") -> None:
    """Assign the checkpoint's arrays under `prefix` to the variables.

    Raises CheckpointError, before any assignment, unless names, shapes and types are equal.
    """
    arrays = {name.removeprefix(prefix): array for name, array in checkpoint.arrays.items() if name.startswith(prefix)}
    for name in sorted(arrays.keys() | variables.keys()):
        found = f"{arrays[name].dtype} {arrays[name].shape}" if name in arrays else "nothing"
        expected = f"{variables[name].dtype.name} {tuple(variables[name].shape)}" if name in variables else "nothing"
        if found != expected:
            raise CheckpointError(
                f"{checkpoint.folder}: {prefix}{name}: found {found}, expected {expected}; {OTHER_WEIGHTS}"
            )
    for name, variable in variables.items():
        variable.assign(arrays[name])

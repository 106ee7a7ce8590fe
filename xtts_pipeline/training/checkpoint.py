"""Runs on disk: checkpoints written beside and renamed, proved by checksum when loaded.

Weights are safetensors files, the rest is JSON: nothing in a checkpoint can execute.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from xtts_pipeline import __version__
from xtts_pipeline.config import Config
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.model.network import Network
from xtts_pipeline.schema import RecordSpec
from xtts_pipeline.text.tokens import Tokenizer

CHECKPOINT_VERSION = 1
_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class CacheIdentity:
    """What a model must know of the cache that it was trained on, so that it can speak without that cache."""

    fingerprint: str
    spec: RecordSpec
    symbols: tuple[str, ...]
    speakers: tuple[str, ...]
    languages: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: its step, settings and arrays, the latter proved against their checksum."""

    folder: Path
    step: int
    config: Config
    cache: CacheIdentity
    arrays: dict[str, np.ndarray]


def build_network(cache: CacheIdentity, config: Config) -> Network:
    """Return a fresh network for what a cache holds."""
    symbol_count = Tokenizer(cache.symbols, config.text.blank).symbol_count
    return Network(config.model, cache.spec, symbol_count, len(cache.speakers), len(cache.languages), config.training.seed)


def load_network(checkpoint: Checkpoint) -> Network:
    """Return the network that a checkpoint holds, ready to speak."""
    network = build_network(checkpoint.cache, checkpoint.config)
    restore_variables(named_variables(network), checkpoint, "network.")
    return network


def named_variables(module: tf.Module) -> dict[str, tf.Variable]:
    """Return every variable under a dotted path made of attribute names, such as `network.mel_decoder.to_stop.bias`."""
    return dict(_walk(module, "", set()))


def _walk(value: object, path: str, seen: set[int]) -> Iterator[tuple[str, tf.Variable]]:
    if isinstance(value, tf.Variable):
        yield path, value
    elif isinstance(value, tf.Module) and id(value) not in seen:
        seen.add(id(value))
        for name, child in sorted(vars(value).items()):
            if not name.startswith("_"):
                yield from _walk(child, f"{path}.{name}" if path else name, seen)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk(child, f"{path}.{index}", seen)


def checkpoint_folders(run: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first."""
    return sorted(folder for folder in (run / "checkpoints").glob("step-*") if _NAME.fullmatch(folder.name))


def save_checkpoint(run: Path, step: int, config: Config, cache: CacheIdentity, variables: Mapping[str, tf.Variable], keep: int) -> Path:
    """Write checkpoints/step-NNNNNNNN whole or not at all, then remove all but the last `keep`.

    Raises CheckpointError if the disk refuses; older checkpoints are then still there.
    """
    folder = run / "checkpoints" / f"step-{step:08d}"
    beside = folder.with_name(f".{folder.name}.partial")
    weights = save({name: np.asarray(variable.numpy()) for name, variable in variables.items()})
    state = {
        "checkpoint_version": CHECKPOINT_VERSION,
        "xtts_pipeline": __version__,
        "tensorflow": tf.__version__,
        "step": step,
        "weights": {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()},
        "config": config.model_dump(mode="json"),
        "cache": {
            "fingerprint": cache.fingerprint,
            "spec": asdict(cache.spec),
            "symbols": list(cache.symbols),
            "speakers": list(cache.speakers),
            "languages": list(cache.languages),
        },
    }
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        _write_durably(beside / "weights.safetensors", weights)
        _write_durably(beside / "state.json", json.dumps(state, ensure_ascii=False, indent=1).encode())
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise CheckpointError(
            f"{folder}: cannot be written ({error.strerror}); earlier checkpoints are untouched, free space and go on"
        ) from None
    for old in checkpoint_folders(run)[:-keep]:
        shutil.rmtree(old)
    return folder


def load_checkpoint(path: Path) -> Checkpoint:
    """Load a checkpoint folder, or a run's newest one.

    Raises CheckpointError if there is none, it is of another version, or any byte of it changed.
    """
    folder = path
    if not (folder / "state.json").is_file():
        folders = checkpoint_folders(path)
        if not folders:
            raise CheckpointError(
                f"{path}: no checkpoint here; expected a run folder with checkpoints/step-NNNNNNNN, as `xtts train` writes"
            )
        folder = folders[-1]
    try:
        state = json.loads((folder / "state.json").read_bytes())
        if state["checkpoint_version"] != CHECKPOINT_VERSION:
            raise CheckpointError(f"{folder}: checkpoint version {state['checkpoint_version']}, expected {CHECKPOINT_VERSION}; train again")
        weights = (folder / "weights.safetensors").read_bytes()
        if hashlib.sha256(weights).hexdigest() != state["weights"]["sha256"]:
            raise CheckpointError(
                f"{folder / 'weights.safetensors'}: checksum differs from state.json; the file is damaged, use an earlier step"
            )
        cache = state["cache"]
        identity = CacheIdentity(
            cache["fingerprint"],
            RecordSpec(**cache["spec"]),
            tuple(cache["symbols"]),
            tuple(cache["speakers"]),
            tuple(cache["languages"]),
        )
        return Checkpoint(folder, int(state["step"]), Config.model_validate(state["config"]), identity, load(weights))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, ValidationError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: not a sound checkpoint ({type(error).__name__}: {error}); use an earlier step") from None


def restore_variables(variables: Mapping[str, tf.Variable], checkpoint: Checkpoint, prefix: str = "") -> None:
    """Assign the checkpoint's arrays under `prefix` to the variables; every variable must be there with its shape."""
    for name, variable in variables.items():
        array = checkpoint.arrays.get(prefix + name)
        if array is None or array.shape != tuple(variable.shape):
            found = "nothing" if array is None else f"shape {array.shape}"
            raise CheckpointError(
                f"{checkpoint.folder}: {prefix}{name}: found {found}, expected shape {tuple(variable.shape)}; another model's weights?"
            )
        variable.assign(array)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())

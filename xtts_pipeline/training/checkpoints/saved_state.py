"""What a checkpoint says of itself, in state.json: found, proved and read. Knows no TensorFlow, and no weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CheckpointError, DamagedCheckpointError
from xtts_pipeline.system.sealed_json import read_regular_file, unseal_json
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders, steps_in

CHECKPOINT_VERSION = 5
STATE_NAME = "state.json"
MAX_STATE_BYTES = 64 << 20


def find_checkpoint(path: Path) -> Path:
    """Return a checkpoint's folder: the path itself, a run's newest one, or, given RUN/best, its best one.

    Raises CheckpointError if there is none.
    """
    if (path / STATE_NAME).is_file():
        return path
    folders = checkpoint_folders(path) or steps_in(path)
    if not folders:
        raise CheckpointError(
            f"{path}: no checkpoint here; expected a run folder with checkpoints/step-NNNNNNNN, as `xtts train` writes, or RUN/best"
        )
    return folders[-1]


def read_state(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint's state.json holds, its checksum proved.

    Raises CheckpointError if it is of another version, and what `damage_explained` explains if it is not as it was written.
    """
    state = unseal_json(read_regular_file(folder / STATE_NAME, MAX_STATE_BYTES))
    if state["checkpoint_version"] != CHECKPOINT_VERSION:
        raise CheckpointError(
            f"{folder}: checkpoint version {state['checkpoint_version']}, expected {CHECKPOINT_VERSION}; train again"
        )
    return state


def saved_config(path: Path) -> Config:
    """Return the settings of the run that a checkpoint is of. Raises CheckpointError if there is no sound one."""
    folder = find_checkpoint(path)
    with damage_explained(folder):
        return Config.model_validate(read_state(folder)["config"])


@contextmanager
def damage_explained(folder: Path) -> Iterator[None]:
    """Turn what comes of reading a checkpoint that is not as it was written into one line, a DamagedCheckpointError.

    What the system refuses to read is a CheckpointError: the same bytes may be sound elsewhere.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedCheckpointError(
            f"{error.filename}: no such file; the checkpoint is not whole, use an earlier step"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DamagedCheckpointError(
            f"{folder}: not a sound checkpoint ({str(error).splitlines()[0]}); use an earlier step"
        ) from None

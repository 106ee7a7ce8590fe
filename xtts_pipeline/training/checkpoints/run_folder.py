"""The folder of a run: the names of its files, its checkpoints' folders, its small files and its lock.

Knows nothing of the contents of a checkpoint. Imports no TensorFlow.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from xtts_pipeline.cache.format.manifest import REJECTED_NAME
from xtts_pipeline.errors import CheckpointError, OutputError, output_errors
from xtts_pipeline.system.atomic_files import atomic_folder, atomic_write, sync_path

LAST_FOLDER, BEST_FOLDER = "checkpoints", "best"
STATE_NAME = "state.json"
CONFIG_NAME, SUMMARY_NAME, LOCK_NAME = "config.yaml", "summary.json", ".lock"
INIT_FROM_NAME, AUTOTUNE_NAME = "init-from.txt", "autotune.json"
METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME = "metrics.jsonl", "skipped.jsonl", "left_out.jsonl"
PROFILE_FOLDER, TENSORBOARD_FOLDER = "profile", "tensorboard"
# A folder without config.yaml and checkpoints that holds anything else is not a run.
_RUN_FOLDERS = {LAST_FOLDER, BEST_FOLDER, PROFILE_FOLDER, TENSORBOARD_FOLDER}
_REPORTS = {METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME, REJECTED_NAME, AUTOTUNE_NAME, "tensorflow.log"}
_RUN_NAMES = {CONFIG_NAME, SUMMARY_NAME, LOCK_NAME, INIT_FROM_NAME} | _RUN_FOLDERS | _REPORTS
_STEP_NAME = re.compile(r"step-(\d{8})")


def step_name(step: int) -> str:
    """Return the folder name of a step's checkpoint."""
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(child for child in folder.glob("step-*") if _STEP_NAME.fullmatch(child.name))


def checkpoint_folders(run: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first, without the best one."""
    return list_checkpoints(run / LAST_FOLDER)


def find_checkpoint(path: Path) -> Path:
    """Return a checkpoint's folder: `path` itself, a run's newest one or, for RUN/best, its best one.

    Raises CheckpointError if there is none.
    """
    if (path / STATE_NAME).is_file():
        return path
    folders = checkpoint_folders(path) or list_checkpoints(path)
    if not folders:
        expected = "expected a run folder with checkpoints/step-NNNNNNNN, as `xtts train` writes, or RUN/best"
        raise CheckpointError(f"{path}: no checkpoint here; {expected}")
    return folders[-1]


def place_checkpoint(folder: Path, write: Callable[[Path], None], keep: int) -> Path:
    """Write a checkpoint into a temporary folder, rename it to `folder`, and remove all but the last `keep` beside it.

    Raises CheckpointError if the disk refuses or `folder` exists; the other checkpoints are then untouched.
    """
    if folder.exists():
        raise CheckpointError(f"{folder}: there is a checkpoint of this step; remove it, or choose another --output")
    try:
        for partial in folder.parent.glob(".step-*.partial"):
            shutil.rmtree(partial)
        with atomic_folder(folder) as partial:
            write(partial)
        for old in list_checkpoints(folder.parent)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be written ({error.strerror}); earlier checkpoints are untouched, free space and go on"
        ) from None
    return folder


def quarantine_checkpoint(folder: Path) -> Path:
    """Rename a damaged checkpoint so that nothing loads it and its step can be saved again; return its new path."""
    renamed = folder.with_name(f"damaged-{folder.name}")
    if renamed.exists():
        shutil.rmtree(renamed)
    folder.rename(renamed)
    sync_path(folder.parent)
    return renamed


def remove_after(run: Path, step: int) -> None:
    """Remove the checkpoints of later steps, last and best: the run repeats these steps."""
    for folder in (run / LAST_FOLDER, run / BEST_FOLDER):
        for checkpoint in list_checkpoints(folder):
            if checkpoint.name > step_name(step):
                shutil.rmtree(checkpoint)


def write_config(run: Path, text: str) -> None:
    """Write config.yaml, the run's merged settings, and remove the summary: the run is not finished."""
    (run / SUMMARY_NAME).unlink(missing_ok=True)
    with atomic_write(run / CONFIG_NAME) as file:
        file.write(text.encode())


def write_init_from(run: Path, source: Path) -> None:
    """Write init-from.txt, the path whose weights the run starts with, in case it is killed before a checkpoint."""
    with atomic_write(run / INIT_FROM_NAME) as file:
        file.write(f"{source.absolute()}\n".encode())


def read_init_from(run: Path) -> Path | None:
    """Return what `write_init_from` wrote, or None. Raises OutputError if it cannot be read."""
    path = run / INIT_FROM_NAME
    try:
        return Path(path.read_text(encoding="utf-8").removesuffix("\n"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path}: cannot be read ({error}); remove it, and name the run to begin with by --init-from"
        ) from None


def write_summary(run: Path, summary: dict[str, Any]) -> None:
    """Write summary.json, which marks the run as finished."""
    with atomic_write(run / SUMMARY_NAME) as file:
        file.write(json.dumps(summary, indent=1).encode() + b"\n")


def read_summary(run: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run, or None. Raises OutputError if it cannot be read."""
    path = run / SUMMARY_NAME
    try:
        summary = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path}: cannot be read ({error}); remove it, and --resume goes on from the last checkpoint"
        ) from None
    if not isinstance(summary, dict):
        raise OutputError(
            f"{path}: found a {type(summary).__name__}, expected a summary; remove it, and --resume goes on"
        )
    return summary


@contextmanager
def open_run_folder(run: Path) -> Iterator[None]:
    """Create the run's folder if it is missing and hold its lock.

    Raises OutputError if the folder holds anything other than a run, or cannot be written.
    """
    with output_errors(run, "choose another --output"):
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        is_run = bool(found & {CONFIG_NAME, LAST_FOLDER})
        # A scheduler's log or a synthesized WAV in the folder of a run does not matter.
        if not is_run and (foreign := sorted(name for name in found - _RUN_NAMES if not name.startswith("."))):
            raise OutputError(f"{run}: holds {foreign[0]}, expected a run and nothing else; choose another --output")
        run.mkdir(parents=True, exist_ok=True)
    with locked_run(run):
        yield


@contextmanager
def locked_run(run: Path) -> Iterator[None]:
    """Hold the run's lock. Raises OutputError if another process trains it: a scheduler may start a job twice."""
    try:
        with FileLock(run / LOCK_NAME, blocking=False):
            yield
    except Timeout:
        raise OutputError(f"{run}: another process trains this run; wait for it, or choose another --output") from None

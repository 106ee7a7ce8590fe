"""The folder of a run: where its checkpoints lie, how one takes its place whole or not at all, and who may write.

Knows names, not what is in a checkpoint; no TensorFlow.
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
from xtts_pipeline.errors import CheckpointError, OutputError
from xtts_pipeline.system.atomic_files import atomic_folder, atomic_write, sync_path

LAST_FOLDER, BEST_FOLDER = "checkpoints", "best"
CONFIG_NAME, SUMMARY_NAME, LOCK_NAME = "config.yaml", "summary.json", ".lock"
INIT_FROM_NAME = "init-from.txt"
DAMAGED_PREFIX = "damaged-"
AUTOTUNE_NAME = "autotune.json"
# What the folder of a run may hold before its config.yaml is written. Anything else shows that it is no run.
_RUN_NAMES = frozenset(
    {
        CONFIG_NAME,
        SUMMARY_NAME,
        LOCK_NAME,
        INIT_FROM_NAME,
        LAST_FOLDER,
        BEST_FOLDER,
        REJECTED_NAME,
        AUTOTUNE_NAME,
        "metrics.jsonl",
        "skipped.jsonl",
        "left_out.jsonl",
        "profile",
        "tensorboard",
        "tensorflow.log",
    }
)
_NAME = re.compile(r"step-(\d{8})")


def step_name(step: int) -> str:
    """Return the name of a step's checkpoint."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int:
    """Return the step that a checkpoint's name says. Raises ValueError if it is no checkpoint's name."""
    match = _NAME.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"{folder.name} is not the name of a checkpoint")
    return int(match[1])


def steps_in(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(child for child in folder.glob("step-*") if _NAME.fullmatch(child.name))


def checkpoint_folders(run: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first."""
    return steps_in(run / LAST_FOLDER)


def place(folder: Path, fill: Callable[[Path], None], keep: int) -> Path:
    """Have a checkpoint's folder filled under another name, then give it its own, and keep the last `keep` of its kind.

    Raises CheckpointError if the disk refuses, or if there is one of this name; the others are then untouched.
    """
    if folder.exists():
        raise CheckpointError(f"{folder}: there is a checkpoint of this step; remove it, or choose another --output")
    try:
        for left_behind in folder.parent.glob(".step-*.partial"):
            shutil.rmtree(left_behind)
        with atomic_folder(folder) as beside:
            fill(beside)
        for old in steps_in(folder.parent)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be written ({error.strerror}); earlier checkpoints are untouched, free space and go on"
        ) from None
    return folder


def set_aside(folder: Path) -> Path:
    """Give a damaged checkpoint a name under which nothing looks for it, so that its step can be saved again; return where it is now."""
    aside = folder.with_name(f"{DAMAGED_PREFIX}{folder.name}")
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)
    sync_path(folder.parent)
    return aside


def remove_after(run: Path, step: int) -> None:
    """Remove the checkpoints, last and best, of later steps: the run goes on from this one and will come to those again."""
    for folder in (run / LAST_FOLDER, run / BEST_FOLDER):
        for checkpoint in steps_in(folder):
            if step_of(checkpoint) > step:
                shutil.rmtree(checkpoint)


def write_config(run: Path, text: str) -> None:
    """Write config.yaml, the run's merged settings, and take back the sign that the run is over."""
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
    """Write summary.json, the sign that a run is over."""
    with atomic_write(run / SUMMARY_NAME) as file:
        file.write(json.dumps(summary, indent=1).encode() + b"\n")


def read_summary(run: Path) -> dict[str, Any] | None:
    """Return the summary of a run that is over, or None. Raises OutputError if it cannot be read."""
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
    """Make the run's folder if it is missing, and hold its lock.

    Raises OutputError if the folder holds something else than a run, or cannot be written.
    """
    try:
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        is_run = bool(found & {CONFIG_NAME, LAST_FOLDER})
        # A scheduler's log or a synthesized WAV in the folder of a run does not matter.
        if not is_run and (foreign := sorted(name for name in found - _RUN_NAMES if not name.startswith("."))):
            raise OutputError(f"{run}: holds {foreign[0]}, expected a run and nothing else; choose another --output")
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{run}: cannot be written ({error.strerror}); choose another --output") from None
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

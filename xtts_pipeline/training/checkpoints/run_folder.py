"""The folder of a run: the names of its files, its checkpoints' folders, its small files and its lock.

Knows nothing of the contents of a checkpoint. Imports no TensorFlow.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from xtts_pipeline.cache.format.manifest import REJECTED_NAME
from xtts_pipeline.errors import (
    CheckpointError,
    OutputError,
    did_you_mean,
    listed,
    nearest_name,
    output_errors,
)
from xtts_pipeline.system.atomic_files import atomic_folder, atomic_write, remove, sync_path
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.storage import folder_path, is_stored

LAST_FOLDER, BEST_FOLDER = "checkpoints", "best"
STATE_NAME, WEIGHTS_NAME = "state.json", "weights.safetensors"
CONFIG_NAME, SUMMARY_NAME, LOCK_NAME = "config.yaml", "summary.json", ".lock"
INIT_FROM_NAME, CACHE_NAME, AUTOTUNE_NAME = "init-from.txt", "cache.txt", "autotune.json"
VOCODER_NAME, NETWORK_NAME = "vocoder.txt", "network.txt"
# A voice folder: its manifest, and a checkpoint of each network.
VOICE_NAME, ACOUSTIC_FOLDER, VOCODER_FOLDER = "voice.json", "acoustic", "vocoder"
# The word for speech without a trained vocoder, in place of the path of one.
GRIFFIN_LIM = "griffin-lim"
METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME = "metrics.jsonl", "skipped.jsonl", "left_out.jsonl"
NATIVE_LOG_NAME = "tensorflow.log"
PROFILE_FOLDER, TENSORBOARD_FOLDER = "profile", "tensorboard"
# A folder without config.yaml and checkpoints that holds anything else is not a run.
_RUN_FOLDERS = {LAST_FOLDER, BEST_FOLDER, PROFILE_FOLDER, TENSORBOARD_FOLDER}
_REPORTS = {METRICS_NAME, SKIPPED_NAME, LEFT_OUT_NAME, REJECTED_NAME, AUTOTUNE_NAME, NATIVE_LOG_NAME}
_TEXTS = {INIT_FROM_NAME, CACHE_NAME, VOCODER_NAME, NETWORK_NAME}
_RUN_NAMES = {CONFIG_NAME, SUMMARY_NAME, LOCK_NAME} | _TEXTS | _RUN_FOLDERS | _REPORTS
# Files that a run has before its first step; a new run replaces or removes them.
_STARTED_NAMES = _RUN_NAMES - _RUN_FOLDERS - {SUMMARY_NAME, VOCODER_NAME}
_STEP_NAME = re.compile(r"step-(\d{8})")
_DAMAGED = "damaged-"
_MAX_PATH_BYTES = 64 << 10


def step_name(step: int) -> str:
    """Return the folder name of a step's checkpoint."""
    return f"step-{step:08d}"


def has_step_of(folder: Path, step: int) -> bool:
    """Return whether a folder is not named after another step. A copy may have any other name."""
    return folder.name == step_name(step) or not _STEP_NAME.fullmatch(folder.name)


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first."""
    return sorted(child for child in folder.glob("step-*") if _STEP_NAME.fullmatch(child.name))


def checkpoint_folders(run: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first, without the best one."""
    return list_checkpoints(run / LAST_FOLDER)


def is_voice(path: Path) -> bool:
    """Return whether a path is a voice folder."""
    return (path / VOICE_NAME).is_file()


def find_checkpoint(path: Path) -> Path:
    """Return a checkpoint's folder: `path` itself, a run's newest, for RUN/best its best, or the one of a voice folder.

    Raises CheckpointError if there is none.
    """
    if is_voice(path):
        return path / ACOUSTIC_FOLDER
    if (path / STATE_NAME).is_file():
        return path
    folders = checkpoint_folders(path) or list_checkpoints(path)
    if not folders and _STEP_NAME.fullmatch(path.name) and path.exists():
        return path  # a checkpoint that is not whole: reading it says what is missing
    if not folders:
        found = "no checkpoint here" if path.exists() else "nothing is there"
        raise CheckpointError(f"{path}: {found}; {nearest_run(path)}")
    return folders[-1]


def similar_run(path: Path) -> Path | None:
    """Return the run beside `path` whose name is most like it, or None."""
    near = nearest_name(path.name, _runs_in(path.parent))
    return None if near is None else path.with_name(near)


def _runs_in(folder: Path) -> list[str]:
    children = folder.iterdir() if folder.is_dir() else ()
    return sorted(child.name for child in children if checkpoint_folders(child))


def nearest_run(path: Path) -> str:
    """Return which run may be meant by a path that is none."""
    runs = _runs_in(path)
    if len(runs) == 1:
        return f"it holds the run {runs[0]}; name {path / runs[0]}"
    if runs:
        return f"it holds the runs {listed(runs)}; name one, such as {path / runs[-1]}"
    beside = [] if path.exists() else _runs_in(path.parent)
    if beside:
        return did_you_mean(path.name, beside, prefix=str(path).removesuffix(path.name))
    return "expected a run folder with checkpoints/step-NNNNNNNN, as `xtts train` writes, or RUN/best"


@contextmanager
def placing_checkpoint(folder: Path, keep: int) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` if the block succeeds; then remove all but the last `keep` beside it.

    Raises CheckpointError if the disk refuses or `folder` exists; the other checkpoints are then untouched.
    """
    if folder.exists():
        raise CheckpointError(f"{folder}: there is a checkpoint of this step; remove it, or choose another --output")
    try:
        for partial in folder.parent.glob(".step-*.partial"):
            remove(partial)
        with atomic_folder(folder) as partial:
            yield partial
        for old in list_checkpoints(folder.parent)[:-keep]:
            remove(old)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: cannot be written ({error.strerror}); earlier checkpoints are untouched, free space and go on"
        ) from None


def damaged_checkpoints(run: Path) -> list[Path]:
    """Return the checkpoints that `quarantine_checkpoint` has renamed."""
    return sorted((run / LAST_FOLDER).glob(f"{_DAMAGED}step-*"))


def quarantine_checkpoint(folder: Path) -> Path:
    """Rename a damaged checkpoint so that nothing loads it and its step can be saved again; return its new path."""
    renamed = folder.with_name(f"{_DAMAGED}{folder.name}")
    remove(renamed)
    folder.rename(renamed)
    sync_path(folder.parent)
    return renamed


def remove_after(run: Path, step: int) -> None:
    """Remove the checkpoints of later steps, last and best: the run repeats these steps."""
    for folder in (run / LAST_FOLDER, run / BEST_FOLDER):
        for checkpoint in list_checkpoints(folder):
            if checkpoint.name > step_name(step):
                remove(checkpoint)


def write_config(run: Path, text: str, network: str) -> None:
    """Write config.yaml, the run's merged settings, and network.txt. Remove the summary: the run is not finished."""
    (run / SUMMARY_NAME).unlink(missing_ok=True)
    with atomic_write(run / NETWORK_NAME) as file:
        file.write(f"{network}\n".encode())
    with atomic_write(run / CONFIG_NAME) as file:
        file.write(text.encode())


def write_init_from(run: Path, source: Path) -> None:
    """Write init-from.txt, the path whose weights the run starts with, in case it is killed before a checkpoint."""
    _write_path(run / INIT_FROM_NAME, source)


def write_cache_path(run: Path, cache: Path) -> None:
    """Write cache.txt, the path of the cache that the run is trained on."""
    _write_path(run / CACHE_NAME, cache)


def write_vocoder_path(path: Path, vocoder: Path | None) -> None:
    """Write vocoder.txt, the vocoder that speaks for the run that `path` is or is a checkpoint of; None removes it.

    Raises OutputError if it cannot be written, or for a voice folder, which holds its vocoder.
    """
    if is_voice(path):
        raise OutputError(f"{path}: a voice folder holds its vocoder; export its run again, with --vocoder")
    run = _run_of(find_checkpoint(path))
    with output_errors(run / VOCODER_NAME, "make the folder of the run writable"):
        if vocoder is None:
            (run / VOCODER_NAME).unlink(missing_ok=True)
        else:
            _write_path(run / VOCODER_NAME, vocoder)


def _run_of(path: Path) -> Path:
    """Return the run that holds a checkpoint or a folder of checkpoints; `path` itself if it lies in none."""
    whole = path.absolute()
    holders = (folder for folder in (whole, whole.parent) if folder.name in (LAST_FOLDER, BEST_FOLDER))
    return next((folder.parent for folder in holders), whole)


def _write_path(file_name: Path, path: Path) -> None:
    """Write a path into a file of a run: the absolute path, and on a second line that from the folder of the run."""
    lines = [str(path)]
    if not is_stored(path):
        lines = [str(path.absolute()), os.path.relpath(path.absolute(), file_name.absolute().parent)]
    with atomic_write(file_name) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def read_network_name(path: Path) -> str | None:
    """Return what network.txt of the run that `path` is or is a checkpoint of names, or None.

    Raises OutputError if it cannot be read.
    """
    found = find_run_file(path, NETWORK_NAME)
    return None if found is None else str(_read_path(found, "name a run of the same network"))


def read_init_from(run: Path) -> Path | None:
    """Return what `write_init_from` wrote, or None. Raises OutputError if it cannot be read."""
    return _read_path(run / INIT_FROM_NAME, "name the run to begin with by --init-from")


def find_run_file(path: Path, name: str) -> Path | None:
    """Return this file of the run that `path` is or is a checkpoint of, or None if the run has none."""
    return next((folder / name for folder in (path, _run_of(path)) if (folder / name).is_file()), None)


def read_cache_path(path: Path) -> Path | None:
    """Return the cache of the run that `path` is or is a checkpoint of, or None if the run does not name one.

    Raises OutputError if cache.txt cannot be read.
    """
    found = find_run_file(path, CACHE_NAME)
    return None if found is None else _read_path(found, "name the cache with --cache")


def read_vocoder_path(path: Path) -> Path | None:
    """Return the vocoder that the run that `path` is or is a checkpoint of remembers, or None; of a voice, its own.

    Raises OutputError if vocoder.txt cannot be read.
    """
    if is_voice(path):
        return path / VOCODER_FOLDER if (path / VOCODER_FOLDER).is_dir() else None
    found = find_run_file(path, VOCODER_NAME)
    return None if found is None else _read_path(found, "name a vocoder with xtts use-vocoder")


def _read_path(path: Path, remedy: str) -> Path | None:
    """Return a path that `_write_path` wrote, or None without the file.

    If both folders were moved together, the absolute path is gone, and that from the run leads there.
    """
    try:
        text = read_regular_file(path, _MAX_PATH_BYTES, follow_links=False).decode().removesuffix("\n")
        named, _, from_run = text.partition("\n")
        if not named:  # a crash may leave an empty file, and no name would be the current folder
            raise ValueError("it names nothing")
        if not from_run:
            return folder_path(named)
        moved = Path(os.path.normpath(path.absolute().parent / from_run))
        return moved if moved.exists() and not Path(named).exists() else Path(named)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
        raise OutputError(f"{path}: cannot be read ({reason}); remove it, and {remedy}") from None


def check_new_run(run: Path) -> None:
    """Raise OutputError if the folder of a new run holds anything that `remove_start` leaves there."""
    remedy = "choose another --output"
    with output_errors(run, remedy):
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        if found and not _is_start(run, found):
            if checkpoint_folders(run) or (CONFIG_NAME in found and _is_begun(found)):
                remedy = f"{remedy}, or go on with the run there by --resume"
            raise OutputError(f"{run}: this folder is not empty; {remedy}")


def remove_start(run: Path) -> None:
    """Remove the files of a run that was stopped before its first step; leave any other folder as it is."""
    found = {child.name for child in run.iterdir()} if run.is_dir() else set()
    if _is_start(run, found):
        with locked_run(run):
            for name in {*found, LOCK_NAME}:  # a copy may lack the lock, which now lies there
                (run / name).unlink(missing_ok=True)


def _is_begun(found: set[str]) -> bool:
    # A config.yaml without one of these two is the user's own.
    return not found.isdisjoint({LOCK_NAME, NATIVE_LOG_NAME})


def _is_start(run: Path, found: set[str]) -> bool:
    is_start = _is_begun(found) and found <= _STARTED_NAMES
    return is_start and not any((run / name).stat().st_size for name in found & {METRICS_NAME, SKIPPED_NAME})


def check_run_folder(run: Path) -> None:
    """Raise OutputError if a folder holds anything other than a run, or a link, pipe or device under a run's name."""
    with output_errors(run, "choose another --output"):
        found = {child.name for child in run.iterdir()} if run.exists() else set()
        is_run = bool(found & {CONFIG_NAME, LAST_FOLDER})
        # A scheduler's log or a synthesized WAV in the folder of a run does not matter.
        if not is_run and (foreign := sorted(name for name in found - _RUN_NAMES if not name.startswith("."))):
            raise OutputError(f"{run}: holds {foreign[0]}, expected a run and nothing else; choose another --output")
        for name in sorted(found & _RUN_NAMES):
            _check_kind(run / name, is_folder=name in _RUN_FOLDERS)


@contextmanager
def open_run_folder(run: Path) -> Iterator[None]:
    """Create the run's folder if it is missing and hold its lock.

    Raises OutputError as `check_run_folder` does, or if the folder cannot be written.
    """
    check_run_folder(run)
    with output_errors(run, "choose another --output"):
        run.mkdir(parents=True, exist_ok=True)
    with locked_run(run):
        yield


def _check_kind(path: Path, *, is_folder: bool) -> None:
    """Raise OutputError unless a path is a regular file, or a folder without links: a run writes and removes them."""
    expected = "a folder" if is_folder else "a regular file"
    if path.is_symlink() or not (path.is_dir() if is_folder else path.is_file()):
        raise OutputError(f"{path}: found a link or something else, expected {expected}; remove it")
    links = (child for child in path.iterdir() if child.is_symlink()) if is_folder else ()
    if link := next(iter(links), None):
        raise OutputError(f"{link}: found a link, expected a folder of the run itself; remove it")


@contextmanager
def locked_run(run: Path) -> Iterator[None]:
    """Hold the run's lock. Raises OutputError if another process trains it: a scheduler may start a job twice."""
    lock = FileLock(run / LOCK_NAME, blocking=False)
    with output_errors(run / LOCK_NAME, "make the folder writable, or choose another --output"):
        try:
            lock.acquire()
        except Timeout:
            remedy = "wait for it, or choose another --output"
            raise OutputError(f"{run}: another process trains this run; {remedy}") from None
    try:
        yield
    finally:
        lock.release()

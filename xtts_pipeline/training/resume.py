"""What a run goes on from: its newest sound checkpoint, held against what is asked of it now."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest, config_differences
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.position import StreamPosition
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import CheckpointError, ConfigError, DamagedCheckpointError
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import (
    BEST_FOLDER,
    CONFIG_NAME,
    LAST_FOLDER,
    checkpoint_folders,
    remove_after,
    set_aside,
    step_name,
    steps_in,
)
from xtts_pipeline.training.checkpoints.state import RunState
from xtts_pipeline.training.config_diff import RECORDS_KEY, Changes, changed_settings, check_changes
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.step import TrainStep

# Settings that a batch's clips depend on: once one has changed, the rest of the epoch is not what was left of it.
_ORDER_KEYS = frozenset(
    {"training.seed", "training.batch_size", "training.accumulation_steps", "data.shuffle_records", RECORDS_KEY}
)


@dataclass(frozen=True)
class Resumption:
    """A checkpoint, and the state in which the run goes on from it."""

    checkpoint: Checkpoint
    state: RunState


def find_newest(run: Path, say: Callable[[str], None]) -> Resumption | None:
    """Return the run's newest sound checkpoint as it was, or None if it has none at all; damaged ones are named and set aside.

    Raises CheckpointError if all are damaged, or if the newest sound one is of another version or cannot be resumed.
    """
    folders = checkpoint_folders(run)
    for folder in reversed(folders):
        try:
            checkpoint = load_checkpoint(folder)
        except DamagedCheckpointError as error:
            say(f"damaged checkpoint: {error}; it is now {set_aside(folder)}")
            continue
        if checkpoint.state is None:
            raise CheckpointError(
                f"{folder}: was written without the state of its run, so no run goes on from it; train again"
            )
        return Resumption(checkpoint, checkpoint.state)
    if folders:
        raise CheckpointError(
            f"{run}: none of its {len(folders)} checkpoints is sound; remove the folder, or choose another --output"
        )
    if steps_in(run / BEST_FOLDER):
        raise CheckpointError(
            f"{run}: holds {BEST_FOLDER}/ but no checkpoint to go on from; move it away, or choose another --output"
        )
    return None


def newest_good(run: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest sound checkpoint of a run that was made while its updates were finite, or None; damaged ones are named."""
    for folder in reversed(checkpoint_folders(run)):
        try:
            checkpoint = load_checkpoint(folder)
        except DamagedCheckpointError as error:
            say(f"damaged checkpoint: {error}; one before it will do")
            continue
        if checkpoint.state is not None and _is_calm(checkpoint.state):
            return checkpoint
    return None


def _is_calm(state: RunState) -> bool:
    """Return whether the last step before a checkpoint was updated, by the last report or the window that was open."""
    column = TrainStep.METRICS.index("is_skipped")
    return not (state.window[-1][column] if state.window else state.max_consecutive_skips)


def resume(
    run: Path, source: Source, config: Config, allowed: Collection[str], say: Callable[[str], None]
) -> Resumption | None:
    """Return what the run goes on from, or None to begin at step 0; what was written of later steps is removed.

    Raises CheckpointError if the checkpoint is of another cache, ConfigError if settings changed that are not `allowed`.
    """
    newest = find_newest(run, say)
    if newest is None:
        return None
    resumption = _under_settings(run, newest, source, config, allowed, say)
    say(f"resuming after step {newest.checkpoint.step} of {newest.checkpoint.folder}")
    remove_after(run, newest.checkpoint.step)
    return resumption


def resume_together(
    run: Path,
    source: Source,
    config: Config,
    allowed: Collection[str],
    say: Callable[[str], None],
    distribution: Distribution,
) -> Resumption | None:
    """Return what `resume` does, in each of several workers: the chief looks and removes, the others read what it has chosen."""
    resumption = resume(run, source, config, allowed, say) if distribution.is_chief else None
    # Steps are counted from 1 here, so that 0 is none.
    step = int(distribution.from_chief([0 if resumption is None else resumption.checkpoint.step + 1])[0]) - 1
    if distribution.is_chief or step < 0:
        return resumption
    checkpoint = load_checkpoint(run / LAST_FOLDER / step_name(step))
    if checkpoint.state is None:
        raise CheckpointError(
            f"{checkpoint.folder}: holds no state of its run, though the chief found one; is it the same file system?"
        )
    return _under_settings(run, Resumption(checkpoint, checkpoint.state), source, config, allowed, say)


def _under_settings(
    run: Path, newest: Resumption, source: Source, config: Config, allowed: Collection[str], say: Callable[[str], None]
) -> Resumption:
    """Return a checkpoint as the settings asked for go on from it; raise as `resume` does."""
    checkpoint, state = newest.checkpoint, newest.state
    check_same_cache(checkpoint, source.manifest)
    changes = changed_settings(checkpoint.config, config)
    records = source.records_digest()
    if records != state.records:
        changes[RECORDS_KEY] = (f"clips {state.records[:8]}", f"clips {records[:8]}")
    check_changes(run, _asked_now(run, changes, config), allowed)
    if config.training.steps < checkpoint.step:
        raise ConfigError(
            f"{run}: {checkpoint.step} steps are done, training.steps={config.training.steps} is fewer; ask for more"
        )
    if _ORDER_KEYS & changes.keys():
        # The window's steps were of the old order, and which clips they had could not be told any more.
        state = replace(state, records=records, position=StreamPosition(state.position.epoch + 1, 0), window=())
        say(
            f"{', '.join(sorted(_ORDER_KEYS & changes.keys()))} changed: going on with epoch {state.position.epoch}, from its beginning"
        )
    return Resumption(checkpoint, state.resumed(checkpoint.step))


def _asked_now(run: Path, changes: Changes, config: Config) -> Changes:
    """Return the changes that the run's own settings do not have yet: those they have were allowed before, and no checkpoint came since."""
    if not (run / CONFIG_NAME).is_file():
        return changes
    since = changed_settings(load_config([str(run / CONFIG_NAME)]), config)
    return {key: values for key, values in changes.items() if key in since or key == RECORDS_KEY}


def find_ancestor(path: Path, resumption: Resumption | None, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the checkpoint with whose weights a new run begins, or None where a run goes on that was begun so already.

    Raises CheckpointError if there is no sound one at `path`, or if the run that goes on began with nothing.
    """
    if resumption is None:
        return load_checkpoint(path)
    origin = resumption.state.origin
    if origin is None:
        run = resumption.checkpoint.folder
        raise CheckpointError(
            f"{run}: its run was not begun with another one's weights; leave --init-from out, or choose another --output"
        )
    say(f"--init-from {path} is not read again: the run began with {origin.checkpoint}, and goes on")
    return None


def check_same_cache(checkpoint: Checkpoint, manifest: Manifest) -> None:
    """Raise CheckpointError, naming what differs, unless the network was made for caches like this one."""
    identity = checkpoint.cache
    if identity.fingerprint == manifest.fingerprint and (identity.speakers, identity.languages) == (
        manifest.speakers,
        manifest.languages,
    ):
        return
    differences = config_differences(manifest, checkpoint.config)
    for name in ("symbols", "speakers", "languages"):
        was, found = getattr(identity, name), getattr(manifest, name)
        if was != found:
            differences.append(f"{name}: the cache has {len(found)}, the run {len(was)}, or others of them")
    listed = (
        "; ".join(differences) or f"fingerprint {manifest.fingerprint[:12]}, the run's is {identity.fingerprint[:12]}"
    )
    raise CheckpointError(
        f"{checkpoint.folder}: the run was trained on another cache: {listed}; use that cache, or another --output"
    )

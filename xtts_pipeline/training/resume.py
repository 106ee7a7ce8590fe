"""Find the checkpoint that a run continues from, and check it against the cache and the settings of the command."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest, config_differences
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.schedule import StreamPosition
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import CheckpointError, ConfigError, DamagedCheckpointError
from xtts_pipeline.system.terminal import shell_word
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint
from xtts_pipeline.training.checkpoints.run_folder import (
    BEST_FOLDER,
    LAST_FOLDER,
    checkpoint_folders,
    damaged_checkpoints,
    list_checkpoints,
    quarantine_checkpoint,
    remove_after,
    step_name,
)
from xtts_pipeline.training.checkpoints.state import BestEvaluation, NetworkKind, RunState
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE, Distribution
from xtts_pipeline.training.settings import RECORDS_KEY, Changes, changed_settings, check_changes, new_changes
from xtts_pipeline.training.vocoder.step import VocoderStep

# Settings of what an evaluation measures.
_MEASURE_KEYS = frozenset(
    {
        "training.seed",
        "training.sample_sentences",
        "model.reference_frames",
        "vocoder.mel_weight",
        "vocoder.spectral_weight",
        "vocoder.spectral_sizes",
        "vocoder.crop_frames",
        "synthesis.flow_steps",
        "synthesis.guidance",
        "synthesis.pitch_range",
        "synthesis.max_frames_per_token",
    }
)
# If one of these changes, the batches of an epoch change, so the rest of the current epoch cannot be continued.
_ORDER_KEYS = frozenset(
    {
        "training.seed",
        "training.batch_size",
        "training.accumulation_steps",
        "data.shuffle_records",
        "vocoder.crop_frames",
        "vocoder.crops_per_clip",
        RECORDS_KEY,
    }
)


@dataclass(frozen=True)
class Resumption:
    """A checkpoint, and the state in which the run continues from it."""

    checkpoint: Checkpoint
    state: RunState


def resume(
    run: Path,
    source: Source,
    config: Config,
    allowed: Collection[str],
    log: Callable[[str], None],
    distribution: Distribution = SINGLE_DEVICE,
    network: NetworkKind = "acoustic",
) -> Resumption | None:
    """Return what the run continues from, or None to start at step 0. Remove the checkpoints of later steps.

    Of several workers, the chief chooses and removes checkpoints, and the others load its choice.
    Raises CheckpointError if the checkpoint belongs to another cache, ConfigError if settings changed that are not
    `allowed` by key or section.
    """
    newest = load_newest(run, network, log) if distribution.is_chief else None
    resumption = None if newest is None else _apply_settings(run, newest, source, config, allowed, log)
    if resumption is not None:
        log(f"resuming after step {resumption.checkpoint.step} of {resumption.checkpoint.folder}")
        remove_after(run, resumption.checkpoint.step)
    # The chief sends the step plus 1, so that 0 stands for no checkpoint.
    step = int(distribution.broadcast([0 if resumption is None else resumption.checkpoint.step + 1])[0]) - 1
    if distribution.is_chief or step < 0:
        return resumption
    checkpoint = load_checkpoint(run / LAST_FOLDER / step_name(step))
    if checkpoint.state is None:
        raise CheckpointError(
            f"{checkpoint.folder}: holds no state of its run, though the chief found one; is it the same file system?"
        )
    return _apply_settings(run, Resumption(checkpoint, checkpoint.state), source, config, allowed, log)


def load_newest(run: Path, network: NetworkKind, log: Callable[[str], None]) -> Resumption | None:
    """Return the run's newest intact checkpoint, or None if it has none. Damaged checkpoints are logged and renamed.

    Raises CheckpointError if all are damaged, or if the newest intact one has another version or network or no state.
    """
    folders = checkpoint_folders(run)
    for folder in reversed(folders):
        try:
            checkpoint = load_checkpoint(folder)
            checkpoint.require(network)
            _check_window(checkpoint)
        except DamagedCheckpointError as error:
            log(f"damaged checkpoint: {error}; it is now {quarantine_checkpoint(folder)}")
            continue
        if checkpoint.state is None:
            raise CheckpointError(
                f"{folder}: was written without the state of its run, so no run goes on from it; train again"
            )
        return Resumption(checkpoint, checkpoint.state)
    best, damaged = run / BEST_FOLDER, damaged_checkpoints(run)
    begins_anew = f"begin a new run with {BEST_FOLDER}/: --init-from {shell_word(best)} --output NEW"
    if damaged:
        remedy = begins_anew if list_checkpoints(best) else "remove the folder, or choose another --output"
        raise CheckpointError(f"{run}: none of its {len(damaged)} checkpoints is sound; {remedy}")
    if list_checkpoints(best):
        raise CheckpointError(f"{run}: holds {BEST_FOLDER}/ but no checkpoint to go on from; {begins_anew}")
    return None


def _check_window(checkpoint: Checkpoint) -> None:
    """Raise DamagedCheckpointError unless each step of the open window has every metric."""
    window = () if checkpoint.state is None else checkpoint.state.window
    expected = len(VocoderStep.METRICS if checkpoint.network == "vocoder" else AcousticStep.METRICS)
    if found := next((len(row) for row in window if len(row) != expected), None):
        problem = f"run.window: found {found} metrics of a step, expected {expected}"
        raise DamagedCheckpointError(f"{checkpoint.folder}: {problem}; use an earlier step")


def load_newest_finite(run: Path, config: Config, records: str, log: Callable[[str], None]) -> Resumption | None:
    """Return the newest intact checkpoint to roll back to, or None. Damaged checkpoints are logged.

    Its last update was finite, and its state is settled: what a roll-back adds to a state needs new weights. Its best
    evaluation is as the run's settings and records continue it.
    """
    for folder in reversed(checkpoint_folders(run)):
        try:
            checkpoint = load_checkpoint(folder)
        except DamagedCheckpointError as error:
            log(f"damaged checkpoint: {error}; one before it will do")
            continue
        state = checkpoint.state
        if state is not None and state.is_last_update_finite and state.is_settled:
            changes = _find_changes(checkpoint, state, config, records)
            return Resumption(checkpoint, _continue_best(state, changes, config))
    return None


def _apply_settings(
    run: Path, newest: Resumption, source: Source, config: Config, allowed: Collection[str], log: Callable[[str], None]
) -> Resumption:
    """Return the checkpoint's state as the command's settings continue it; raise as `resume` does."""
    checkpoint, state = newest.checkpoint, newest.state
    check_same_cache(checkpoint, source.manifest)
    records = source.records_digest()
    changes = _find_changes(checkpoint, state, config, records)
    check_changes(run, new_changes(run, changes, config), allowed)
    if config.training.steps < checkpoint.step:
        raise ConfigError(
            f"{run}: {checkpoint.step} steps are done, training.steps={config.training.steps} is fewer; ask for more"
        )
    changed_order = sorted(_ORDER_KEYS & changes.keys())
    if changed_order:
        position = StreamPosition(state.position.epoch + 1, 0)
        state = replace(state, records=records, position=position, window=state.window_without_clips)
        log(f"{', '.join(changed_order)} changed: going on with epoch {position.epoch}, from its beginning")
    was, step = checkpoint.config.training, checkpoint.step
    if config.training.steps == step != was.steps and (step % was.evaluate_every or state.reported_step != step):
        # The run now ends here, where its last report and evaluation have not been due.
        state = replace(state, is_settled=False)
    continued = _continue_best(state, changes, config)
    if continued.best.step != state.best.step:
        log(f"the best evaluation so far, of step {state.best.step}, no longer counts: the next one begins anew")
    return Resumption(checkpoint, continued.resumed(checkpoint.step))


def _find_changes(checkpoint: Checkpoint, state: RunState, config: Config, records: str) -> Changes:
    """Return the settings that have changed since the checkpoint, and the clips if they have."""
    changes = changed_settings(checkpoint.config, config)
    if records != state.records:
        changes[RECORDS_KEY] = (f"clips {state.records[:8]}", f"clips {records[:8]}")
    return changes


def _continue_best(state: RunState, changes: Changes, config: Config) -> RunState:
    """Return the state with the best evaluation, and the evaluations since then, that count after the changes."""
    if changes.keys() & {RECORDS_KEY, *_MEASURE_KEYS}:
        # Its value is that of other validation clips, or of another measure.
        return replace(state, best=BestEvaluation(), best_on_disk=None)
    patience = config.training.patience
    is_stopped = patience is not None and state.best.evaluations_without >= patience
    if changes.keys() & {"training.steps", "training.patience"} or (changes and is_stopped):
        # Patience may have stopped the run, which goes on now.
        return replace(state, best=replace(state.best, evaluations_without=0))
    return state


def check_same_cache(checkpoint: Checkpoint, manifest: Manifest) -> None:
    """Raise CheckpointError that names the differences unless the network was made for caches like this one."""
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
    listed = "; ".join(differences) or (
        "its buckets, its predicted mels or the version of its format "
        f"(fingerprint {manifest.fingerprint[:12]}, the run's is {identity.fingerprint[:12]})"
    )
    raise CheckpointError(
        f"{checkpoint.folder}: the run was trained on another cache: {listed}; use that cache, "
        "or begin a new run with these weights: --init-from RUN --output NEW"
    )

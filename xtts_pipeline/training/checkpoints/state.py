"""The contents of a checkpoint's state.json: its checked form on disk, and the state from which a run continues.

Imports no TensorFlow.
"""

import errno
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from safetensors import SafetensorError

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.schema import Config, ModelConfig
from xtts_pipeline.data.schedule import START, StreamPosition
from xtts_pipeline.errors import CheckpointError, DamagedCheckpointError, OutputError, first_line_of
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.sealed_json import canonical_json, unseal_json
from xtts_pipeline.system.strict_json import STRICT, Natural, first_problem
from xtts_pipeline.training.checkpoints.run_folder import (
    NETWORK_NAME,
    STATE_NAME,
    WEIGHTS_NAME,
    checkpoint_folders,
    find_checkpoint,
    has_step_of,
    read_network_name,
)

CHECKPOINT_VERSION = 7
MAX_STATE_BYTES = 64 << 20
NetworkKind = Literal["acoustic", "vocoder"]
_WITH_ARTICLE: dict[NetworkKind, str] = {"acoustic": "an acoustic model", "vocoder": "a vocoder"}
# A file that is missing, of another kind or too large has not the bytes that were saved; others may be intact.
_NOT_SAVED_SO = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.EFBIG})


@dataclass(frozen=True, config=STRICT)
class BestEvaluation:
    """The evaluation with the lowest value, and the number of those since; step 0 and no value before the first."""

    step: Natural = 0
    metric: str = ""
    value: float | None = None
    evaluations_without: Natural = 0

    def is_beaten_by(self, metric: str, value: float) -> bool:
        """Return whether a value is better: the first, or the first of another metric, always is; NaN never is."""
        return value < (math.inf if self.value is None or metric != self.metric else self.value)

    def after(self, step: int, metric: str, value: float) -> "BestEvaluation":
        """Return the best evaluation once the next one, at `step`, had this value of the metric."""
        if self.is_beaten_by(metric, value):
            return BestEvaluation(step, metric, value)
        return replace(self, evaluations_without=self.evaluations_without + 1)


@dataclass(frozen=True, config=STRICT)
class LossSpikeState:
    """The statistics of reported losses: their number, running mean and variance, and whether the last was a spike."""

    reports: Natural = 0
    mean: float = 0.0
    variance: Annotated[float, Field(ge=0.0)] = 0.0
    is_spike: bool = False


@dataclass(frozen=True, config=STRICT)
class CopiedRows:
    """Embedding rows of symbols, speakers or languages: the number copied, the new ones and those left behind."""

    kept: Natural = 0
    new: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True, config=STRICT)
class Origin:
    """The checkpoint whose weights a run started with, and the weights that were not copied.

    kept_share: share of the network's parameters that were copied.
    settings: the audio, text and model settings that differ, one line each.
    new, left_behind: variables that only this network has, and that only the other one has.
    misfits: variables of both that have another shape and start anew, each with both shapes.
    """

    checkpoint: str
    step: Natural
    weights_sha256: str
    kept_share: float
    symbols: CopiedRows
    speakers: CopiedRows
    languages: CopiedRows
    settings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


def can_clone(model: ModelConfig, cache: CacheIdentity) -> bool:
    """Return whether a network speaks with the voices of references: it takes them, and has learnt several voices.

    One that goes on with another's weights keeps its voice encoder, even for one speaker.
    """
    return model.voice_latents > 0 and len(cache.speakers) > 1


@dataclass(frozen=True, config=STRICT)
class RunState:
    """A run between two steps.

    records: digest of the cache's manifest, and so of its records and their files.
    batch_rows: rows in a batch of each bucket, which `position` counts in; empty before they are known.
    is_settled: whether the report, evaluation and synthesis due after the step are done; an interruption skips them.
    window: metrics of the steps since the last report; None for NaN and infinities.
    file_bytes: sizes of the files of JSON lines, by name; later lines belong to steps that are repeated.
    best: for `training.patience`. best_on_disk: the one in best/, if it differs because a better one was not written.
    skipped_steps, skipped_in_a_row: skipped updates in all and in a row, up to the last report.
    origin: the checkpoint that the run started with, if any.
    """

    records: str
    position: StreamPosition = START
    batch_rows: tuple[Natural, ...] = ()
    is_settled: bool = True
    window: tuple[tuple[float | None, ...], ...] = ()
    file_bytes: dict[str, Natural] = Field(default_factory=dict)
    reported_step: Natural = 0
    first_loss: float | None = None
    last_loss: float | None = None
    best: BestEvaluation = BestEvaluation()
    best_on_disk: BestEvaluation | None = None
    evaluations: Natural = 0
    aligned_at_step: Natural | None = None
    spikes: LossSpikeState = LossSpikeState()
    skipped_steps: Natural = 0
    skipped_in_a_row: Natural = 0
    rolled_back_at_step: Natural | None = None
    warnings: tuple[str, ...] = ()
    resumed_at_steps: tuple[Natural, ...] = ()
    origin: Origin | None = None

    def with_batches(self, batch_rows: tuple[int, ...]) -> "RunState":
        """Return the state to continue with batches of this many rows; if they changed, from the next epoch on."""
        if self.batch_rows in ((), batch_rows):
            return replace(self, batch_rows=batch_rows)
        position = StreamPosition(self.position.epoch + 1, 0) if self.position.batch else self.position
        return replace(self, batch_rows=batch_rows, position=position, window=self.window_without_clips)

    @property
    def window_without_clips(self) -> tuple[tuple[float | None, ...], ...]:
        """The open window for another order of clips, in which those of its skipped steps cannot be looked up."""
        return tuple(row for row in self.window if not row[-1])

    @property
    def is_last_update_finite(self) -> bool:
        """Whether the last step was applied, by the open window or, if that is empty, by the last report."""
        return not (self.window[-1][-1] if self.window else self.skipped_in_a_row)

    def rolled_back(self, later: "RunState") -> "RunState":
        """Return the state to go back to from a later one of the run, whose clips and batches it keeps."""
        # Skipped steps of the window are recorded already.
        return replace(
            self,
            window=self.window_without_clips,
            records=later.records,
            batch_rows=later.batch_rows,
            resumed_at_steps=later.resumed_at_steps,
        )

    def resumed(self, step: int) -> "RunState":
        """Return the state of a run that another process continues after `step`."""
        return replace(self, resumed_at_steps=(*self.resumed_at_steps, step))


@dataclass(frozen=True, config=STRICT)
class FileDigest:
    """Size and checksum of a file."""

    bytes: Natural
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def digest_of(content: bytes) -> FileDigest:
    """Return size and checksum of a file's content."""
    return FileDigest(len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, config=STRICT)
class SavedState:
    """The content of state.json.

    network: which network the weights are of.
    run: None if the checkpoint was saved without one; such a checkpoint can synthesize but cannot be resumed.
    """

    checkpoint_version: int
    xtts_pipeline: str
    tensorflow: str
    step: Natural
    weights: FileDigest
    config: Config
    cache: CacheIdentity
    run: RunState | None
    network: NetworkKind


_SAVED_STATE = TypeAdapter(SavedState)


def origin_to_json(origin: Origin) -> Any:
    """Return the origin as summary.json has it."""
    return TypeAdapter(Origin).dump_python(origin, mode="json")


def state_to_json(state: SavedState) -> Any:
    """Return the content of state.json."""
    return _SAVED_STATE.dump_python(state, mode="json")


def read_state(folder: Path) -> SavedState:
    """Return the contents of a checkpoint's state.json after checking its size, checksum and schema.

    Raises CheckpointError for another version, and the errors that `explaining_damage` turns into one line.
    """
    content = unseal_json(read_regular_file(folder / STATE_NAME, MAX_STATE_BYTES, follow_links=False))
    if content.get("checkpoint_version") != CHECKPOINT_VERSION:
        raise CheckpointError(
            f"{folder}: checkpoint version {content.get('checkpoint_version')}, expected {CHECKPOINT_VERSION}; "
            "train again"
        )
    state = _SAVED_STATE.validate_json(canonical_json(content), strict=True)
    if not has_step_of(folder, state.step):
        raise ValueError(f"{STATE_NAME} is that of step {state.step}")
    return state


def network_of(path: Path) -> NetworkKind | None:
    """Return what a run, or that of a checkpoint, trains by its network.txt, or None without it.

    Raises OutputError if it cannot be read or names no network.
    """
    name = read_network_name(path)
    found = next((kind for kind in _WITH_ARTICLE if kind == name), None)
    if name is not None and found is None:
        raise OutputError(f"{path}: its {NETWORK_NAME} names {name!r}, expected acoustic or vocoder; remove the file")
    return found


def require_network(folder: Path, found: NetworkKind, expected: NetworkKind) -> None:
    """Raise CheckpointError unless the weights of a checkpoint are of this network."""
    if found != expected:
        trained = "xtts train" if expected == "acoustic" else "xtts train-vocoder"
        raise CheckpointError(
            f"{folder}: found the weights of {_WITH_ARTICLE[found]}, expected those of {_WITH_ARTICLE[expected]}; "
            f"name a run of {trained}"
        )


def read_run_state(path: Path) -> SavedState:
    """Return the state of a run or checkpoint. Raises CheckpointError if there is no intact one."""
    folder = find_checkpoint(path)
    with explaining_damage(folder):
        return read_state(folder)


def check_weights_size(folder: Path, state: SavedState) -> None:
    """Raise DamagedCheckpointError unless the weights of a checkpoint's folder have the size that its state tells.

    This reads none of them; `load_checkpoint` compares their checksum.
    """
    weights = folder / WEIGHTS_NAME
    with explaining_damage(folder):
        size = weights.stat().st_size
    if size != state.weights.bytes:
        raise damaged(weights, f"{size} bytes, expected {state.weights.bytes}")


def read_settings(path: Path, network: NetworkKind) -> Config:
    """Return the config of a run or checkpoint whose weights are about to be used.

    Raises CheckpointError if there is no intact one of the network; of its weights, the size alone is compared.
    """
    folder = find_checkpoint(path)
    state = read_run_state(folder)
    require_network(path, state.network, network)
    check_weights_size(folder, state)
    return state.config


def is_whole(run: Path) -> bool:
    """Return whether the newest checkpoint of a run, if it has one, holds its state and weights of their size."""
    try:
        for folder in checkpoint_folders(run)[-1:]:
            check_weights_size(folder, read_run_state(folder))
    except DamagedCheckpointError:
        return False
    return True


def damaged(path: Path, found: str) -> DamagedCheckpointError:
    """Return the error for a file of a checkpoint that differs from its state."""
    return DamagedCheckpointError(f"{path}: {found}; the file is damaged, use an earlier step")


@contextmanager
def explaining_damage(folder: Path) -> Iterator[None]:
    """Turn the errors of reading a damaged checkpoint into a DamagedCheckpointError of one line.

    A file that the system cannot read is a CheckpointError: its bytes may be intact.
    """
    try:
        yield
    except FileNotFoundError as error:
        found = f"{error.filename}: no such file"
        raise DamagedCheckpointError(f"{found}; the checkpoint is not whole, use an earlier step") from None
    except OSError as error:
        found = f"{error.filename}: cannot be read ({error.strerror})"
        if error.errno in _NOT_SAVED_SO:
            raise DamagedCheckpointError(f"{found}; the checkpoint is not whole, use an earlier step") from None
        raise CheckpointError(f"{found}; mend that and try again") from None
    except (ValueError, SafetensorError) as error:
        problem = first_problem(error) if isinstance(error, ValidationError) else first_line_of(error)
        raise DamagedCheckpointError(f"{folder}: not a sound checkpoint ({problem}); use an earlier step") from None

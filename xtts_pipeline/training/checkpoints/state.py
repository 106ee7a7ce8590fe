"""What a run remembers beside its weights, so that it goes on as if nothing had happened. Knows no TensorFlow."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from xtts_pipeline.data.position import START, StreamPosition

_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=_STRICT)
class BestSoFar:
    """The evaluation with the lowest loss, and how many have passed since; step 0 and no loss before the first."""

    step: Natural = 0
    loss: float | None = None
    evaluations_without: Natural = 0


@dataclass(frozen=True, config=_STRICT)
class SpikeState:
    """What the losses of reports have been: how many, their running mean and variance, and whether the last one leapt."""

    reports: Natural = 0
    mean: float = 0.0
    variance: Annotated[float, Field(ge=0.0)] = 0.0
    is_spike: bool = False


@dataclass(frozen=True, config=_STRICT)
class NamesKept:
    """Rows of a table, one a symbol, speaker or language: how many were taken over, which are new, and which were left behind."""

    kept: Natural = 0
    new: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class Origin:
    """The checkpoint that a run began with, and what of its weights was not taken over.

    kept_share: share of the network's numbers that came from there.
    settings: those of audio, text and model that differ, one line each.
    new, left_behind: variables that only this network has, and that only the other one has.
    misfits: variables that both have and that begin anew, each with its two shapes.
    """

    checkpoint: str
    step: Natural
    weights_sha256: str
    kept_share: float
    symbols: NamesKept
    speakers: NamesKept
    languages: NamesKept
    settings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()


@dataclass(frozen=True, config=_STRICT)
class RunState:
    """A run between two steps.

    records: digest of the cache's manifest, that is of which records there are and in which files.
    is_settled: whether what was due after the step (report, evaluation, speech) is done; an interruption does not wait for it.
    window: the metrics of the steps since the last report; None for what was not finite.
    best: for the sake of patience; best_on_disk: what lies in best/, where that is another one because the better could not be written.
    skipped_steps, max_consecutive_skips: updates left out, up to the last report.
    origin: what the run began with, where it was not nothing.
    batch_rows: the rows in a batch of each bucket, for which `position` counts; empty where an older version did not say.
    file_bytes: how long the files of lines were, by name; what comes after belongs to steps that will be taken again.
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
    best: BestSoFar = BestSoFar()
    best_on_disk: BestSoFar | None = None
    evaluations: Natural = 0
    aligned_at_step: Natural | None = None
    spikes: SpikeState = SpikeState()
    skipped_steps: Natural = 0
    max_consecutive_skips: Natural = 0
    rolled_back_at_step: Natural | None = None
    warnings: tuple[str, ...] = ()
    resumed_at_steps: tuple[Natural, ...] = ()
    origin: Origin | None = None

    def with_batches(self, batch_rows: tuple[int, ...]) -> "RunState":
        """Return the state of a run that goes on with batches of so many rows: from the next epoch on, where they were others."""
        if self.batch_rows in ((), batch_rows):
            return replace(self, batch_rows=batch_rows)
        position = StreamPosition(self.position.epoch + 1, 0) if self.position.batch else self.position
        # The window's steps were of the old order, and which clips they had could not be told any more.
        return replace(self, batch_rows=batch_rows, position=position, window=())

    def resumed(self, step: int) -> "RunState":
        """Return the state of a run that goes on from here in another process."""
        return replace(self, resumed_at_steps=(*self.resumed_at_steps, step))


_STATE = TypeAdapter(RunState)
_ORIGIN = TypeAdapter(Origin)


def state_to_json(state: RunState) -> Any:
    """Return what a checkpoint's state.json holds of it."""
    return _STATE.dump_python(state, mode="json")


def origin_to_json(origin: Origin) -> Any:
    """Return what a run's summary says of where it began."""
    return _ORIGIN.dump_python(origin, mode="json")


def state_from_json(content: str) -> RunState:
    """Return the state. Raises ValueError unless every key and type is right."""
    return _STATE.validate_json(content, strict=True)


def window_to_state(vectors: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """Return metrics [steps, metrics] as JSON can hold them, bit for bit but for which NaN or infinity it was."""
    return tuple(
        tuple(number if math.isfinite(number) else None for number in vector)
        for vector in vectors.astype(np.float64).tolist()
    )


def window_from_state(window: Sequence[Sequence[float | None]], metrics: int) -> np.ndarray:
    """Return metrics float32 [steps, metrics], with NaN for what was not finite."""
    rows = [[math.nan if number is None else number for number in vector] for vector in window]
    return np.array(rows, np.float32).reshape(-1, metrics)

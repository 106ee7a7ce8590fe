"""The summary of a finished run, summary.json: its schema, and its place on disk.

Imports no TensorFlow.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from xtts_pipeline.errors import OutputError
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.strict_json import Natural, first_problem
from xtts_pipeline.training.checkpoints.run_folder import SUMMARY_NAME
from xtts_pipeline.training.checkpoints.state import NetworkKind

_MAX_SUMMARY_BYTES = 64 << 20
_REMEDY = "remove it, and --resume goes on from the last checkpoint"


class _Part(BaseModel):
    """A part of the summary. Keys that no report reads may have any value."""

    model_config = ConfigDict(strict=True, extra="allow")


class _Losses(_Part):
    first: float | None
    last: float | None


class _Best(_Part):
    step: Natural
    metric: str
    value: float


class _Counts(_Part):
    traces: Natural
    compilations: Natural


class _StepTimes(_Part):
    mean: float
    std: float
    p50: float
    p95: float


class _Memory(_Part):
    estimated_bytes: Natural | None
    program_bytes: Natural | None
    peak_bytes: Natural


class _Origin(_Part):
    checkpoint: str
    kept_share: float


class _Operation(_Part):
    ms_per_step: float
    share: float
    calls: Natural
    name: str


class _Profile(_Part):
    steps: Natural
    folder: str
    operations: list[_Operation]


class _Summary(_Counts):
    """What `xtts train` reports of a finished run."""

    network: NetworkKind
    steps: Natural
    stopped_early: bool
    by_function: dict[str, _Counts]
    step_ms: _StepTimes | None
    data_wait_share: float | None
    device_share: float | None
    examples_per_second: float | None
    mel_frames_per_second: float | None
    loss: _Losses
    best: _Best | None
    startup_seconds: dict[str, float]
    memory: _Memory
    parameters: Natural
    weights_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    resumed_at_steps: list[Natural]
    origin: _Origin | None
    profile: _Profile | None

    @model_validator(mode="after")
    def _speed_is_whole(self) -> Self:
        """Step times come with the other figures of speed."""
        if self.step_ms and None in (self.data_wait_share, self.examples_per_second, self.mel_frames_per_second):
            raise ValueError("step_ms: found without data_wait_share, examples_per_second or mel_frames_per_second")
        return self


def write_summary(run: Path, summary: dict[str, Any]) -> None:
    """Write summary.json, which marks the run as finished."""
    with atomic_write(run / SUMMARY_NAME) as file:
        file.write(json.dumps(summary, indent=1).encode() + b"\n")


def read_summary(run: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run, or None. Raises OutputError if it cannot be read or is no summary."""
    path = run / SUMMARY_NAME
    try:
        data = read_regular_file(path, _MAX_SUMMARY_BYTES, follow_links=False)
        _Summary.model_validate_json(data)
        summary: dict[str, Any] = json.loads(data)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    except ValidationError as error:
        raise OutputError(f"{path}: not a summary ({first_problem(error)}); {_REMEDY}") from None
    except ValueError as error:
        raise OutputError(f"{path}: not a summary ({error}); {_REMEDY}") from None
    return summary

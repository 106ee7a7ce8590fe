"""What is to be trained, once all that can be said without TensorFlow has been said. Does nothing."""

from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.survey import Survey
from xtts_pipeline.system.runtime import gpu_count, has_gpu
from xtts_pipeline.training.distributed.cluster import Cluster


@dataclass(frozen=True)
class TrainingJob:
    """A training as `xtts train` was asked for it, checked.

    cache: the folder that is read, or with a survey the corpus.
    allowed: keys and sections of settings that a run that goes on may change.
    is_resumed: whether the run's folder may hold a run; is_new: whether it has no checkpoint to go on from.
    init_from: the run or checkpoint with whose weights a new run begins.
    devices: how many the user asks for; None for all GPUs.
    """

    cache: Path
    manifest: Manifest
    survey: Survey | None
    config: Config
    run: Path
    allowed: frozenset[str]
    is_resumed: bool
    is_new: bool
    profile_steps: int | None
    init_from: Path | None
    cluster: Cluster | None
    devices: int | None

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run."""
        return self.cluster is None or self.cluster.index == 0

    @property
    def is_tuned_first(self) -> bool:
        """Whether settings are measured before the first step; a run that goes on keeps those that were."""
        return self.config.training.autotune and self.is_new

    @property
    def shares(self) -> int:
        """Into how many parts a batch is shared, each of which has a memory of its own."""
        return (1 if self.cluster is None else len(self.cluster.workers)) * (
            device_count(self.devices) if has_gpu() else 1
        )


def device_count(asked: int | None) -> int:
    """Return on how many devices one process trains: as many as are asked for, else all GPUs, else the processor."""
    return asked or gpu_count() or 1

"""What `xtts train` is about to do, after all checks that need no TensorFlow."""

from dataclasses import dataclass
from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.survey import Survey
from xtts_pipeline.system.runtime import gpu_count, has_gpu
from xtts_pipeline.training.checkpoints.state import NetworkKind
from xtts_pipeline.training.distributed.cluster import Cluster


@dataclass(frozen=True)
class RunPlan:
    """A checked training run.

    data: folder of the cache or of its local copy, or of the corpus if there is a `survey` of one.
    cache: the cache as it was named; None for a corpus.
    allowed: keys and sections of settings that a resumed run may change.
    is_resumed: whether the run's folder may hold a run; is_new: whether it has no settings of its own yet.
    init_from: the run or checkpoint whose weights a new run starts with.
    devices: the number that the user asked for; None for all GPUs.
    network: what the run trains.
    """

    data: Path
    cache: Path | None
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
    network: NetworkKind = "acoustic"

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run."""
        return self.cluster is None or self.cluster.index == 0

    @property
    def is_tuned_first(self) -> bool:
        """Whether settings are measured before the first step. A resumed run keeps those measured before."""
        return self.config.training.autotune and self.is_new

    @property
    def batch_shares(self) -> int:
        """The number of devices that split a batch."""
        return batch_shares(self.cluster, self.devices)

    @property
    def memory_shares(self) -> int:
        """The number of parts of a batch, each in a memory of its own."""
        return batch_shares(self.cluster, self.devices if has_gpu() else 1)


def batch_shares(cluster: Cluster | None, devices: int | None) -> int:
    """Return the number of devices that split a batch: those of all processes."""
    workers = 1 if cluster is None else len(cluster.workers)
    return workers * device_count(devices)


def device_count(asked: int | None) -> int:
    """Return the number of devices of one process: those asked for, else all GPUs, else the CPU."""
    return asked or gpu_count() or 1

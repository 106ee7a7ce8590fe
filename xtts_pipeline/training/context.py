"""What a run writes to, tells and hears: opened before its first step and closed after its last. Knows nothing of steps."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from xtts_pipeline.cache.format.manifest import CacheIdentity
from xtts_pipeline.config.schema import Config
from xtts_pipeline.training.checkpoints.saver import CheckpointSaver
from xtts_pipeline.training.checkpoints.state import RunState
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.monitoring.media import MediaWriter
from xtts_pipeline.training.monitoring.metrics import MetricsWriter, forget_after
from xtts_pipeline.training.monitoring.monitor import CompilationMonitor
from xtts_pipeline.training.monitoring.profiling import Profiling
from xtts_pipeline.training.monitoring.startup import StartUp
from xtts_pipeline.training.null_writers import UnwrittenCheckpoints, UnwrittenMetrics


class Progress(Protocol):
    """Whoever watches a run."""

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Take in numbers of a split (`train`, `val` or `speech`) that have just been read back."""

    def say(self, step: int, line: str) -> None:
        """Take in something that must be seen, such as a warning."""


@dataclass(frozen=True)
class Told:
    """What a run is told by whoever starts it: who watches, when to stop, what to trace, when it began, and what it is spread over."""

    monitor: CompilationMonitor
    progress: Progress
    interruption: Interruption | None
    profile_steps: int | None
    startup: StartUp
    distribution: Distribution


@dataclass(frozen=True)
class Surroundings:
    """What a run writes to, tells and hears."""

    folder: Path
    monitor: CompilationMonitor
    progress: Progress
    metrics: MetricsWriter
    media: MediaWriter
    saver: CheckpointSaver
    interruption: Interruption | None
    profiling: Profiling | None
    startup: StartUp
    distribution: Distribution


@contextmanager
def surround(
    run: Path, config: Config, cache: CacheIdentity, told: Told, state: RunState, begun: int
) -> Iterator[Surroundings]:
    """Open what a run writes, to go on after the step `begun` in a state; a worker that is not the chief writes nothing."""
    is_chief = told.distribution.is_chief
    if is_chief:
        forget_after(run, begun)
    with ExitStack() as stack:
        metrics = stack.enter_context(MetricsWriter(run, state.file_bytes) if is_chief else UnwrittenMetrics())
        media = stack.enter_context(MediaWriter(run, config))
        written = CheckpointSaver(run, config, cache, metrics.sync, saved_step=begun)
        saver = stack.enter_context(written if is_chief else UnwrittenCheckpoints(begun))
        profiling = stack.enter_context(Profiling(run, told.profile_steps)) if told.profile_steps and is_chief else None
        heard = (told.interruption, profiling, told.startup, told.distribution)
        yield Surroundings(run, told.monitor, told.progress, metrics, media, saver, *heard)

"""What a training loop reads from, writes to and reports to: found and opened before its first step, closed at its end.

Imports TensorFlow, so `xtts train` reaches it only through the gate. Knows nothing of steps.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import tensorflow as tf

from xtts_pipeline.cache.format.manifest import REJECTED_NAME
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.data.online import OnlineSource
from xtts_pipeline.data.source import Source
from xtts_pipeline.data.waves import WaveSource
from xtts_pipeline.errors import ConfigError, TrainingError
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.system.sealed_json import canonical_json
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.training.checkpoints.run_folder import write_cache_path, write_config, write_init_from
from xtts_pipeline.training.checkpoints.saver import CheckpointSaver, NullCheckpointSaver
from xtts_pipeline.training.checkpoints.state import NetworkKind, RunState
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE, Distribution, choose_distribution
from xtts_pipeline.training.init_from import load_base
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.monitoring.media import MediaWriter
from xtts_pipeline.training.monitoring.metrics import MetricsWriter, NullMetricsWriter, hide_steps_after
from xtts_pipeline.training.monitoring.profiling import StepProfiler
from xtts_pipeline.training.monitoring.startup import StartupTimer
from xtts_pipeline.training.plan import RunPlan
from xtts_pipeline.training.resume import Resumption, resume


class TrainingProgress(Protocol):
    """Where a run shows its progress. Any thread may call it."""

    def show(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Show numbers of a split (`train`, `val` or `speech`)."""

    def end_evaluation(self, step: int) -> None:
        """Show the line of an evaluation, after the numbers of all its splits."""

    def compiling(self, what: str) -> AbstractContextManager[None]:
        """Show that the block traces and compiles this part of the run."""

    def log(self, line: str, step: int | None = None) -> None:
        """Show one line. Of several workers, the chief alone shows lines of a step."""


# Opens the progress of a run of this many steps.
OpenProgress = Callable[[int], AbstractContextManager[TrainingProgress]]


@dataclass
class RunContext:
    """A run that is ready for its first step. Entering opens what it writes in `folder`; only the chief writes.

    Entering also removes reports of steps after that of `resumption`: these steps come again.
    resumption: the checkpoint and state to continue from; None for a new run.
    base: the checkpoint whose weights a new run starts with; None for random weights.
    network: what the run trains.
    write_plan: write the settings of a resumed run, once they are known to fit its weights.
    """

    folder: Path
    config: Config
    source: Source
    monitor: CompilationMonitor
    progress: TrainingProgress
    resumption: Resumption | None = None
    base: Checkpoint | None = None
    interruption: Interruption | None = None
    profile_steps: int | None = None
    startup: StartupTimer = field(default_factory=StartupTimer)
    distribution: Distribution = SINGLE_DEVICE
    network: NetworkKind = "acoustic"
    write_plan: Callable[[], None] = lambda: None
    metrics: MetricsWriter = field(init=False)
    media: MediaWriter = field(init=False)
    saver: CheckpointSaver = field(init=False)
    profiling: StepProfiler | None = field(init=False, default=None)

    @property
    def state(self) -> RunState:
        """The state before the first step of this process."""
        return RunState(self.source.records_digest()) if self.resumption is None else self.resumption.state

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run."""
        return self.distribution.is_chief

    def __enter__(self) -> Self:
        step = 0 if self.resumption is None else self.resumption.checkpoint.step
        with ExitStack() as stack:
            if self.is_chief:
                hide_steps_after(self.folder, step)
                self.metrics = stack.enter_context(MetricsWriter(self.folder, self.state.file_bytes))
            else:
                self.metrics = stack.enter_context(NullMetricsWriter())
            self.media = stack.enter_context(MediaWriter(self.folder, self.config))
            self.saver = stack.enter_context(
                CheckpointSaver(
                    self.folder,
                    self.config,
                    self.source.identity(),
                    self._before_saving,
                    saved_step=step,
                    network=self.network,
                )
                if self.is_chief
                else NullCheckpointSaver(step)
            )
            if self.profile_steps and self.is_chief:
                self.profiling = stack.enter_context(StepProfiler(self.folder, self.profile_steps))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _before_saving(self) -> None:
        """Flush the files that a checkpoint refers to. Raises TrainingError if the cache has changed."""
        self.source.check_unchanged()
        self.metrics.sync()


@contextmanager
def prepare_run(
    log: NativeLog, plan: RunPlan, progress: TrainingProgress, startup: StartupTimer
) -> Iterator[RunContext]:
    """Yield the context of a planned run. The settings and the origin of a new one are on disk by then.

    Raises ConfigError, CacheError or CheckpointError if workers differ, or the run cannot resume or start as planned.
    """
    training = plan.config.training
    distribution = choose_distribution(plan.cluster, plan.devices, progress.log)
    if training.debug_eager and distribution.strategy is not None:
        raise ConfigError("training.debug_eager: found several devices, expected one; add --devices 1, or leave it out")
    source = _open_source(plan)
    monitor = CompilationMonitor(
        log,
        is_strict=training.strict_shapes,
        is_compiled=training.jit_compile,
        compiling=progress.compiling,
    )
    with Interruption(progress.log) as interruption:
        with distribution.explaining_lost_workers():
            distribution.check_same("the number of GPUs", str(distribution.local_replicas))
            distribution.check_same("the cache", source.records_digest())
            distribution.check_same("the config", dump_config(plan.config))
            distribution.check_same("--resume", str(plan.is_resumed))
            resumption = None
            if plan.is_resumed:
                resumption = resume(
                    plan.run, source, plan.config, plan.allowed, progress.log, distribution, plan.network
                )
        base = None if plan.init_from is None else load_base(plan.init_from, plan.network, resumption, progress.log)
        with distribution.explaining_lost_workers():
            # Each worker assigns the weights that it reads.
            distribution.check_same("the checkpoint of --init-from", "" if base is None else base.weights_sha256)
        write_plan = partial(_write_plan, plan, base)
        if resumption is None:
            write_plan()
        with RunContext(
            folder=plan.run,
            config=plan.config,
            source=source,
            monitor=monitor,
            progress=progress,
            resumption=resumption,
            base=base,
            interruption=interruption,
            profile_steps=plan.profile_steps,
            startup=startup,
            distribution=distribution,
            network=plan.network,
            write_plan=write_plan,
        ) as context:
            try:
                yield context
            except tf.errors.ResourceExhaustedError:
                raise _out_of_memory(plan) from None
            except tf.errors.OpError:
                # Records of another cache may have an id or a length that the network does not know.
                source.check_unchanged()
                raise


def _open_source(plan: RunPlan) -> Source:
    """Return the source of batches. Raises CorpusError if TensorFlow's decoder cannot read a clip of a corpus."""
    if plan.network == "vocoder":
        return WaveSource(plan.data, plan.manifest, plan.config)
    if plan.survey is None:
        return CachedSource(plan.data, plan.manifest)
    return OnlineSource(plan.data, plan.survey, plan.config)


def _out_of_memory(plan: RunPlan) -> TrainingError:
    settings = plan.config.training
    found = f"{plan.run}: out of memory with training.batch_size={settings.batch_size}"
    if plan.network == "vocoder":
        return TrainingError(f"{found}; lower it, or vocoder.crop_frames")
    return TrainingError(
        f"{found} and training.accumulation_steps={settings.accumulation_steps}; lower the first or raise the second"
    )


def _write_plan(plan: RunPlan, base: Checkpoint | None) -> None:
    """Write the run's settings, the paths of its base checkpoint and cache, and rejected rows of a corpus, as chief."""
    if not plan.is_chief:
        return
    if base is not None and plan.init_from is not None:
        write_init_from(plan.run, plan.init_from)
    if plan.cache is not None:
        write_cache_path(plan.run, plan.cache)
    write_config(plan.run, dump_config(plan.config), plan.network)
    if plan.survey is not None:
        with atomic_write(plan.run / REJECTED_NAME) as file:
            file.writelines(f"{canonical_json(rejection.to_json())}\n".encode() for rejection in plan.survey.rejections)

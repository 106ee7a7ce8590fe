"""A checked job as a run under way: devices, source and monitor are made, and what it goes on from or begins with is found.

Imports TensorFlow, so it is imported itself once TensorFlow's log goes where it should.
"""

from typing import Any

from xtts_pipeline.cli.native_training import native_source, write_rejections
from xtts_pipeline.cli.progress import RunProgress
from xtts_pipeline.cli.training_job import TrainingJob
from xtts_pipeline.config.load import dump_config
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.checkpoints.files import Checkpoint
from xtts_pipeline.training.checkpoints.run_folder import write_ancestor, write_config
from xtts_pipeline.training.distributed.strategy import Distribution, choose_distribution
from xtts_pipeline.training.interruption import Interruption
from xtts_pipeline.training.loop import train
from xtts_pipeline.training.monitoring.monitor import CompilationMonitor
from xtts_pipeline.training.monitoring.startup import StartUp
from xtts_pipeline.training.resume import Resumption, find_ancestor, resume_together


def run_job(job: TrainingJob, log: NativeLog, progress: RunProgress, startup: StartUp) -> dict[str, Any]:
    """Train, as one of several workers where there are; return the summary.

    Raises ConfigError, CacheError or CheckpointError if workers differ, or if the run cannot go on or begin as asked; what training
    raises; OSError if the disk refuses.
    """
    config, training = job.config, job.config.training
    startup.note("import")
    distribution = choose_distribution(job.cluster, job.devices)
    if training.debug_eager and distribution.strategy is not None:
        raise ConfigError("training.debug_eager: found several devices, expected one; add --devices 1, or leave it out")
    source = Source(job.cache, job.manifest) if job.survey is None else native_source(job.cache, job.survey, config)
    monitor = CompilationMonitor(log, is_strict=training.strict_shapes, is_compiled=training.jit_compile)
    with Interruption(progress.note) as interruption:
        resumption = _find_resumption(job, source, progress, distribution)
        ancestor = None if job.init_from is None else find_ancestor(job.init_from, resumption, progress.note)
        if job.is_chief:
            _describe(job, ancestor)
        return train(
            source,
            config,
            job.run,
            monitor,
            progress,
            resumption,
            interruption,
            job.profile_steps,
            ancestor,
            startup,
            distribution,
        )


def _find_resumption(
    job: TrainingJob, source: Source, progress: RunProgress, distribution: Distribution
) -> Resumption | None:
    """Return what the run goes on from, once it is proved that all workers train the same; None for a run that begins."""
    with distribution.losing_workers():
        distribution.check_same("the number of GPUs", str(distribution.local_replicas))
        distribution.check_same("the cache", source.records_digest())
        distribution.check_same("the config", dump_config(job.config))
        if not job.is_resumed:
            return None
        return resume_together(job.run, source, job.config, job.allowed, progress.note, distribution)


def _describe(job: TrainingJob, ancestor: Checkpoint | None) -> None:
    """Write what the run is beside what it will make: its settings, the rows it leaves out, and with whose weights it begins."""
    if ancestor is not None and job.init_from is not None:
        write_ancestor(job.run, job.init_from)
    write_config(job.run, dump_config(job.config))
    if job.survey is not None:
        write_rejections(job.run, job.survey)

"""`xtts diagnose`: what is slow or wrong, why, and what to do about it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.verify.verify import require_whole
from xtts_pipeline.cli.commands.train import check_enough_records, training_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.runtime import NativeLog

if TYPE_CHECKING:
    from xtts_pipeline.data.source import Source
    from xtts_pipeline.perf.diagnose.demonstration import Demonstration
    from xtts_pipeline.perf.diagnose.gpu import GpuReport
    from xtts_pipeline.perf.diagnose.input import InputReport
    from xtts_pipeline.perf.diagnose.retracing import RetracingReport
    from xtts_pipeline.training.monitoring.monitor import CompilationMonitor


class _Subject(NamedTuple):
    """What is looked at: a proved cache, the settings, and a monitor over TensorFlow's log."""

    source: "Source"
    config: Config
    monitor: "CompilationMonitor"


@contextmanager
def _subject(
    cache: Path, configs: Sequence[str], overrides: Sequence[str], *, echo_native_log: bool
) -> Iterator[_Subject]:
    """Check cache and settings as `xtts train` does, and import TensorFlow with its log in a file."""
    manifest = load_manifest(cache)
    require_whole(cache)
    config = training_config(manifest, configs, overrides, steps=None)
    if config.training.debug_eager:
        raise ConfigError(
            "training.debug_eager: found true, expected the compiled step, which is what is looked at; leave it out"
        )
    check_enough_records(cache, manifest, config)
    with NativeLog(echo=echo_native_log) as log:
        from xtts_pipeline.data.source import Source
        from xtts_pipeline.training.monitoring.monitor import CompilationMonitor

        monitor = CompilationMonitor(
            log, is_strict=config.training.strict_shapes, is_compiled=config.training.jit_compile
        )
        yield _Subject(Source(cache, manifest), config, monitor)


def diagnose_retracing(
    cache: Path, *, configs: Sequence[str], overrides: Sequence[str], steps: int, echo_native_log: bool
) -> "RetracingReport":
    """Say whether each step runs the one program that was compiled for it."""
    with _subject(cache, configs, overrides, echo_native_log=echo_native_log) as subject:
        from xtts_pipeline.perf.diagnose.retracing import diagnose_retracing as diagnose

        return diagnose(subject.source, subject.config, subject.monitor, steps)


def demonstrate_retracing(*, echo_native_log: bool) -> "Demonstration":
    """Show what varying shapes cost, on a small network made for it."""
    # Compiled without LLVM's optimisations, or it would take over a minute: what shows is how often, and even so what it costs.
    os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
    with NativeLog(echo=echo_native_log) as log:
        from xtts_pipeline.perf.diagnose.demonstration import demonstrate

        return demonstrate(log)


def diagnose_input(
    cache: Path,
    *,
    configs: Sequence[str],
    overrides: Sequence[str],
    batches: int,
    is_trying: bool,
    plot: Path | None,
    echo_native_log: bool,
) -> "InputReport":
    """Say whether batches come as fast as the step takes them, and why not; with `plot` as a picture too."""
    with _subject(cache, configs, overrides, echo_native_log=echo_native_log) as subject:
        from xtts_pipeline.perf.diagnose.input import diagnose_input as diagnose

        report = diagnose(subject.source, subject.config, subject.monitor, batches, is_trying=is_trying)
        if plot is None:
            return report
        from xtts_pipeline.perf.diagnose.timeline import save_batch_times

        figures = report.figures
        save_batch_times(plot, figures.batch_times_ms, figures.step_ms, figures.stages, str(report.verdict))
        return replace(report, picture=plot)


def diagnose_gpu(
    cache: Path, *, configs: Sequence[str], overrides: Sequence[str], seconds: float, plot: Path, echo_native_log: bool
) -> "GpuReport":
    """Say what the device does while the step runs, and write it as a picture to `plot`."""
    with _subject(cache, configs, overrides, echo_native_log=echo_native_log) as subject:
        from xtts_pipeline.perf.diagnose.gpu import diagnose_gpu as diagnose
        from xtts_pipeline.perf.diagnose.timeline import save_timeline

        report = diagnose(subject.source, subject.config, subject.monitor, seconds)
        save_timeline(plot, report.steps, report.samples, str(report.verdict))
        return replace(report, picture=plot)

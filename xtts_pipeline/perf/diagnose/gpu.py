"""Diagnose the GPU while the real training step runs: utilisation, waits, and a verdict by printed thresholds.

Without a GPU the times of the steps are measured all the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.perf.diagnose.oscillation import LEAST_SPREAD, LEAST_STRENGTH, Oscillation, find_oscillation
from xtts_pipeline.perf.diagnose.timeline import save_timeline
from xtts_pipeline.perf.diagnose.verdict import Verdict
from xtts_pipeline.perf.trial import StepTime, Trial, has_device
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.system.nvml import Sample, Sampler
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.checkpoints.state import NetworkKind

# Over this share of time spent waiting for data the device starves.
STARVED_WAIT_SHARE = 0.10
# With a throttled clock in over this share of the samples, throttling is the reason of slowness.
THROTTLED_SHARE = 0.50
BUSY_UTILISATION = 0.85
THRESHOLDS = {
    "starved: data wait over": STARVED_WAIT_SHARE,
    "oscillating: likeness after a period over": LEAST_STRENGTH,
    "oscillating: std over mean over": LEAST_SPREAD,
    "throttled: samples over": THROTTLED_SHARE,
    "compute-bound: utilisation over": BUSY_UTILISATION,
}
# Buckets take turns. Warming up ends after this many steps a shape, even if a rare shape has not come.
_WARMUP_STEPS_PER_SHAPE = 10


@dataclass(frozen=True)
class GpuReport:
    """The shares of the steps' time, the samples of the device, and the verdict.

    `has_gpu` says whether TensorFlow computes on a GPU; `device` is its name in NVML.
    """

    verdict: Verdict
    has_gpu: bool
    device: str | None
    no_gpu_reason: str | None
    shares: dict[str, float]
    steps: tuple[StepTime, ...]
    samples: tuple[Sample, ...]
    oscillation: Oscillation | None
    picture: Path

    @property
    def is_bad(self) -> bool:
        """Whether there is a GPU and its verdict is unhealthy."""
        return (self.has_gpu or self.device is not None) and not self.verdict.is_healthy

    @property
    def step_ms(self) -> float:
        """Mean duration of a step."""
        return 1e3 * float(np.mean([step.seconds for step in self.steps]))

    def to_json(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            **self.verdict.to_json(),
            "thresholds": THRESHOLDS,
            "device": self.device,
            "no_gpu_reason": self.no_gpu_reason,
            "steps": len(self.steps),
            "step_ms": self.step_ms,
            "shares": self.shares,
            "oscillation": self.oscillation and asdict(self.oscillation),
            "gpu": device_figures(self.samples),
            "samples": [asdict(sample) for sample in self.samples],
            "picture": str(self.picture),
        }

    def to_text(self) -> str:
        """Return the report for people."""
        figures = device_figures(self.samples)
        lines = [
            f"device        {self._device_text()}",
            f"steps         {len(self.steps)}, {self.step_ms:.1f} ms each",
            "time          " + ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items()),
        ]
        if figures is not None:
            mean, deviation = (_format(figures[key], ".0%") for key in ("utilisation", "utilisation_std"))
            lines += [
                f"utilisation   {mean} +/- {deviation}",
                f"memory        {_format(figures['memory_mb'], '.0f')} MB at most",
                f"clock, power  {_format(figures['sm_mhz'], '.0f')} MHz, {_format(figures['watts'], '.0f')} W",
                f"throttled     {_format(figures['throttled_share'], '.0%')} of the time",
                f"PCIe          {_format(figures['pcie_mb_per_second'], '.0f')} MB/s",
            ]
        lines += [
            f"picture       {self.picture}",
            "thresholds    " + ", ".join(f"{name} {limit:.0%}" for name, limit in THRESHOLDS.items()),
            f"verdict       {self.verdict}",
        ]
        return "\n".join(lines)

    def _device_text(self) -> str:
        if self.no_gpu_reason is None:
            return str(self.device)
        what = self.device or ("GPU" if self.has_gpu else "no GPU")
        return f"{what}: {self.no_gpu_reason}; only the host is measured"


def diagnose_gpu(
    log: NativeLog,
    cache: Path,
    manifest: Manifest,
    config: Config,
    *,
    seconds: float,
    plot: Path,
    network: NetworkKind = "acoustic",
) -> GpuReport:
    """Run the training step for `seconds` after it has compiled, sample the GPU meanwhile, and draw `plot`."""
    trial = Trial.of_cache(log, cache, manifest, config, network)
    shapes = trial.source.filled_buckets
    # The device idles while a step compiles. Steps that compile later count in the samples, but not in the shares.
    for _ in range(_WARMUP_STEPS_PER_SHAPE * shapes):
        if not trial.take_step().is_compiling and trial.step.compiled.shapes_seen == shapes:
            break
    with Sampler() as sampler:
        steps = trial.take_steps(seconds)
    shares, has_gpu = time_shares(steps), has_device()
    oscillation = find_oscillation(_known(sample.utilisation for sample in sampler.samples))
    verdict = judge(shares, sampler.samples, oscillation, has_gpu=has_gpu, wait_advice=trial.source.wait_advice)
    save_timeline(plot, steps, sampler.samples, str(verdict))
    return GpuReport(
        verdict=verdict,
        has_gpu=has_gpu,
        device=sampler.device,
        no_gpu_reason=None if sampler.samples else sampler.reason or "no sample was taken",
        shares=shares,
        steps=tuple(steps),
        samples=tuple(sampler.samples),
        oscillation=oscillation,
        picture=plot,
    )


def time_shares(steps: Sequence[StepTime]) -> dict[str, float]:
    """Return the shares of the time spent on waiting for data and on all else."""
    total = sum(step.seconds for step in steps)
    return {name: sum(step.parts[name] for step in steps) / total for name in steps[0].parts}


def device_figures(samples: Sequence[Sample]) -> dict[str, float | None] | None:
    """Return means and extremes of the samples, each None if the device does not report it; None without samples."""
    if not samples:
        return None
    utilisation = _known(sample.utilisation for sample in samples)
    memory = _known(sample.memory_mb for sample in samples)
    return {
        "utilisation": _mean(utilisation),
        "utilisation_std": float(np.std(utilisation)) if utilisation else None,
        "memory_mb": max(memory, default=None),
        "sm_mhz": _mean(_known(sample.sm_mhz for sample in samples)),
        "watts": _mean(_known(sample.watts for sample in samples)),
        "throttled_share": _mean([float(bool(sample.throttled)) for sample in samples if sample.throttled is not None]),
        "pcie_mb_per_second": _mean(_known(sample.pcie_mb_per_second for sample in samples)),
    }


def judge(
    shares: dict[str, float],
    samples: Sequence[Sample],
    oscillation: Oscillation | None,
    *,
    has_gpu: bool,
    wait_advice: str,
) -> Verdict:
    """Return the first verdict that applies; `has_gpu` says whether TensorFlow computes on a GPU.

    `wait_advice` is the remedy if batches come late.

    The names are: GPU not used, starved, oscillating, unknown, throttled, host-bound, compute-bound.
    """
    wait, figures = shares["data"], device_figures(samples)
    if samples and not has_gpu:
        remedy = f"{install_command('gpu')}, and look at what xtts --debug prints as TensorFlow starts"
        return Verdict("GPU not used", "NVML sees a GPU, and TensorFlow computes on the CPU", remedy)
    if wait > STARVED_WAIT_SHARE:
        finding = f"{wait:.0%} of the time is spent waiting for data, over {STARVED_WAIT_SHARE:.0%}"
        return Verdict("starved", finding, wait_advice)
    if oscillation is not None:
        seconds = oscillation.period * (samples[-1].seconds - samples[0].seconds) / (len(samples) - 1)
        finding = f"utilisation rises and falls every {seconds:.1f} s (spread {oscillation.spread:.0%} of its mean)"
        return Verdict("oscillating", finding, f"raise data.prefetch_buffer_size; {wait_advice}")
    utilisation = None if figures is None else figures["utilisation"]
    if figures is None or utilisation is None:
        finding = f"{shares['step']:.0%} of the time computes, {wait:.1%} waits for data"
        if not has_gpu:
            return Verdict("compute-bound", finding)
        remedy = f"give it more --seconds, {install_command('gpu')}, or look at nvidia-smi dmon"
        return Verdict("unknown", f"{finding}; the utilisation of the GPU is unknown", remedy)
    return _judge_use(utilisation, figures["throttled_share"], wait, samples)


def _judge_use(utilisation: float, throttled_share: float | None, wait: float, samples: Sequence[Sample]) -> Verdict:
    """Return the verdict on a device with a steady supply of batches."""
    if throttled_share is not None and throttled_share > THROTTLED_SHARE:
        reasons = sorted({reason for sample in samples for reason in sample.throttled or ()})
        finding = f"{' and '.join(reasons)} held the clock down in {throttled_share:.0%} of the samples"
        remedy = "look at cooling and the power limit (nvidia-smi -q -d PERFORMANCE)"
        return Verdict("throttled", finding, remedy)
    used = f"utilisation is {utilisation:.0%}"
    if utilisation < BUSY_UTILISATION:
        cause = f"though only {wait:.1%} of the time waits for data: steps are too short for the device"
        finding = f"{used}, under {BUSY_UTILISATION:.0%}, {cause}"
        return Verdict("host-bound", finding, "raise training.batch_size, and see what --profile 10 lists")
    return Verdict("compute-bound", f"{used}, over {BUSY_UTILISATION:.0%}")


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _format(value: float | None, form: str) -> str:
    return "not told" if value is None else format(value, form)

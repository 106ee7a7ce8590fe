"""What the device does while the real step runs: how busy it is, what it waits for, and a verdict by thresholds that are printed.

Without a GPU the host's part is measured all the same.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xtts_pipeline.config import Config
from xtts_pipeline.diagnosis.oscillation import Oscillation, find_oscillation
from xtts_pipeline.diagnosis.trial import StepTime, Trial, Verdict
from xtts_pipeline.nvml import Sample, Sampler
from xtts_pipeline.training.monitor import CompilationMonitor
from xtts_pipeline.training.source import Source

# A step that waits this share of its time for data has a device that starves.
STARVED_WAIT_SHARE = 0.10
# Above this share of waiting a run is told of it, though it does not starve yet.
NOTED_WAIT_SHARE = 0.05
BUSY_UTILISATION = 0.85
THRESHOLDS = {"starved: data wait over": STARVED_WAIT_SHARE, "compute-bound: utilisation over": BUSY_UTILISATION}


@dataclass(frozen=True)
class GpuReport:
    """Where the time of the steps went, what the device said meanwhile, and the verdict."""

    verdict: Verdict
    device: str | None
    no_gpu_reason: str | None
    shares: dict[str, float]
    steps: tuple[StepTime, ...]
    samples: tuple[Sample, ...]
    oscillation: Oscillation | None

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            **self.verdict.to_json(),
            "thresholds": THRESHOLDS,
            "device": self.device,
            "no_gpu_reason": self.no_gpu_reason,
            "steps": len(self.steps),
            "step_ms": 1e3 * float(np.mean([step.seconds for step in self.steps])),
            "shares": self.shares,
            "oscillation": self.oscillation and self.oscillation.to_json(),
            "gpu": device_figures(self.samples),
            "samples": [sample.to_json() for sample in self.samples],
        }

    def to_text(self) -> str:
        """Return it for people."""
        figures = device_figures(self.samples)
        lines = [f"device        {self.device or f'no GPU: {self.no_gpu_reason}; the host is looked at alone'}"]
        lines.append(f"steps         {len(self.steps)}, {1e3 * np.mean([step.seconds for step in self.steps]):.1f} ms each")
        lines.append("time          " + ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items()))
        if figures is not None:
            lines += [
                f"utilisation   {figures['utilisation']:.0%} +/- {figures['utilisation_std']:.0%}",
                f"memory        {figures['memory_mb']:.0f} MB at most",
                f"clock, power  {figures['sm_mhz']:.0f} MHz, {figures['watts']:.0f} W",
                f"throttled     {figures['throttled_share']:.0%} of the time",
                f"PCIe          {figures['pcie_mb_per_second']:.0f} MB/s",
            ]
        lines.append("thresholds    " + ", ".join(f"{name} {limit:.0%}" for name, limit in THRESHOLDS.items()))
        return "\n".join([*lines, f"verdict       {self.verdict}"])


def diagnose_gpu(source: Source, config: Config, monitor: CompilationMonitor, seconds: float) -> GpuReport:
    """Run the training step for so many seconds after it has compiled, and sample the GPU meanwhile."""
    trial = Trial(source, config, monitor)
    # Until nothing compiles for a whole round: what is judged is the run, not its beginning.
    for _ in range(len(trial.signatures) + 1):
        trial.take_step()
    steps: list[StepTime] = []
    with Sampler() as sampler:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not steps:
            steps.append(trial.take_step())
    kept = [step for step in steps if not step.is_compiling] or steps
    shares = time_shares(kept)
    oscillation = find_oscillation([sample.utilisation for sample in sampler.samples])
    reason = None if sampler.samples else sampler.reason or "no sample was taken"
    verdict = judge(shares, sampler.samples, oscillation)
    return GpuReport(verdict, sampler.device, reason, shares, tuple(kept), tuple(sampler.samples), oscillation)


def time_shares(steps: Sequence[StepTime]) -> dict[str, float]:
    """Return the shares of the time spent waiting for data, in the host, and computing."""
    total = sum(step.seconds for step in steps)
    parts = {
        "data": sum(step.wait for step in steps),
        "host": sum(step.host for step in steps),
        "compute": sum(step.compute for step in steps),
    }
    return {name: part / total for name, part in parts.items()}


def device_figures(samples: Sequence[Sample]) -> dict[str, float] | None:
    """Return means and extremes of the samples, or None without any."""
    if not samples:
        return None
    utilisation = [sample.utilisation for sample in samples]
    return {
        "utilisation": float(np.mean(utilisation)),
        "utilisation_std": float(np.std(utilisation)),
        "memory_mb": max(sample.memory_mb for sample in samples),
        "sm_mhz": float(np.mean([sample.sm_mhz for sample in samples])),
        "watts": float(np.mean([sample.watts for sample in samples])),
        "throttled_share": float(np.mean([bool(sample.throttled) for sample in samples])),
        "pcie_mb_per_second": float(np.mean([sample.pcie_mb_per_second for sample in samples])),
    }


def judge(shares: dict[str, float], samples: Sequence[Sample], oscillation: Oscillation | None) -> Verdict:
    """Return starved, oscillating, throttled, host-bound or compute-bound; the first that fits."""
    wait = shares["data"]
    look = "xtts diagnose input says why"
    if wait > STARVED_WAIT_SHARE:
        finding = f"{wait:.0%} of the time is spent waiting for data, over {STARVED_WAIT_SHARE:.0%}"
        return Verdict("starved", is_healthy=False, finding=finding, remedy=look)
    if oscillation is not None:
        finding = f"utilisation comes and goes every {oscillation.period / 10:.1f} s (spread {oscillation.spread:.0%} of its mean)"
        return Verdict("oscillating", is_healthy=False, finding=finding, remedy=f"raise data.prefetch_buffer_size; {look}")
    figures = device_figures(samples)
    if figures is None:
        finding = f"{shares['compute']:.0%} of the time computes, {wait:.1%} waits for data"
        return Verdict("compute-bound", is_healthy=True, finding=finding, remedy="")
    if figures["throttled_share"] > 0.5:
        reasons = sorted({reason for sample in samples for reason in sample.throttled})
        finding = f"{' and '.join(reasons)} held the clock down in {figures['throttled_share']:.0%} of the samples"
        return Verdict(
            "throttled", is_healthy=False, finding=finding, remedy="look at cooling and the power limit (nvidia-smi -q -d PERFORMANCE)"
        )
    used = f"utilisation is {figures['utilisation']:.0%}"
    if figures["utilisation"] < BUSY_UTILISATION:
        finding = (
            f"{used}, under {BUSY_UTILISATION:.0%}, though only {wait:.1%} of the time waits for data: steps are too short for the device"
        )
        return Verdict("host-bound", is_healthy=False, finding=finding, remedy="raise training.batch_size, and see xtts train --profile 10")
    return Verdict("compute-bound", is_healthy=True, finding=f"{used}, over {BUSY_UTILISATION:.0%}", remedy="")

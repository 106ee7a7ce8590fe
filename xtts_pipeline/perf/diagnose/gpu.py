"""What the device does while the real step runs: how busy it is, what it waits for, and a verdict by thresholds that are printed.

Without a GPU the host's part is measured all the same.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.perf.diagnose.oscillation import LEAST_SPREAD, LEAST_STRENGTH, Oscillation, find_oscillation
from xtts_pipeline.perf.diagnose.timeline import save_timeline
from xtts_pipeline.perf.trial import StepTime, Trial, Verdict
from xtts_pipeline.system.nvml import Sample, Sampler
from xtts_pipeline.system.runtime import NativeLog

# A step that waits this share of its time for data has a device that starves.
STARVED_WAIT_SHARE = 0.10
# A device whose clock is held down in so many of its samples is slow for that reason.
THROTTLED_SHARE = 0.50
BUSY_UTILISATION = 0.85
THRESHOLDS = {
    "starved: data wait over": STARVED_WAIT_SHARE,
    "oscillating: likeness after a period over": LEAST_STRENGTH,
    "oscillating: std over mean over": LEAST_SPREAD,
    "throttled: samples over": THROTTLED_SHARE,
    "compute-bound: utilisation over": BUSY_UTILISATION,
}
# Buckets take turns; a rare one may not come in so many steps for each.
_WARMUP_STEPS_A_SHAPE = 10


@dataclass(frozen=True)
class GpuReport:
    """Where the time of the steps went, what the device said meanwhile, and the verdict.

    has_gpu says whether TensorFlow computes on one, device what NVML calls it.
    """

    verdict: Verdict
    has_gpu: bool
    device: str | None
    no_gpu_reason: str | None
    shares: dict[str, float]
    steps: tuple[StepTime, ...]
    samples: tuple[Sample, ...]
    oscillation: Oscillation | None
    picture: Path | None = None

    @property
    def is_bad(self) -> bool:
        """Whether there is a GPU, and something keeps it from its work; without one, nothing can be wrong with it."""
        return (self.has_gpu or self.device is not None) and not self.verdict.is_healthy

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
            "picture": None if self.picture is None else str(self.picture),
        }

    def to_text(self) -> str:
        """Return it for people."""
        figures = device_figures(self.samples)
        lines = [f"device        {self._device_text()}"]
        lines.append(
            f"steps         {len(self.steps)}, {1e3 * np.mean([step.seconds for step in self.steps]):.1f} ms each"
        )
        lines.append("time          " + ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items()))
        if figures is not None:
            lines += [
                f"utilisation   {_told(figures['utilisation'], '.0%')} +/- {_told(figures['utilisation_std'], '.0%')}",
                f"memory        {_told(figures['memory_mb'], '.0f')} MB at most",
                f"clock, power  {_told(figures['sm_mhz'], '.0f')} MHz, {_told(figures['watts'], '.0f')} W",
                f"throttled     {_told(figures['throttled_share'], '.0%')} of the time",
                f"PCIe          {_told(figures['pcie_mb_per_second'], '.0f')} MB/s",
            ]
        if self.picture is not None:
            lines.append(f"picture       {self.picture}")
        lines.append("thresholds    " + ", ".join(f"{name} {limit:.0%}" for name, limit in THRESHOLDS.items()))
        return "\n".join([*lines, f"verdict       {self.verdict}"])

    def _device_text(self) -> str:
        if self.no_gpu_reason is None:
            return str(self.device)
        what = self.device or ("GPU" if self.has_gpu else "no GPU")
        return f"{what}: {self.no_gpu_reason}; the host is looked at alone"


def diagnose_gpu(
    log: NativeLog, cache: Path, manifest: Manifest, config: Config, *, seconds: float, plot: Path
) -> GpuReport:
    """Run the training step for so many seconds after it has compiled, sample the GPU meanwhile, and draw `plot`."""
    trial = Trial.of_cache(log, cache, manifest, config)
    shapes = sum(bool(manifest.split_records("train", bucket)) for bucket in range(len(trial.signatures)))
    # While a step compiles the device idles. What comes later, of a rare bucket, is left out of the shares, not out of the samples.
    for _ in range(_WARMUP_STEPS_A_SHAPE * shapes):
        if not trial.take_step().is_compiling and trial.step.compiled.shapes_seen == shapes:
            break
    steps: list[StepTime] = []
    with Sampler() as sampler:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not steps:
            steps.append(trial.take_step())
    kept = [step for step in steps if not step.is_compiling] or steps
    shares = time_shares(kept)
    oscillation = find_oscillation([sample.utilisation for sample in sampler.samples if sample.utilisation is not None])
    reason = None if sampler.samples else sampler.reason or "no sample was taken"
    verdict = judge(shares, sampler.samples, oscillation, has_gpu=trial.is_asynchronous)
    save_timeline(plot, kept, sampler.samples, str(verdict))
    return GpuReport(
        verdict,
        trial.is_asynchronous,
        sampler.device,
        reason,
        shares,
        tuple(kept),
        tuple(sampler.samples),
        oscillation,
        plot,
    )


def time_shares(steps: Sequence[StepTime]) -> dict[str, float]:
    """Return the shares of the time spent waiting for data, in the host, and computing."""
    total = sum(step.seconds for step in steps)
    parts = {
        "data": sum(step.wait for step in steps),
        "host": sum(step.host for step in steps),
        "compute": sum(step.compute for step in steps),
    }
    return {name: part / total for name, part in parts.items()}


def device_figures(samples: Sequence[Sample]) -> dict[str, float | None] | None:
    """Return means and extremes of the samples, each None if the device does not tell it, or None without any sample."""
    if not samples:
        return None
    utilisation = _those_told(sample.utilisation for sample in samples)
    memory = _those_told(sample.memory_mb for sample in samples)
    return {
        "utilisation": _mean(utilisation),
        "utilisation_std": float(np.std(utilisation)) if utilisation else None,
        "memory_mb": max(memory, default=None),
        "sm_mhz": _mean(_those_told(sample.sm_mhz for sample in samples)),
        "watts": _mean(_those_told(sample.watts for sample in samples)),
        "throttled_share": _mean([float(bool(sample.throttled)) for sample in samples if sample.throttled is not None]),
        "pcie_mb_per_second": _mean(_those_told(sample.pcie_mb_per_second for sample in samples)),
    }


def judge(
    shares: dict[str, float], samples: Sequence[Sample], oscillation: Oscillation | None, *, has_gpu: bool
) -> Verdict:
    """Return what the device does, by the first that fits; `has_gpu` says whether TensorFlow computes on one.

    The names are: GPU not used, starved, oscillating, unknown, throttled, host-bound, compute-bound.
    """
    wait, figures = shares["data"], device_figures(samples)
    look = "xtts diagnose input says why"
    if samples and not has_gpu:
        remedy = "pip install 'tensorflow[and-cuda]', and look at what xtts --debug prints as TensorFlow starts"
        return Verdict(
            "GPU not used",
            is_healthy=False,
            finding="NVML sees a GPU, and TensorFlow computes on the CPU",
            remedy=remedy,
        )
    if wait > STARVED_WAIT_SHARE:
        finding = f"{wait:.0%} of the time is spent waiting for data, over {STARVED_WAIT_SHARE:.0%}"
        return Verdict("starved", is_healthy=False, finding=finding, remedy=look)
    if oscillation is not None:
        seconds = oscillation.period * (samples[-1].seconds - samples[0].seconds) / (len(samples) - 1)
        finding = f"utilisation comes and goes every {seconds:.1f} s (spread {oscillation.spread:.0%} of its mean)"
        return Verdict(
            "oscillating", is_healthy=False, finding=finding, remedy=f"raise data.prefetch_buffer_size; {look}"
        )
    utilisation = None if figures is None else figures["utilisation"]
    if figures is None or utilisation is None:
        finding = f"{shares['compute']:.0%} of the time computes, {wait:.1%} waits for data"
        if not has_gpu:
            return Verdict("compute-bound", is_healthy=True, finding=finding, remedy="")
        remedy = "give it more --seconds, pip install 'xtts-pipeline[gpu]', or look at nvidia-smi dmon"
        return Verdict(
            "unknown", is_healthy=False, finding=f"{finding}; how busy the GPU is was not told", remedy=remedy
        )
    return _judge_use(utilisation, figures["throttled_share"], wait, samples)


def _judge_use(utilisation: float, throttled_share: float | None, wait: float, samples: Sequence[Sample]) -> Verdict:
    """Return the verdict on a device that is fed steadily."""
    if throttled_share is not None and throttled_share > THROTTLED_SHARE:
        reasons = sorted({reason for sample in samples for reason in sample.throttled or ()})
        finding = f"{' and '.join(reasons)} held the clock down in {throttled_share:.0%} of the samples"
        return Verdict(
            "throttled",
            is_healthy=False,
            finding=finding,
            remedy="look at cooling and the power limit (nvidia-smi -q -d PERFORMANCE)",
        )
    used = f"utilisation is {utilisation:.0%}"
    if utilisation < BUSY_UTILISATION:
        finding = f"{used}, under {BUSY_UTILISATION:.0%}, though only {wait:.1%} of the time waits for data: steps are too short for the device"
        return Verdict(
            "host-bound",
            is_healthy=False,
            finding=finding,
            remedy="raise training.batch_size, and see xtts train --profile 10",
        )
    return Verdict("compute-bound", is_healthy=True, finding=f"{used}, over {BUSY_UTILISATION:.0%}", remedy="")


def _those_told(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _told(value: float | None, form: str) -> str:
    return "not told" if value is None else format(value, form)

"""Show the cost of varying shapes on a small network: clips padded to one length, and to the longest of each batch."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig, ModelConfig, TrainingConfig
from xtts_pipeline.data.batching import batch_signature
from xtts_pipeline.model.architecture import NetworkSizes
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.network import Network
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.text.tokens import FIRST_SYMBOL_ID
from xtts_pipeline.training.acoustic.step import AcousticStep

_SYMBOLS = 30
_SPEC = RecordSpec(max_text_length=40, max_mel_frames=120, mel_bins=20, pad_value=-11.5)
_MODEL = ModelConfig(
    width=32,
    heads=2,
    encoder_layers=1,
    decoder_layers=1,
    feedforward_width=64,
    flow_layers=1,
    voice_latents=0,
)
# Frames of the longest clip of each batch. More lengths would take over a minute.
_LONGEST = (120, 96, 120, 72, 96, 120, 72, 120)
_ROWS = 4


@dataclass(frozen=True)
class DemonstrationRun:
    """The step times, traces and compilations of one run."""

    traces: int
    compilations: int
    step_ms: list[float]
    seconds: float


@dataclass(frozen=True)
class Demonstration:
    """Fixed and varying shapes side by side."""

    fixed: DemonstrationRun
    varying: DemonstrationRun

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs."""
        return asdict(self)

    def to_text(self) -> str:
        """Return both runs for people, a line a step."""
        lines = [f"{'step':>4}  {'padded to one length':>24}  {'to the longest of each batch':>30}"]
        for number, (fixed, varying) in enumerate(zip(self.fixed.step_ms, self.varying.step_ms, strict=True), start=1):
            lines.append(f"{number:>4}  {fixed:>21.0f} ms  {varying:>27.0f} ms")
        rows = [
            ("traces", f"{self.fixed.traces}", f"{self.varying.traces}"),
            ("compilations", f"{self.fixed.compilations}", f"{self.varying.compilations}"),
            ("seconds", f"{self.fixed.seconds:.1f}", f"{self.varying.seconds:.1f}"),
        ]
        return "\n".join([*lines, *(f"{word:<13}{fixed:>14}  {varying:>28}" for word, fixed, varying in rows)])


def demonstrate(log: NativeLog) -> Demonstration:
    """Run with fixed and with varying shapes, each with a new network."""
    return Demonstration(_run(log, is_varying=False), _run(log, is_varying=True))


def _run(log: NativeLog, *, is_varying: bool) -> DemonstrationRun:
    settings = TrainingConfig(batch_size=_ROWS, strict_shapes=not is_varying)
    audio, sizes = AudioConfig(mel_bins=_SPEC.mel_bins), NetworkSizes(_SPEC, _SYMBOLS)
    network, average = (Network(_MODEL, audio, sizes, seed=1) for _ in range(2))
    step = AcousticStep(network, average, settings, [batch_signature(_SPEC, _ROWS)])
    before = log.compilations().get("_train_step", 0)
    times = []
    for longest in _LONGEST:
        batch = _batch(longest, longest if is_varying else _SPEC.max_mel_frames)
        started = time.perf_counter()
        step(batch).numpy()
        times.append(1e3 * (time.perf_counter() - started))
    traces = sum(function.experimental_get_tracing_count() for function in step.compiled.functions)
    compilations = log.compilations()["_train_step"] - before
    return DemonstrationRun(traces, compilations, [round(ms, 1) for ms in times], sum(times) / 1e3)


def _batch(longest: int, padded: int) -> Batch:
    random = np.random.default_rng(longest)
    frames = np.full(_ROWS, longest // 2, np.int32)
    frames[0] = longest
    return Batch(
        tokens=tf.constant(random.integers(FIRST_SYMBOL_ID, _SYMBOLS, (_ROWS, _SPEC.max_text_length)), tf.int32),
        mel=tf.constant(random.normal(-5.0, 1.0, (_ROWS, padded, _SPEC.mel_bins)), tf.float16),
        text_length=tf.fill([_ROWS], _SPEC.max_text_length),
        mel_length=tf.constant(frames),
    )

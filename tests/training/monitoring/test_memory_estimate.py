"""The estimate of a run's memory: its parts against XLA's, and how they grow."""

import pytest

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, ModelConfig, TrainingConfig
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count
from xtts_pipeline.training.checks import AUTO_SHARE, GPU_RESERVED_BYTES
from xtts_pipeline.training.monitoring.memory_estimate import (
    FLOAT_BYTES,
    MemoryEstimate,
    estimate_memory,
    row_bytes,
)

SPEECH = RecordSpec(200, 880, 80, -11.5)


def test_the_bytes_of_a_row_equal_xlas() -> None:
    # XLA's live buffers at the peak of a compiled step grow so from 4 rows to 8 (TensorFlow 2.21, CPU, float32).
    megabytes = 195.6
    assert 4 * row_bytes(ModelConfig(), SPEECH, "float32") == pytest.approx(megabytes * 1e6, rel=0.02)


def test_half_precision_needs_between_half_and_all_of_the_memory() -> None:
    full, half = (row_bytes(ModelConfig(), SPEECH, precision) for precision in ("float32", "bfloat16"))
    assert row_bytes(ModelConfig(), SPEECH, "float16") == half
    assert full / 2 < half < full


def test_remat_saves_more_memory_in_deeper_networks() -> None:
    def saved(layers: int) -> float:
        kept, again = (
            ModelConfig(decoder_layers=layers, encoder_layers=layers, remat=is_recomputed)
            for is_recomputed in (False, True)
        )
        return row_bytes(again, SPEECH, "float32") / row_bytes(kept, SPEECH, "float32")

    assert saved(2) > saved(4) > saved(8)
    assert saved(8) < 0.4


def estimate(specs: tuple[RecordSpec, ...] = (SPEECH,), *, is_gpu: bool = False, **training: object) -> MemoryEstimate:
    config = Config(training=TrainingConfig(**training))
    return estimate_memory(config, NetworkSizes(specs[-1], 64), specs, is_gpu=is_gpu, data_bytes=1_000)


def test_the_total_grows_with_the_rows() -> None:
    found = estimate()
    assert found.total_bytes(5) - found.total_bytes(3) == 2 * row_bytes(ModelConfig(), SPEECH, "float32")
    assert found.total_bytes(found.most_rows(4 << 30)) <= 4 << 30 < found.total_bytes(found.most_rows(4 << 30) + 1)
    assert found.most_rows(found.total_bytes(1) - 1) == 0
    assert found.most_rows(0) == 0


def test_gpu_memory_has_neither_the_process_nor_the_data() -> None:
    machine, gpu = estimate(), estimate(is_gpu=True)
    assert (gpu.process_bytes, gpu.data_bytes) == (0, 0)
    assert (gpu.network_bytes, gpu.row_bytes) == (machine.network_bytes, round(1.26 * machine.row_bytes))
    assert machine.data_bytes == 1_000


def test_gradient_accumulation_costs_two_more_gradients() -> None:
    weights = FLOAT_BYTES * parameter_count(ModelConfig(), NetworkSizes(SPEECH, 64))
    whole, parts = estimate(), estimate(accumulation_steps=4)
    assert parts.network_bytes - whole.network_bytes == pytest.approx(2 * weights, abs=1)


def test_the_most_expensive_bucket_decides() -> None:
    # Long texts in short clips: twice as many rows, each with full attention to the text.
    wide = RecordSpec(200, 440, 80, -11.5)
    assert estimate((wide, SPEECH)).row_bytes == 2 * row_bytes(ModelConfig(), wide, "float32") > estimate().row_bytes
    assert estimate((RecordSpec(20, 440, 80, -11.5), SPEECH)).row_bytes == estimate().row_bytes


@pytest.mark.parametrize(
    ("name", "model", "gigabytes"),
    [
        ("rtx3060", "base", 12),
        ("rtx3090", "base", 24),
        ("rtx4090", "base", 24),
        ("a100", "large", 40),
        ("h200", "large", 139),
    ],
)
def test_the_batch_of_a_gpu_preset_fits_and_twice_as_many_rows_do_not(name: str, model: str, gigabytes: int) -> None:
    config = load_config(["ljspeech", model, f"hardware/{name}"])
    found = estimate_memory(config, NetworkSizes(SPEECH, 80), (SPEECH,), is_gpu=True, data_bytes=0)
    rows = config.training.clips_per_batch // config.training.accumulation_steps
    most = found.most_rows(round(AUTO_SHARE * ((gigabytes << 30) - GPU_RESERVED_BYTES)))
    assert rows <= most
    assert 2 * rows > most or config.training.clips_per_batch == 256

"""The estimate of a training's memory: its parts against the network itself, and how they grow."""

import pytest

from tests.model.conftest import MODEL, SPEC, SYMBOL_COUNT
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config, ModelConfig, TrainingConfig
from xtts_pipeline.model.network import Network
from xtts_pipeline.training.checks import AUTO_SHARE, GPU_RESERVED_BYTES
from xtts_pipeline.training.monitoring.memory_estimate import (
    FLOAT_BYTES,
    MemoryEstimate,
    NetworkSizes,
    estimate_memory,
    parameter_count,
    row_bytes,
)

SPEECH = RecordSpec(200, 880, 80, -11.5)


@pytest.mark.parametrize(
    "change", [{}, {"voice_latents": 0}, {"postnet_layers": 0}, {"postnet_layers": 1}, {"voice_layers": 2, "heads": 4}]
)
@pytest.mark.parametrize("names", [(1, 1), (3, 2)])
def test_parameters_are_counted_as_the_network_has_them(change: dict[str, int], names: tuple[int, int]) -> None:
    model = MODEL.model_copy(update=change)
    network = Network(model, SPEC, SYMBOL_COUNT, *names)
    assert parameter_count(model, NetworkSizes(SPEC, SYMBOL_COUNT, *names)) == network.parameter_count


# What XLA's buffer assignment had live at the peak of a compiled step, less what goes with each weight (TensorFlow 2.21, CPU, float32).
@pytest.mark.parametrize(
    ("model", "spec", "rows", "megabytes"),
    [
        (
            {
                "encoder_layers": 2,
                "decoder_layers": 3,
                "postnet_layers": 4,
                "postnet_width": 120,
                "prenet_width": 112,
                "reference_frames": 250,
            },
            RecordSpec(192, 880, 80, -11.5),
            12,
            502.9,
        ),
        ({}, SPEECH, 4, 220.6),
    ],
)
def test_a_row_keeps_what_xla_keeps(model: dict[str, int], spec: RecordSpec, rows: int, megabytes: float) -> None:
    assert rows * row_bytes(ModelConfig(**model), spec, "float32") == pytest.approx(megabytes * 1e6, rel=0.02)


def test_half_the_bits_need_between_half_and_all_of_the_memory() -> None:
    full, half = (row_bytes(ModelConfig(), SPEECH, precision) for precision in ("float32", "bfloat16"))
    assert row_bytes(ModelConfig(), SPEECH, "float16") == half
    assert full / 2 < half < full


def test_layers_that_are_made_again_keep_little_and_the_deeper_the_network_the_less() -> None:
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


def test_the_whole_grows_with_the_rows_alone() -> None:
    found = estimate()
    assert found.total_bytes(5) - found.total_bytes(3) == 2 * row_bytes(ModelConfig(), SPEECH, "float32")
    assert found.total_bytes(found.most_rows(4 << 30)) <= 4 << 30 < found.total_bytes(found.most_rows(4 << 30) + 1)
    assert found.most_rows(found.total_bytes(1) - 1) == 0
    assert found.most_rows(0) == 0


def test_a_gpu_holds_neither_the_process_nor_the_data() -> None:
    machine, gpu = estimate(), estimate(is_gpu=True)
    assert (gpu.process_bytes, gpu.data_bytes) == (0, 0)
    assert (gpu.network_bytes, gpu.row_bytes) == (machine.network_bytes, machine.row_bytes)
    assert machine.data_bytes == 1_000


def test_parts_of_a_batch_cost_two_more_gradients() -> None:
    weights = FLOAT_BYTES * parameter_count(ModelConfig(), NetworkSizes(SPEECH, 64))
    whole, parts = estimate(), estimate(accumulation_steps=4)
    assert parts.network_bytes - whole.network_bytes == pytest.approx(2 * weights, abs=1)


def test_the_costliest_bucket_decides() -> None:
    # Long texts in short clips: twice as many rows, each with all of the attention to the text.
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
def test_the_batch_of_a_gpu_s_preset_fits_by_the_estimate_and_twice_as_much_would_not(
    name: str, model: str, gigabytes: int
) -> None:
    config = load_config(["ljspeech", model, f"hardware/{name}"])
    found = estimate_memory(config, NetworkSizes(SPEECH, 80), (SPEECH,), is_gpu=True, data_bytes=0)
    rows = config.training.clips_per_batch // config.training.accumulation_steps
    most = found.most_rows(round(AUTO_SHARE * ((gigabytes << 30) - GPU_RESERVED_BYTES)))
    assert rows <= most
    assert 2 * rows > most or config.training.clips_per_batch == 256

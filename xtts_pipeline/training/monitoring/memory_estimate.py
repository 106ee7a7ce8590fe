"""Estimate a run's peak memory from the sizes of its network and of a batch.

Imports no TensorFlow, so `xtts train` refuses a batch that is too large within a moment. The arrays that wait for the
backward pass were counted in XLA's list of live buffers at the peak of a compiled step, float32, on a CPU.
`benchmarks/memory.py` compares the estimate with XLA and the operating system.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config, ModelConfig
from xtts_pipeline.model.architecture import NetworkSizes, parameter_count

FLOAT_BYTES = 4
# Arrays as large as the weights: the weights, their EMA and AdamW's two moments, updated in place.
STATES = 4
# Copies of weights that keep the old value readable while the new one is written.
COPIES = 1.2
# Arrays as wide as the network that a part of a layer keeps. Attention keeps its centred and its normalised input,
# query, key, value and mixture. Centred inputs are float32.
SELF_ATTENTION, FEEDFORWARD = 6, 2
# TensorFlow with XLA's compiler, and what compiling each part of a layer leaves behind: for the first shape, and for
# each further shape. Fitted to the resident memory of a run of one shape and of six runs of three.
PROCESS_BYTES, PART_BYTES, FURTHER_PART_BYTES = 1_350_000_000, 27_000_000, 44_000_000
# A row takes this much more on a GPU than on a CPU. Measured once, on an H100: docs/benchmarks/gpu.md.
GPU_ROW_FACTOR = 1.26


@dataclass(frozen=True)
class MemoryEstimate:
    """The peak memory of a run in bytes.

    process_bytes: TensorFlow and its compiled programs. network_bytes: the weights and all arrays of their size.
    data_bytes: records that the input pipeline holds.
    row_bytes: one row of the largest shape, of the whole batch or of one part with gradient accumulation.
    """

    process_bytes: int
    network_bytes: int
    data_bytes: int
    row_bytes: int

    def total_bytes(self, rows: int) -> int:
        """Return the bytes of a run with this many rows at once."""
        return self.process_bytes + self.network_bytes + self.data_bytes + rows * self.row_bytes

    def most_rows(self, available_bytes: int) -> int:
        """Return the largest number of rows at once that fits; 0 if not even one does."""
        return max(available_bytes - self.total_bytes(0), 0) // self.row_bytes


def estimate_memory(
    config: Config, sizes: NetworkSizes, specs: Sequence[RecordSpec], *, is_gpu: bool, data_bytes: int
) -> MemoryEstimate:
    """Return the memory that training on records of these shapes, the largest last, needs on a GPU or on the machine.

    `data_bytes`: the records that the input pipeline holds. They and the process itself take no GPU memory.
    """
    model, training = config.model, config.training
    # Gradient accumulation keeps two gradients: the sum and that of the current part.
    gradients = 0 if training.accumulation_steps == 1 else 2
    network = round((STATES + COPIES + gradients) * FLOAT_BYTES * parameter_count(model, sizes))
    # A bucket of shorter clips has more rows, by the ratio of frames.
    row = max(
        row_bytes(model, spec, training.product_type) * specs[-1].max_mel_frames / spec.max_mel_frames for spec in specs
    )
    if is_gpu:
        return MemoryEstimate(0, network, 0, round(GPU_ROW_FACTOR * row))
    return MemoryEstimate(process_bytes(model, len(specs)), network, data_bytes, round(row))


def process_bytes(model: ModelConfig, shapes: int) -> int:
    """Return the memory of TensorFlow and of the programs compiled for this many shapes, without any batch."""
    encoder_layers = model.encoder_layers + (model.voice_layers if model.voice_latents else 0)
    parts = 2 * encoder_layers + model.decoder_layers + model.flow_layers
    return PROCESS_BYTES + parts * (PART_BYTES + FURTHER_PART_BYTES * (shapes - 1))


def row_bytes(model: ModelConfig, spec: RecordSpec, precision: str) -> int:
    """Return the bytes that one row of this shape keeps until the backward pass ends.

    Products have the type of `training.precision`; sums, comparisons and normalised values are float32. With
    `model.remat` a layer keeps only its input, and one layer at a time keeps the rest.
    """
    symbols, width, bins, latents = spec.max_text_length, model.width, spec.mel_bins, model.voice_latents
    reference = min(model.reference_frames, spec.max_mel_frames) if latents else 0
    narrow = FLOAT_BYTES if precision == "float32" else FLOAT_BYTES // 2
    # For each layer: all that it keeps, and its input alone.
    layers = [(_encoder_layer_bytes(model, symbols, symbols, narrow), narrow * symbols * width)] * model.encoder_layers
    if latents:
        joined = 3 * narrow * (reference + latents) * width
        voice = _encoder_layer_bytes(model, latents, reference + latents, narrow) + joined
        layers += [(voice, narrow * latents * width)] * model.voice_layers
    steps = -(-spec.max_mel_frames // model.frames_per_step)
    frames, blocks = steps * model.frames_per_step, model.decoder_layers + model.flow_layers
    layers += [(_frame_block_bytes(model, steps, narrow), narrow * steps * width)] * blocks
    # Most is kept when the backward pass begins, in the last blocks.
    products = ((7 if model.flow_layers else 4) * steps + 8 * symbols + 4 * reference) * width
    # The GELU of one block, computed again.
    products += 2 * steps * model.feedforward_width
    sums = (frames + reference) * bins + steps * symbols
    outside = narrow * products + FLOAT_BYTES * sums
    if not model.remat:
        return outside + sum(kept for kept, _ in layers)
    return outside + sum(entry for _, entry in layers) + max(kept for kept, _ in layers)


def _encoder_layer_bytes(model: ModelConfig, positions: int, attended: int, narrow: int) -> int:
    """Return the bytes that a layer keeps of one row whose `positions` attend to `attended` positions."""
    centred = 2 * positions * model.width
    products = (SELF_ATTENTION + FEEDFORWARD) * positions * model.width - centred
    products += 2 * positions * model.feedforward_width
    return narrow * products + FLOAT_BYTES * (centred + model.heads * positions * attended)


def _frame_block_bytes(model: ModelConfig, steps: int, narrow: int) -> int:
    """Return the bytes that a ConvNeXt block of the decoder keeps of one row."""
    # The padded input, the convolution and the output; and the input of the GELU.
    return narrow * steps * (3 * model.width + model.feedforward_width)

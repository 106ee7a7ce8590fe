"""How much memory a training needs, before anything is traced: by the sizes of its network and of a batch.

Knows no TensorFlow, so `xtts train` can say in a moment what would fail after minutes. How many arrays of which shape wait for the
backward pass was counted in XLA's own list of what is live at the peak of a compiled step, float32, on a CPU. `benchmarks/memory.py`
holds the estimate against what XLA and the operating system say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import Config, ModelConfig

FLOAT_BYTES = 4
# Weights, their average and AdamW's two moments; updated in place.
STATES = 4
# What else goes with each weight: copies made so that the old value can be read while the new one is written.
COPIES = 1.2
TEXT_TAPS = REFERENCE_TAPS = POSTNET_TAPS = 5
ALIGNER_WIDTH, ALIGNER_TAPS = 128, 3
GUIDED_LAYERS = 2
# Arrays as wide as the network that a part of a layer keeps: attention its centred and normalised input, query, key, value and mixture;
# where keys and values are of something else they are counted there. The centred input is float32 always.
SELF_ATTENTION, CROSS_ATTENTION, FEEDFORWARD = 6, 4, 2
# TensorFlow with XLA's compiler; what that takes for each part of a layer of the first shape's programs and leaves behind, and for each of
# a further shape, which finds some of it free again. Fitted to the resident memory of three trainings.
PROCESS_BYTES, PART_BYTES, FURTHER_PART_BYTES = 1_350_000_000, 27_000_000, 21_000_000


@dataclass(frozen=True)
class NetworkSizes:
    """What of a cache decides the size of a network: the shape of its largest records, symbols, speakers and languages."""

    spec: RecordSpec
    symbols: int
    speakers: int = 1
    languages: int = 1


def parameter_count(model: ModelConfig, sizes: NetworkSizes) -> int:
    """Return how many numbers are trained, as `Network.parameter_count` does of a network that has been built."""
    width, bins, prenet, latents = model.width, sizes.spec.mel_bins, model.prenet_width, model.voice_latents
    attention, norm = 4 * (width * width + width), 2 * width
    feedforward = 2 * width * model.feedforward_width + model.feedforward_width + width
    encoder_layer = attention + feedforward + 2 * norm
    looks = 3 if latents else 2
    emitted = model.frames_per_step * bins
    text_encoder = (
        sizes.symbols * width + TEXT_TAPS * width * width + width + 1 + model.encoder_layers * encoder_layer + norm
    )
    decoder = bins * prenet + prenet + prenet * prenet + prenet + prenet * width + width + 1
    decoder += model.decoder_layers * (looks * attention + feedforward + (looks + 1) * norm) + norm
    decoder += width + 1 + 2 * (width * width + width + width * emitted + emitted)
    voice = (
        bins * width + width + REFERENCE_TAPS * width * width + width + 2 * norm + model.voice_layers * encoder_layer
    )
    voice += 2 * latents * width
    aligner = (
        sizes.symbols * ALIGNER_WIDTH + ALIGNER_TAPS * ALIGNER_WIDTH**2 + ALIGNER_WIDTH + ALIGNER_WIDTH * bins + bins
    )
    names = sum(count * width for count in (sizes.speakers, sizes.languages) if count > 1)
    return text_encoder + decoder + _postnet_parameters(model, bins) + (voice if latents else 0) + aligner + names


def _postnet_parameters(model: ModelConfig, bins: int) -> int:
    if not model.postnet_layers:
        return 0
    widths = [bins, *[model.postnet_width] * (model.postnet_layers - 1), bins]
    convolutions = sum(POSTNET_TAPS * inputs * outputs + outputs for inputs, outputs in pairwise(widths))
    return convolutions + 2 * sum(widths[1:-1])


def row_bytes(model: ModelConfig, spec: RecordSpec, precision: str) -> int:
    """Return what one row of a batch of this shape keeps until the backward pass is over.

    What is multiplied has the type of `training.precision`; what is summed, compared or normalised is float32. With `model.remat` a layer
    keeps what comes into it, and one layer at a time all the rest.
    """
    symbols, width, bins, latents = spec.max_text_length, model.width, spec.mel_bins, model.voice_latents
    steps = -(-spec.max_mel_frames // model.frames_per_step)
    frames = steps * model.frames_per_step
    reference = min(model.reference_frames, spec.max_mel_frames) if latents else 0
    narrow = FLOAT_BYTES if precision == "float32" else FLOAT_BYTES // 2
    layers = [(_encoder_layer_bytes(model, symbols, symbols, narrow), narrow * symbols * width)] * model.encoder_layers
    if latents:
        joined = 3 * narrow * (reference + latents) * width
        voice = _encoder_layer_bytes(model, latents, reference + latents, narrow) + joined
        layers += [(voice, narrow * latents * width)] * model.voice_layers
    layers += [(_decoder_layer_bytes(model, steps, symbols, narrow), narrow * steps * width)] * model.decoder_layers
    multiplied = (6 * steps + 5 * symbols + 4 * reference) * width + 4 * steps * model.prenet_width
    multiplied += 3 * frames * model.postnet_width * max(model.postnet_layers - 1, 0)
    summed = 7 * frames * bins + reference * bins + 4 * steps * symbols + spec.max_mel_frames * symbols
    around = narrow * multiplied + FLOAT_BYTES * summed
    if not model.remat:
        return around + sum(kept for kept, _ in layers)
    guided = FLOAT_BYTES * model.heads * steps * symbols * min(GUIDED_LAYERS, model.decoder_layers)
    return around + sum(entry for _, entry in layers) + max(kept for kept, _ in layers) + guided


def _encoder_layer_bytes(model: ModelConfig, positions: int, seen: int, narrow: int) -> int:
    """Return what a layer keeps of one row that looks from so many positions at `seen` of them."""
    centred = 2 * positions * model.width
    multiplied = (
        (SELF_ATTENTION + FEEDFORWARD) * positions * model.width - centred + 2 * positions * model.feedforward_width
    )
    return narrow * multiplied + FLOAT_BYTES * (centred + model.heads * positions * seen)


def _decoder_layer_bytes(model: ModelConfig, steps: int, symbols: int, narrow: int) -> int:
    """Return what a layer keeps of one row: it looks at its own steps, at the text and, where there are any, at the voice's latents."""
    crossings, latents = (2, model.voice_latents) if model.voice_latents else (1, 0)
    centred = (2 + crossings) * steps * model.width
    multiplied = (SELF_ATTENTION + crossings * CROSS_ATTENTION + FEEDFORWARD) * steps * model.width - centred
    multiplied += 2 * (symbols + latents) * model.width + 2 * steps * model.feedforward_width
    return narrow * multiplied + FLOAT_BYTES * (centred + model.heads * steps * (steps + symbols + latents))


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes that a training takes at its peak.

    row_bytes are those of a row of the largest shape in a batch, or in a part of it where it is gone through in parts; the others are
    the same for any batch: TensorFlow and its compiled programs, the network with all that goes with each weight, records that wait.
    """

    process_bytes: int
    network_bytes: int
    data_bytes: int
    row_bytes: int

    def total_bytes(self, rows: int) -> int:
        """Return what a training takes that goes through so many rows at once."""
        return self.process_bytes + self.network_bytes + self.data_bytes + rows * self.row_bytes

    def most_rows(self, available_bytes: int) -> int:
        """Return how many rows at once fit into the memory; 0 if not even one does."""
        return max(available_bytes - self.total_bytes(0), 0) // self.row_bytes


def estimate_memory(
    config: Config, sizes: NetworkSizes, specs: Sequence[RecordSpec], *, is_gpu: bool, data_bytes: int
) -> MemoryEstimate:
    """Return what training on records of these shapes, the largest last, takes of a GPU's memory or of the machine's.

    data_bytes are those of the records that the input pipeline holds; they and the process itself are no concern of a GPU's memory.
    """
    model, training = config.model, config.training
    # Of a gradient that is summed up over parts there are two: the sum, and that of the part at hand.
    gradients = 0 if training.accumulation_steps == 1 else 2
    network = round((STATES + COPIES + gradients) * FLOAT_BYTES * parameter_count(model, sizes))
    # A smaller shape has as many more rows as its frames are fewer.
    row = max(
        row_bytes(model, spec, training.precision) * specs[-1].max_mel_frames / spec.max_mel_frames for spec in specs
    )
    if is_gpu:
        return MemoryEstimate(0, network, 0, round(row))
    return MemoryEstimate(process_bytes(model, len(specs)), network, data_bytes, round(row))


def process_bytes(model: ModelConfig, shapes: int) -> int:
    """Return what TensorFlow and the programs compiled for so many shapes take of the machine's memory, whatever the batch."""
    looks = 4 if model.voice_latents else 3
    encoder_layers = model.encoder_layers + (model.voice_layers if model.voice_latents else 0)
    parts = 2 * encoder_layers + looks * model.decoder_layers + model.postnet_layers
    return PROCESS_BYTES + parts * (PART_BYTES + FURTHER_PART_BYTES * (shapes - 1))

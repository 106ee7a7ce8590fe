"""Fixed sizes of the network, which no setting changes, and its number of parameters.

Imports no TensorFlow, so a run's memory can be estimated before TensorFlow is imported.
"""

from dataclasses import dataclass
from itertools import pairwise

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import ModelConfig

TEXT_TAPS = REFERENCE_TAPS = POSTNET_TAPS = 5
# A token and its neighbours: too few to learn the sound of a neighbour's neighbour.
ALIGNER_WIDTH, ALIGNER_TAPS = 128, 3
# Guided heads, which losses make follow the text: the first two of the upper two layers. The others are free.
GUIDED_LAYERS, GUIDED_HEADS = 2, 2


@dataclass(frozen=True)
class NetworkSizes:
    """The sizes of a network that come from the cache: its largest records, symbols, speakers and languages."""

    spec: RecordSpec
    symbols: int
    speakers: int = 1
    languages: int = 1


def parameter_count(model: ModelConfig, sizes: NetworkSizes) -> int:
    """Return the number of trained parameters, equal to `Network.parameter_count` of the built network."""
    width, bins, prenet, latents = model.width, sizes.spec.mel_bins, model.prenet_width, model.voice_latents
    attention, norm = 4 * _dense(width, width), 2 * width
    feedforward = _dense(width, model.feedforward_width) + _dense(model.feedforward_width, width)
    encoder_layer = attention + feedforward + 2 * norm
    attentions = 3 if latents else 2
    decoder_layer = attentions * attention + feedforward + (attentions + 1) * norm
    position_scale = 1
    text_encoder = sizes.symbols * width + _convolution(TEXT_TAPS, width, width) + position_scale
    text_encoder += model.encoder_layers * encoder_layer + norm
    decoder = _dense(bins, prenet) + _dense(prenet, prenet) + _dense(prenet, width)
    decoder += _dense(width, width) + position_scale + model.decoder_layers * decoder_layer + norm
    decoder += 2 * _dense(width, model.frames_per_step * bins) + _dense(width, width) + _dense(width, 1)
    voice = _dense(bins, width) + _convolution(REFERENCE_TAPS, width, width) + 2 * norm
    voice += model.voice_layers * encoder_layer + 2 * latents * width
    aligner = sizes.symbols * ALIGNER_WIDTH + _convolution(ALIGNER_TAPS, ALIGNER_WIDTH, ALIGNER_WIDTH)
    aligner += _dense(ALIGNER_WIDTH, bins)
    names = sum(count * width for count in (sizes.speakers, sizes.languages) if count > 1)
    return text_encoder + decoder + _postnet(model, bins) + (voice if latents else 0) + aligner + names


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _convolution(taps: int, inputs: int, outputs: int) -> int:
    return (taps * inputs + 1) * outputs


def _postnet(model: ModelConfig, bins: int) -> int:
    if not model.postnet_layers:
        return 0
    widths = [bins, *[model.postnet_width] * (model.postnet_layers - 1), bins]
    norms = 2 * sum(widths[1:-1])
    return sum(_convolution(POSTNET_TAPS, inputs, outputs) for inputs, outputs in pairwise(widths)) + norms

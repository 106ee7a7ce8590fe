"""Fixed sizes and values of the network, which no setting changes, and its number of parameters.

Imports no TensorFlow, so a run's memory can be estimated before TensorFlow is imported.
"""

import math
from dataclasses import dataclass

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import ModelConfig

TEXT_TAPS = REFERENCE_TAPS = 5
CONVNEXT_TAPS = 7
# The predictor of durations, energies and pitches: two convolutions.
PREDICTOR_TAPS = 3
# Where a frame lies in its token: its distance from both ends, in token lengths, and the token's log duration.
PLACE_FEATURES = 3
# A token has these features: energy, voicing, octaves, and the harmonics of its pitch at as many frequencies.
HARMONIC_FEATURES = 64
PROSODY_FEATURES = 3 + HARMONIC_FEATURES
# Sines and cosines of the flow's time.
FLOW_TIME_FEATURES = 64
# A token and its neighbours: too few to learn the sound of a neighbour's neighbour.
ALIGNER_WIDTH, ALIGNER_TAPS = 128, 3
# Weights of a frame and its neighbours: about a Gaussian with a standard deviation of 1.4 frames. Frames of one sound
# differ too, such as by single pulses of a low voice. Paths that follow these differences give many tokens one frame.
ALIGNER_SMOOTHING = tuple(math.comb(8, place) / 2**8 for place in range(9))
# In paths, errors above it count alike; the loss counts them whole. A silent frame is far from every token of speech,
# with an error of up to 3. So a pause that the text does not show would decide on the path, and squeeze the words
# beside it into a few frames.
ALIGNER_LARGEST_ERROR = 0.3


@dataclass(frozen=True)
class NetworkSizes:
    """The sizes of a network that come from the cache: its largest records, symbols, speakers and languages.

    symbols: the size of the token table, with pad, begin and end.
    """

    spec: RecordSpec
    symbols: int
    speakers: int = 1
    languages: int = 1


def parameter_count(model: ModelConfig, sizes: NetworkSizes) -> int:
    """Return the number of trained parameters, equal to `Network.parameter_count` of the built network."""
    width, bins, latents = model.width, sizes.spec.mel_bins, model.voice_latents
    attention, norm = 4 * _dense(width, width), 2 * width
    encoder_layer = attention + _feedforward(model) + 2 * norm
    position_scale = 1
    text_encoder = sizes.symbols * width + _convolution(TEXT_TAPS, width, width) + position_scale
    text_encoder += model.encoder_layers * encoder_layer + norm
    voice = _dense(bins, width) + _convolution(REFERENCE_TAPS, width, width) + 2 * norm
    voice += model.voice_layers * encoder_layer + 2 * latents * width
    aligner = sizes.symbols * ALIGNER_WIDTH + _convolution(ALIGNER_TAPS, ALIGNER_WIDTH, ALIGNER_WIDTH)
    aligner += _dense(ALIGNER_WIDTH, bins)
    aligner += width * ALIGNER_WIDTH if latents or sizes.speakers > 1 else 0
    names = sum(count * width for count in (sizes.speakers, sizes.languages) if count > 1)
    return text_encoder + _decoder(model, bins) + (voice if latents else 0) + aligner + names


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _convolution(taps: int, inputs: int, outputs: int) -> int:
    return (taps * inputs + 1) * outputs


def _feedforward(model: ModelConfig) -> int:
    return _dense(model.width, model.feedforward_width) + _dense(model.feedforward_width, model.width)


def _decoder(model: ModelConfig, bins: int) -> int:
    width, norm, step = model.width, 2 * model.width, model.frames_per_step * bins
    voice = _dense(width, width) if model.voice_latents else 0
    predictor = 2 * (_convolution(PREDICTOR_TAPS, width, width) + norm) + _dense(width, 4)
    # Depthwise weights and bias, and the scale of the residual.
    block = (CONVNEXT_TAPS + 2) * width + norm + _feedforward(model)
    frames = _dense(PLACE_FEATURES, width) + model.decoder_layers * block + norm + _dense(width, step)
    flow = _dense(step, width) + _dense(width, width) + _dense(FLOW_TIME_FEATURES, width) + width
    flow += model.flow_layers * block + norm + _dense(width, step)
    return voice + predictor + _dense(PROSODY_FEATURES, width) + frames + (flow if model.flow_layers else 0)

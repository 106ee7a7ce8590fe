"""Export a trained vocoder as an ONNX file, which runs without TensorFlow and without this package.

The graph is built from the generator's layers. tf2onnx would fix the number of frames, since the generator's shapes
are static, and the layers are a short list of operations, all of which ONNX has.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from xtts_pipeline import __version__
from xtts_pipeline.audio.mel import hann_window
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import OutputError, output_errors
from xtts_pipeline.inference.export.report import Export
from xtts_pipeline.inference.vocoders import MEL_SETTINGS
from xtts_pipeline.model.architecture import CONVNEXT_TAPS as TAPS
from xtts_pipeline.model.batch import MEL_CENTRE, MEL_SCALE
from xtts_pipeline.model.convnext import ConvNextBlock
from xtts_pipeline.model.layers import NORM_EPSILON, Dense, LayerNorm
from xtts_pipeline.model.pitch import (
    CANDIDATES_PER_OCTAVE,
    LEAST_BEND,
    LEAST_DIFFERENCE,
    LEAST_POWER,
    MULTIPLE_SHARE,
    MULTIPLE_SHIFTS,
    REFERENCE_HZ,
    SQUARED_OCTAVE_COST,
    PitchFinder,
)
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint, load_generator
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.vocoder.generator import (
    LEAST_LOG_MAGNITUDE,
    LEAST_MEL_MAGNITUDE,
    Generator,
)
from xtts_pipeline.vocoder.griffin_lim import TINY, window_squares
from xtts_pipeline.vocoder.harmonic_phase import SMOOTHING_REACH, HarmonicPhase

# The first with `Gelu`, which takes a fifth less time than the same in simpler operations.
OPSET = 20
# Frames of the mel on which the file and the generator are compared.
COMPARED_FRAMES, SILENT_FRAMES = 60, 15
# As loud as speech: samples are between -1 and 1, and rounding makes about 1e-6.
LOUDEST_COMPARED = -3.0
MOST_DIFFERENCE = 1e-3
END = np.iinfo(np.int64).max
DOUBLE = TensorProto.DOUBLE


def export_vocoder(run: Path, file: Path) -> Export:
    """Write a vocoder's last checkpoint as an ONNX file, after onnxruntime has made the generator's wave with it.

    Raises CheckpointError if the run cannot be read or is an acoustic model, OutputError if the file exists, cannot be
    written, or makes another wave.
    """
    checkpoint = load_checkpoint(run)
    generator = load_generator(checkpoint)
    if os.path.lexists(file):
        raise OutputError(f"{file}: is there already; remove it, or choose a new file with --output")
    model = build_model(generator)
    helper.set_model_props(model, _metadata(checkpoint))
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    difference = _largest_difference(generator, content)
    if not difference <= MOST_DIFFERENCE:
        problem = f"onnxruntime's wave differs from TensorFlow's by {difference:.1g}, expected {MOST_DIFFERENCE:g}"
        raise OutputError(f"{file}: {problem}; install the onnxruntime of constraints.txt")
    with output_errors(file, "choose another --output"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as output:
            output.write(content)
    description = {
        "step": checkpoint.step,
        "weights_sha256": checkpoint.weights_sha256,
        "opset": OPSET,
        "largest_difference": difference,
        "inputs": {"mel": {"dtype": "float32", "shape": [None, None, generator.audio.mel_bins]}},
        "outputs": {"wave": {"dtype": "float32", "shape": [None, None]}},
    }
    return Export(file, f"opset {OPSET}, {difference:.0e} from TensorFlow's wave", description, len(content))


def build_model(generator: Generator) -> onnx.ModelProto:
    """Return the generator as a model: natural-log `mel` [batch, frames, bins] to `wave` [batch, samples], float32.

    samples is (frames - 1) * hop_samples.
    """
    graph = _Graph(generator)
    graph.nodes.append(helper.make_node("Identity", [_wave(graph, generator, "mel")], ["wave"]))
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        for name, shape in (("mel", ["frames", generator.audio.mel_bins]), ("wave", ["samples"]))
    ]
    built = helper.make_graph(graph.nodes, "vocoder", tensors[:1], tensors[1:], graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        built,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="xtts_pipeline",
        producer_version=__version__,
    )


class _Graph:
    """Nodes and constants; a call adds a node and returns the name of its output."""

    def __init__(self, generator: Generator) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._names = {variable.ref(): name for name, variable in named_variables(generator).items()}

    def __call__(self, operation: str, *inputs: str, **attributes: Any) -> str:
        return self.split(operation, *inputs, parts=1, **attributes)[0]

    def split(self, operation: str, *inputs: str, parts: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; return their names."""
        outputs = [f"{operation}_{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node(operation, inputs, outputs, outputs[0], **attributes))
        return outputs

    def constant(self, value: Any, name: str = "") -> str:
        """Add a float32 constant; return its name."""
        return self._add_constant(np.asarray(value, np.float32), name)

    def double(self, value: Any) -> str:
        """Add a float64 constant; return its name."""
        return self._add_constant(np.asarray(value, np.float64))

    def integer(self, value: int) -> str:
        """Add a constant int64 scalar; return its name."""
        return self._add_constant(np.asarray(value, np.int64))

    def integers(self, *values: int) -> str:
        """Add a constant int64 [n]; return its name."""
        return self._add_constant(np.asarray(values, np.int64))

    def _add_constant(self, value: np.ndarray, name: str = "") -> str:
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, variable: tf.Variable) -> str:
        """Add a variable's value under its name in a checkpoint; return the name."""
        return self.constant(variable.numpy(), self._names[variable.ref()])

    def slice(self, tensor: str, start: int, end: int) -> str:
        """Slice the second axis."""
        return self("Slice", tensor, self.integers(start), self.integers(end), self.integers(1))

    def pad(self, tensor: str, before: int, after: int) -> str:
        """Pad the second axis of a tensor of three with zeros."""
        return self("Pad", tensor, self.integers(0, before, 0, 0, after, 0))

    def pad_last(self, tensor: str, after: int) -> str:
        """Pad the end of the third axis of a tensor of three with zeros."""
        return self("Pad", tensor, self.integers(0, 0, 0, 0, 0, after))


def _wave(graph: _Graph, generator: Generator, mel: str) -> str:
    """Add `Generator.__call__`."""
    audio, overlap = generator.audio, generator.audio.overlap
    windowed = graph("MatMul", _spectrum(graph, generator, mel), graph.constant(_inverse_basis(audio)))
    # The gain at both ends depends on the number of frames, so the squares of their windows are added up here.
    frames = graph("Shape", mel, start=1, end=2)
    shape = graph("Concat", graph.integers(1), frames, graph.integers(1), axis=0)
    squares = graph("Expand", graph.constant(window_squares(audio).reshape(1, 1, -1)), shape)
    weights = graph("Max", _overlap_add(graph, squares, overlap), graph.constant(TINY))
    sums = _overlap_add(graph, windowed, overlap)
    wave = graph("Reshape", graph("Div", sums, weights), graph.integers(0, -1))
    start = audio.fft_size // 2
    return graph.slice(wave, start, start - overlap * audio.hop_samples)


def _inverse_basis(audio: AudioConfig) -> np.ndarray:
    """Return the matrix that maps a spectrum's real and imaginary parts to windowed samples that fill whole hops.

    Float32 [2 + fft_size, overlap * hop_samples]. onnxruntime has no fast inverse transform of real signals.
    """
    size = audio.fft_size
    # Whole turns are taken off in integers: float32 angles of 2 pi * 500,000 have no accuracy left.
    turns_KN = np.outer(np.arange(1 + size // 2), np.arange(size)) % size
    angle_KN = 2 * np.pi * turns_KN / size
    # The bins between the first and the last stand for themselves and for their mirror images.
    weight_K1 = np.full((len(angle_KN), 1), 2.0 / size)
    weight_K1[[0, -1]] = 1.0 / size
    basis = np.concatenate([np.cos(angle_KN) * weight_K1, -np.sin(angle_KN) * weight_K1]) * hann_window(audio)
    return np.pad(basis, ((0, 0), (0, -size % audio.hop_samples))).astype(np.float32)


def _spectrum(graph: _Graph, generator: Generator, mel: str) -> str:
    """Add `Generator.spectrum`; real and imaginary parts are concatenated."""
    scaled = graph("Div", graph("Sub", mel, graph.constant(MEL_CENTRE)), graph.constant(MEL_SCALE))
    taps = _shifted(graph, scaled, TAPS // 2)
    embedded = _dense(graph, generator.embed, graph("Concat", *taps, axis=2))
    x = _norm(graph, generator.embed_norm, embedded)
    for block in generator.blocks:
        x = _block(graph, block, x)
    both = _dense(graph, generator.to_spectrum, _norm(graph, generator.norm, x))
    change, phase = graph.split("Split", both, parts=2, axis=2, num_outputs=2)
    inverted = graph("MatMul", graph("Exp", mel), graph.constant(generator.inverse_filters))
    known = graph("Log", graph("Max", inverted, graph.constant(LEAST_MEL_MAGNITUDE)))
    bounds = (graph.constant(bound) for bound in (LEAST_LOG_MAGNITUDE, generator.greatest_log_magnitude))
    magnitude = graph("Exp", graph("Clip", graph("Add", known, change), *bounds))
    phase = graph("Add", phase, _harmonic_phase(graph, generator.harmonic_phase, scaled))
    parts = [graph("Mul", magnitude, graph(function, phase)) for function in ("Cos", "Sin")]
    return graph("Concat", *parts, axis=2)


def _harmonic_phase(graph: _Graph, harmonic: HarmonicPhase, scaled: str) -> str:
    """Add `HarmonicPhase` of all frames, in float64 as there."""
    pitch_hz, one = _pitch_hz(graph, harmonic, graph("Cast", scaled, to=DOUBLE)), graph.double(1.0)
    per_frame = graph("Mul", pitch_hz, graph.double(harmonic.frame_seconds))
    cycles = graph("Mod", graph("CumSum", per_frame, graph.integers(1)), one, fmod=1)
    times = graph("Round", graph("Div", graph.double(harmonic.harmonic_hz), pitch_hz))
    turned = graph("Mod", graph("Mul", times, cycles), one, fmod=1)
    phase = graph("Cast", graph("Mul", turned, graph.double(2.0 * np.pi)), to=TensorProto.FLOAT)
    return graph("Add", graph.pad_last(phase, harmonic.other_bins), graph.constant(harmonic.pulse_phase))


def _pitch_hz(graph: _Graph, harmonic: HarmonicPhase, scaled: str) -> str:
    """Add `HarmonicPhase.pitch_hz`, [B, T, 1], of float64 frames in the network's scale."""
    finder = harmonic.finder
    whitened = graph("MatMul", scaled, graph.double(finder.whiten_ML))
    is_different = graph("Greater", graph("Abs", whitened), graph.double(LEAST_DIFFERENCE))
    whitened = graph("Where", is_different, whitened, graph.double(0.0))
    squares = graph("ReduceSum", graph("Mul", whitened, whitened), graph.integers(2), keepdims=1)
    norm = graph("Sqrt", graph("Add", squares, graph.double(LEAST_POWER)))
    score = graph("MatMul", graph("Div", whitened, norm), graph.double(finder.pattern_LC))
    # Averaged over neighbouring frames, less a share of the scores of multiples.
    shifted = zip(_shifted(graph, score, SMOOTHING_REACH), harmonic.weights, strict=True)
    score = graph("Sum", *(graph("Mul", each, graph.double(weight)) for each, weight in shifted))
    multiples = []
    for shift in MULTIPLE_SHIFTS:
        bounds = [graph.integers(value) for value in (shift, END, 2)]
        multiples.append(graph.pad_last(graph("Slice", score, *bounds), min(shift, len(finder.octaves))))
    score = graph("Sub", score, graph("Mul", graph("Max", *multiples, graph.double(0.0)), graph.double(MULTIPLE_SHARE)))
    return _best_hz(graph, finder, score, _best_near(graph, harmonic, score))


def _shifted(graph: _Graph, x: str, reach: int, step: int = 1) -> list[str]:
    """Add `layers.shifted`."""
    padded = graph.pad(x, reach, reach)
    return [graph.slice(padded, shift, shift - 2 * reach or END) for shift in range(0, 2 * reach + 1, step)]


def _best_near(graph: _Graph, harmonic: HarmonicPhase, score: str) -> str:
    """Add `PitchFinder.best_near` of the scores and their context, [B, T, 1]."""
    octaves = harmonic.finder.octaves
    positive = graph("Max", score, graph.double(0.0))
    context_reach = harmonic.reach - SMOOTHING_REACH
    context = graph("Sum", *_shifted(graph, graph("Mul", positive, positive), context_reach, SMOOTHING_REACH))
    centre = graph("Gather", graph.double(octaves), graph("ArgMax", context, axis=2, keepdims=1))
    distance = graph("Sub", graph.double(octaves), centre)
    cost = graph("Mul", graph("Mul", distance, distance), graph.double(SQUARED_OCTAVE_COST))
    return graph("ArgMax", graph("Sub", score, cost), axis=2, keepdims=1)


def _best_hz(graph: _Graph, finder: PitchFinder, score: str, best: str) -> str:
    """Add `PitchFinder.best_hz`, [B, T, 1]."""
    last = len(finder.octaves) - 1
    best = graph("Clip", best, graph.integer(1), graph.integer(last - 1))
    below, top, above = (
        graph("GatherElements", score, graph("Add", best, graph.integers(shift)), axis=2) for shift in (-1, 0, 1)
    )
    bend = graph("Add", graph("Sub", below, graph("Add", top, top)), above)
    bend = graph("Min", bend, graph.double(-LEAST_BEND))
    half = graph.double(0.5)
    offset = graph("Div", graph("Mul", graph("Sub", below, above), half), bend)
    offset = graph("Clip", offset, graph.double(-0.5), half)
    steps = graph("Add", graph("Cast", best, to=DOUBLE), offset)
    octaves = graph(
        "Add", graph("Div", steps, graph.double(float(CANDIDATES_PER_OCTAVE))), graph.double(float(finder.octaves[0]))
    )
    return graph("Mul", graph("Pow", graph.double(2.0), octaves), graph.double(REFERENCE_HZ))


def _block(graph: _Graph, block: ConvNextBlock, x: str) -> str:
    """Add `ConvNextBlock.__call__` without a mask."""
    weight_TD = block.depthwise.weight.numpy()
    # onnxruntime takes a fifth less time for this convolution than for shifted products, unlike XLA.
    inner = graph(
        "Conv",
        graph("Transpose", x, perm=[0, 2, 1]),
        graph.constant(weight_TD.T[:, None, :]),
        graph.weight(block.depthwise.bias),
        group=weight_TD.shape[1],
        pads=[TAPS // 2, TAPS // 2],
    )
    inner = _norm(graph, block.norm, graph("Transpose", inner, perm=[0, 2, 1]))
    inner = graph("Gelu", _dense(graph, block.widen, inner), approximate="tanh")
    return graph("Add", x, graph("Mul", _dense(graph, block.narrow, inner), graph.weight(block.scale)))


def _dense(graph: _Graph, layer: Dense, x: str) -> str:
    return graph("Add", graph("MatMul", x, graph.weight(layer.weight)), graph.weight(layer.bias))


def _norm(graph: _Graph, layer: LayerNorm, x: str) -> str:
    scale, offset = graph.weight(layer.scale), graph.weight(layer.offset)
    return graph("LayerNormalization", x, scale, offset, axis=-1, epsilon=NORM_EPSILON)


def _overlap_add(graph: _Graph, frames: str, overlap: int) -> str:
    """Add `overlap_add` of frames that are not cut into hops."""
    hops = graph.split("Split", frames, parts=overlap, axis=2, num_outputs=overlap)
    return graph("Sum", *(graph.pad(hop, shift, overlap - 1 - shift) for shift, hop in enumerate(hops)))


def _metadata(checkpoint: Checkpoint) -> dict[str, str]:
    audio = checkpoint.config.audio
    return {
        "sample_rate": str(audio.sample_rate),
        "hop_samples": str(audio.hop_samples),
        "mel": json.dumps(audio.model_dump(mode="json", include=set(MEL_SETTINGS))),
        "step": str(checkpoint.step),
        "weights_sha256": checkpoint.weights_sha256,
    }


def _largest_difference(generator: Generator, content: bytes) -> float:
    """Return the largest difference between onnxruntime's wave and the generator's, for mels of two random clips."""
    shape = (2, COMPARED_FRAMES, generator.audio.mel_bins)
    mel = np.random.default_rng(0).uniform(-9.0, LOUDEST_COMPARED, shape).astype(np.float32)
    # Silence between sounds, where all bins are equal.
    mel[:, COMPARED_FRAMES // 2 : COMPARED_FRAMES // 2 + SILENT_FRAMES] = np.log(generator.audio.floor)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (wave,) = session.run(["wave"], {"mel": mel})
    return float(np.abs(wave - generator(tf.constant(mel)).numpy()).max())

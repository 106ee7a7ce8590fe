"""Export a checkpoint as a TensorFlow SavedModel: the synthesis loop in one graph, which runs without this package.

`xtts.json` beside the graph tells a client how to make its inputs and how to use its outputs.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from xtts_pipeline import __version__
from xtts_pipeline.cache.build.folder import format_bytes
from xtts_pipeline.errors import OutputError
from xtts_pipeline.inference.references import cut_windows, embed_windows
from xtts_pipeline.model.decoding import Speech, speak
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Batch
from xtts_pipeline.system.atomic_files import atomic_folder
from xtts_pipeline.text.tokens import BEGIN_ID, END_ID, FIRST_SYMBOL_ID, PAD_ID, Tokenizer
from xtts_pipeline.training.checkpoints.files import WEIGHTS_NAME, Checkpoint, load_checkpoint, load_network

EXPORT_VERSION = 1
DESCRIPTION_NAME = "xtts.json"
SIGNATURE = "serving_default"


@dataclass(frozen=True)
class Export:
    """A written SavedModel: its folder, the content of xtts.json, and its size on disk."""

    folder: Path
    description: Mapping[str, Any]
    bytes: int

    def to_json(self) -> dict[str, object]:
        """Return the report for programs."""
        names = ("step", "weights_sha256", "jit_compile", "signature", "inputs", "outputs")
        return {"output": str(self.folder), "bytes": self.bytes, **{name: self.description[name] for name in names}}

    def to_text(self) -> str:
        """Return the report for people."""
        model = self.description
        signature = f"signature {model['signature']} (checkpoint of step {model['step']})"
        lines = [f"{self.folder}: {format_bytes(self.bytes)}, {signature}"]
        for label, tensors in (("in", model["inputs"]), ("out", model["outputs"])):
            for name, tensor in tensors.items():
                shape = ", ".join("any" if size is None else str(size) for size in tensor["shape"])
                lines.append(f"  {label:<4}{name:<18}{tensor['dtype']} [{shape}]")
        return "\n".join(lines)


def export_run(run: Path, folder: Path, overrides: Sequence[str], *, batch_size: int, jit_compile: bool) -> Export:
    """Write a run's last checkpoint as a SavedModel for `batch_size` texts; the folder appears whole or not at all.

    `overrides` are settings such as `synthesis.sharpness=1.5`. With `jit_compile` XLA compiles the network where it is
    loaded, so a program without XLA cannot run it. Raises CheckpointError if the run cannot be read, ConfigError for an
    override that is not valid, OutputError if the folder exists or cannot be written.
    """
    checkpoint = load_checkpoint(run).with_synthesis(overrides)
    with _new_folder(folder) as partial:
        graph = _SynthesisGraph(checkpoint, batch_size, jit_compile=jit_compile)
        model = tf.Module()
        # Only the variables: the graph does not use the classes that hold them.
        model.weights = list(graph.network.variables)
        synthesize = tf.function(graph.synthesize, autograph=False).get_concrete_function(**graph.inputs)
        tf.saved_model.save(model, str(partial), signatures={SIGNATURE: synthesize})
        description = _describe(checkpoint, graph.inputs, synthesize.structured_outputs, jit_compile=jit_compile)
        (partial / DESCRIPTION_NAME).write_text(
            json.dumps(description, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
        )
    return Export(folder, description, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


class _SynthesisGraph:
    """The graph's functions. All shapes but the reference's frames are static, so that XLA compiles its part once."""

    def __init__(self, checkpoint: Checkpoint, batch_size: int, *, jit_compile: bool) -> None:
        self.network = load_network(checkpoint)
        self._config, self._cache = checkpoint.config, checkpoint.cache
        self._symbol_count = Tokenizer(self._cache.symbols, self._config.text.blank).symbol_count
        self._dropout_seed = self._config.training.seed
        compiled = {"jit_compile": jit_compile or None, "autograph": False}
        self._embed = tf.function(self._embed_windows, **compiled)
        self._speak = tf.function(self._speak_batch, **compiled)
        self.inputs = self._input_specs(batch_size)

    def synthesize(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs by name; rows with a text length of 0 are empty. Inputs out of range fail."""
        with tf.control_dependencies(self._check_inputs(inputs)):
            inputs = {name: tf.identity(value) for name, value in inputs.items()}
        reference_length_B = inputs.get("reference_length", tf.zeros_like(inputs["text_length"]))
        voice_BVD = (
            self._embed_references(inputs["reference_mel"], reference_length_B) if "reference_mel" in inputs else None
        )
        names = ("tokens", "text_length", "speaker", "language")
        texts = [inputs.get(name, tf.zeros_like(inputs["text_length"])) for name in names]
        speech = self._speak(*texts, voice_BVD, reference_length_B > 0)
        return {
            "mel": speech.mel[:, : self._cache.spec.max_mel_frames],
            "mel_length": speech.mel_length,
            "has_stopped": speech.has_stopped | (inputs["text_length"] == 0),
            "attention": speech.attention,
        }

    def _input_specs(self, batch_size: int) -> dict[str, tf.TensorSpec]:
        spec, network = self._cache.spec, self.network
        shapes: dict[str, tuple[list[int | None], tf.DType]] = {
            "tokens": ([batch_size, spec.max_text_length], tf.int32),
            "text_length": ([batch_size], tf.int32),
        }
        if network.voice_encoder is not None:
            shapes["reference_mel"] = ([batch_size, None, spec.mel_bins], tf.float32)
            shapes["reference_length"] = ([batch_size], tf.int32)
        if network.speaker_embedding is not None:
            shapes["speaker"] = ([batch_size], tf.int32)
        if network.language_embedding is not None:
            shapes["language"] = ([batch_size], tf.int32)
        return {name: tf.TensorSpec(shape, dtype, name) for name, (shape, dtype) in shapes.items()}

    def _check_inputs(self, inputs: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
        """Return the checks of the inputs, which fail with the allowed and the found values."""
        highest: dict[str, tf.Tensor | int] = {
            "tokens": self._symbol_count - 1,
            "text_length": self._cache.spec.max_text_length,
            "speaker": len(self._cache.speakers) - 1,
            "language": len(self._cache.languages) - 1,
        }
        checks = []
        if "reference_mel" in inputs:
            highest["reference_length"] = tf.shape(inputs["reference_mel"])[1]
            is_finite = tf.reduce_all(tf.math.is_finite(inputs["reference_mel"]))
            checks.append(
                tf.debugging.Assert(
                    is_finite, ["reference_mel: found NaN or infinity, expected natural-log mel magnitudes"]
                )
            )
        return checks + [_check_range(name, inputs[name], limit) for name, limit in highest.items() if name in inputs]

    def _embed_references(self, reference_BCM: tf.Tensor, length_B: tf.Tensor) -> tf.Tensor:
        """Return voice latents [B, V, D]; zeros, which are not used, if no row has a reference."""
        shape = [length_B.shape[0], self._config.model.voice_latents, self._config.model.width]

        def embed() -> tf.Tensor:
            return self._embed(*cut_windows(reference_BCM, length_B, self.network.reference_frames))

        return tf.cond(tf.reduce_any(length_B > 0), embed, lambda: tf.zeros(shape))

    def _embed_windows(self, window_BNCM: tf.Tensor, length_BN: tf.Tensor) -> tf.Tensor:
        return embed_windows(self.network, window_BNCM, length_BN, self._dropout())

    def _speak_batch(
        self,
        tokens_BS: tf.Tensor,
        text_length_B: tf.Tensor,
        speaker_B: tf.Tensor,
        language_B: tf.Tensor,
        voice_BVD: tf.Tensor | None,
        has_reference_B: tf.Tensor,
    ) -> Speech:
        settings, spec, network = self._config.synthesis, self._cache.spec, self.network
        unused_mel = tf.zeros([tokens_BS.shape[0], 1, spec.mel_bins], tf.float16)
        batch = Batch(tokens_BS, unused_mel, text_length_B, text_length_B, speaker_B, language_B)
        # float64, rounding halves to even as Python does: the same limit as in Synthesizer.
        asked_B = tf.round(tf.cast(text_length_B, tf.float64) * settings.max_frames_per_token)
        max_frames_B = tf.cast(tf.minimum(asked_B, spec.max_mel_frames), tf.int32)
        memory = network.encode(batch, voice_BVD, has_reference_B, self._dropout())
        return speak(network, memory, self._dropout(), max_frames_B, settings)

    def _dropout(self) -> Dropout:
        return Dropout.fixed(self._dropout_seed)


def _check_range(name: str, values: tf.Tensor, highest: tf.Tensor | int) -> tf.Operation:
    lowest_found, highest_found = tf.reduce_min(values), tf.reduce_max(values)
    is_inside = (lowest_found >= 0) & (highest_found <= highest)
    return tf.debugging.Assert(
        is_inside, [f"{name}: expected 0 to", highest, "found", lowest_found, "to", highest_found]
    )


def _describe(
    checkpoint: Checkpoint, inputs: Mapping[str, tf.TensorSpec], outputs: Mapping[str, tf.Tensor], *, jit_compile: bool
) -> dict[str, Any]:
    """Return the content of xtts.json."""
    config, cache = checkpoint.config, checkpoint.cache
    tokenizer = Tokenizer(cache.symbols, config.text.blank)
    with (checkpoint.folder / WEIGHTS_NAME).open("rb") as weights:
        weights_sha256 = hashlib.file_digest(weights, "sha256").hexdigest()
    return {
        "export_version": EXPORT_VERSION,
        "xtts_pipeline": __version__,
        "tensorflow": tf.__version__,
        "step": checkpoint.step,
        "weights_sha256": weights_sha256,
        "cache_fingerprint": cache.fingerprint,
        "jit_compile": jit_compile,
        "signature": SIGNATURE,
        "inputs": _shapes(inputs),
        "outputs": _shapes(outputs),
        "tokens": {
            "pad": PAD_ID,
            "begin": BEGIN_ID,
            "end": END_ID,
            "blank": tokenizer.blank_id if tokenizer.blank else None,
            "symbols": {symbol: FIRST_SYMBOL_ID + index for index, symbol in enumerate(cache.symbols)},
        },
        "text": config.text.model_dump(mode="json"),
        "audio": config.audio.model_dump(mode="json"),
        "synthesis": config.synthesis.model_dump(mode="json"),
        "speakers": list(cache.speakers),
        "languages": list(cache.languages),
    }


def _shapes(tensors: Mapping[str, tf.TensorSpec | tf.Tensor]) -> dict[str, dict[str, object]]:
    return {name: {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list()} for name, tensor in tensors.items()}


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block succeeds. Raises OutputError."""
    if os.path.lexists(folder):
        raise OutputError(f"{folder}: is there already; remove it, or choose a new folder with --output")
    try:
        with atomic_folder(folder) as partial:
            yield partial
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow writes the graph and the variables, and has its own errors for a full disk.
        problem = error.strerror if isinstance(error, OSError) else error.message.splitlines()[0]
        raise OutputError(f"{folder}: cannot be written ({problem}); mend that, or choose another --output") from None

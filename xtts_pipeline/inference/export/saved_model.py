"""Export a run as a TensorFlow SavedModel: synthesis and vocoder in one graph, which runs without this package.

`xtts.json` beside the graph tells a client how to make its inputs and how to use its outputs.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from xtts_pipeline import __version__
from xtts_pipeline.errors import OutputError, first_line_of
from xtts_pipeline.inference.export.report import Export
from xtts_pipeline.inference.references import cut_windows
from xtts_pipeline.inference.vocoders import choose_vocoder, offering_griffin_lim
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.network import Speech
from xtts_pipeline.system.atomic_files import atomic_folder
from xtts_pipeline.text.tokens import BEGIN_ID, END_ID, FIRST_SYMBOL_ID, PAD_ID, Tokenizer
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint, load_generator, load_network
from xtts_pipeline.vocoder.griffin_lim import GriffinLim
from xtts_pipeline.vocoder.griffin_lim_graph import griffin_lim_wave

EXPORT_VERSION = 2
DESCRIPTION_NAME = "xtts.json"
SIGNATURE = "serving_default"


# The part of the description that the report for programs has.
REPORTED = ("step", "weights_sha256", "vocoder", "jit_compile", "signature", "inputs", "outputs")


def export_run(
    run: Path,
    folder: Path,
    overrides: Sequence[str],
    *,
    batch_size: int,
    jit_compile: bool,
    vocoder: Path | str | None = None,
) -> Export:
    """Write a run's last checkpoint as a SavedModel for `batch_size` texts; the folder appears whole or not at all.

    `overrides` are settings such as `synthesis.flow_steps=8`; `vocoder` is that of `Synthesizer.load`. With
    `jit_compile` XLA compiles the network where it is loaded, so a program without XLA cannot run it. Raises
    CheckpointError if the run or the vocoder cannot be read, ConfigError for an override that is not valid, OutputError
    if the folder exists or cannot be written.
    """
    checkpoint = load_checkpoint(run).with_synthesis(overrides)
    chosen = choose_vocoder(run, vocoder)
    with offering_griffin_lim(vocoder):
        trained = None if chosen is None else load_checkpoint(chosen)
    with new_folder(folder) as unfinished:
        graph = _SynthesisGraph(checkpoint, trained, batch_size, jit_compile=jit_compile)
        model = tf.Module()
        # Only the variables: the graph does not use the classes that hold them.
        model.weights = graph.variables
        synthesize = tf.function(graph.synthesize, autograph=False).get_concrete_function(**graph.inputs)
        tf.saved_model.save(model, str(unfinished), signatures={SIGNATURE: synthesize})
        outputs = synthesize.structured_outputs
        description = _describe(checkpoint, trained, graph.inputs, outputs, jit_compile=jit_compile)
        (unfinished / DESCRIPTION_NAME).write_text(
            json.dumps(description, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
        )
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Export(folder, f"signature {SIGNATURE}", {name: description[name] for name in REPORTED}, size)


class _SynthesisGraph:
    """The graph's functions. All shapes but the reference's frames are static, so that XLA compiles its part once."""

    def __init__(
        self, checkpoint: Checkpoint, vocoder: Checkpoint | None, batch_size: int, *, jit_compile: bool
    ) -> None:
        self.network = load_network(checkpoint)
        self.variables = list(self.network.variables)
        self._config, self._cache = checkpoint.config, checkpoint.cache
        if vocoder is None:
            griffin_lim = GriffinLim.from_settings(checkpoint.config.audio, checkpoint.config.synthesis)
            make_wave = partial(griffin_lim_wave, vocoder=griffin_lim)
        else:
            make_wave = load_generator(vocoder)
            self.variables += make_wave.variables
        self._symbol_count = Tokenizer(self._cache.symbols, self._config.text.blank).symbol_count
        self._dropout_seed = self._config.training.seed
        compiled = {"jit_compile": jit_compile or None, "autograph": False}
        self._embed = tf.function(self._embed_windows, **compiled)
        self._speak = tf.function(self._speak_batch, **compiled)
        self._vocode = tf.function(make_wave, **compiled)
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
        frames = self._cache.spec.max_mel_frames
        return {
            "wave": self._vocode(speech.mel, length_mask(speech.mel_length, frames)),
            "wave_length": tf.maximum(speech.mel_length - 1, 0) * self._config.audio.hop_samples,
            "mel": speech.mel,
            "mel_length": speech.mel_length,
            "has_stopped": speech.has_stopped | (inputs["text_length"] == 0),
            "duration": speech.duration,
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
        return self.network.embed_voice(window_BNCM, length_BN, self._dropout())

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
        # float64, rounding halves to even as Python does: the limit of Synthesizer, and the longest mel besides.
        asked_B = tf.round(tf.cast(text_length_B, tf.float64) * settings.max_frames_per_token)
        max_frames_B = tf.cast(tf.minimum(asked_B, spec.max_mel_frames), tf.int32)
        memory = network.encode(batch, voice_BVD, has_reference_B, self._dropout())
        return network.speak(memory, self._dropout(), max_frames_B, settings)

    def _dropout(self) -> Dropout:
        return Dropout.fixed(self._dropout_seed)


def _check_range(name: str, values: tf.Tensor, highest: tf.Tensor | int) -> tf.Operation:
    lowest_found, highest_found = tf.reduce_min(values), tf.reduce_max(values)
    is_inside = (lowest_found >= 0) & (highest_found <= highest)
    return tf.debugging.Assert(
        is_inside, [f"{name}: expected 0 to", highest, "found", lowest_found, "to", highest_found]
    )


def _describe(
    checkpoint: Checkpoint,
    vocoder: Checkpoint | None,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.Tensor],
    *,
    jit_compile: bool,
) -> dict[str, Any]:
    """Return the content of xtts.json."""
    config, cache = checkpoint.config, checkpoint.cache
    tokenizer = Tokenizer(cache.symbols, config.text.blank)
    return {
        "export_version": EXPORT_VERSION,
        "xtts_pipeline": __version__,
        "tensorflow": tf.__version__,
        "step": checkpoint.step,
        "weights_sha256": checkpoint.weights_sha256,
        "vocoder": None if vocoder is None else {"step": vocoder.step, "weights_sha256": vocoder.weights_sha256},
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
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block succeeds. Raises OutputError."""
    if os.path.lexists(folder):
        raise OutputError(f"{folder}: is there already; remove it, or choose a new folder with --output")
    try:
        with atomic_folder(folder) as partial:
            yield partial
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow writes the graph and the variables, and has its own errors for a full disk.
        problem = error.strerror if isinstance(error, OSError) else first_line_of(error.message)
        raise OutputError(f"{folder}: cannot be written ({problem}); mend that, or choose another --output") from None

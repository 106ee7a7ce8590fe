"""`xtts export --format onnx`: onnxruntime makes the vocoder's wave from the file."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from click.testing import Result

from tests.calling import xtts
from tests.speaking import make_run, make_vocoder
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import XttsError
from xtts_pipeline.inference.export import onnx_vocoder
from xtts_pipeline.inference.export.onnx_vocoder import build_model
from xtts_pipeline.model.architecture import CONVNEXT_TAPS as TAPS
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_generator
from xtts_pipeline.vocoder.generator import EXPANSION, Generator
from xtts_pipeline.vocoder.neural import NeuralVocoder

# Hops that do not divide the window, a window shorter than the transform.
SHORT_WINDOW = {"fft_size": 512, "window_samples": 400, "hop_samples": 160}


@pytest.fixture(scope="module")
def vocoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vocoder(tmp_path_factory.mktemp("vocoder"), **SHORT_WINDOW)


@pytest.fixture(scope="module")
def generator(vocoder: Path) -> Generator:
    return load_generator(load_checkpoint(vocoder))


def export(run: Path, output: Path, *options: str) -> Result:
    return xtts("export", "--run", run, "--output", output, "--format", "onnx", *options)


def test_rows_of_any_number_and_length_have_the_wave_of_the_vocoder(
    vocoder: Path, generator: Generator, tmp_path: Path
) -> None:
    result = export(vocoder, tmp_path / "vocoder.onnx", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["output"], report["step"]) == (str(tmp_path / "vocoder.onnx"), 9)
    assert report["bytes"] == (tmp_path / "vocoder.onnx").stat().st_size
    assert report["largest_difference"] < 1e-5
    assert report["inputs"] == {"mel": {"dtype": "float32", "shape": [None, None, 20]}}

    session = onnxruntime.InferenceSession(tmp_path / "vocoder.onnx", providers=["CPUExecutionProvider"])
    metadata, checkpoint = session.get_modelmeta().custom_metadata_map, load_checkpoint(vocoder)
    assert (metadata["sample_rate"], metadata["hop_samples"], metadata["step"]) == ("22050", "160", "9")
    assert metadata["weights_sha256"] == report["weights_sha256"] == checkpoint.weights_sha256
    audio = checkpoint.config.audio
    assert json.loads(metadata["mel"]).items() >= {"mel_bins": 20, "floor": audio.floor, **SHORT_WINDOW}.items()
    speak = NeuralVocoder(generator)
    for rows, frames in ((1, 1), (3, 2), (2, 60)):
        # As loud as speech, whose samples are between -1 and 1.
        mel = np.random.default_rng(frames).uniform(-9.0, -3.0, (rows, frames, 20)).astype(np.float32)
        (wave,) = session.run(["wave"], {"mel": mel})
        assert wave.shape == (rows, (frames - 1) * audio.hop_samples)
        np.testing.assert_allclose(wave, [speak(row) for row in mel], atol=1e-5)


def test_silence_does_not_change_the_phases_after_it() -> None:
    """All bins of a silent frame are equal but for rounding, which must not decide on the pitch."""
    generator = Generator(AudioConfig(), width=32, blocks=2, seed=1)
    mel = np.random.default_rng(1).uniform(-9.0, -3.0, (1, 90, 80)).astype(np.float32)
    mel[:, 20:50] = mel[:, 60:62] = np.log(generator.audio.floor)
    content = build_model(generator).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (wave,) = session.run(["wave"], {"mel": mel})
    np.testing.assert_allclose(wave, generator(tf.constant(mel)), atol=1e-5)


def test_the_file_has_the_multiply_adds_of_the_network(generator: Generator) -> None:
    frames, bins, audio = 60, generator.bins, generator.audio
    width = generator.to_spectrum.weight.shape[0]
    block = TAPS * width + 2 * EXPANSION * width**2
    ends = TAPS * audio.mel_bins * width + 2 * bins * width
    inverse = 2 * bins * audio.overlap * audio.hop_samples
    ours = frames * (ends + len(generator.blocks) * block + audio.mel_bins * bins + inverse)
    assert multiply_adds(build_model(generator), frames) <= 1.1 * ours


def multiply_adds(model: onnx.ModelProto, frames: int) -> int:
    """Return the multiply-adds of all matrix products and convolutions for one row of `frames` frames."""
    batch, length, _ = model.graph.input[0].type.tensor_type.shape.dim
    batch.dim_value, length.dim_value = 1, frames
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer} | {
        tensor.name: tuple(size.dim_value for size in tensor.type.tensor_type.shape.dim) for tensor in graph.value_info
    }
    total = 0
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm", "Conv"):
            weight, output = shapes[node.input[1]], shapes[node.output[0]]
            assert 0 not in output
            total += int(np.prod(output) * (np.prod(weight[1:]) if node.op_type == "Conv" else weight[0]))
    assert total > 0
    return total


def test_what_cannot_be_exported_is_refused_in_one_line(
    vocoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(run: Path, output: Path, *options: str) -> str:
        result = export(run, output, *options)
        assert isinstance(result.exception, XttsError) or result.exit_code == 2, result.output
        return str(result.exception) if isinstance(result.exception, XttsError) else result.output

    acoustic, there = make_run(tmp_path / "run"), tmp_path / "there.onnx"
    there.write_bytes(b"kept")
    assert "found the weights of an acoustic model, expected those of a vocoder" in error(acoustic, tmp_path / "a.onnx")
    assert "expected those of an acoustic model" in error(vocoder, tmp_path / "folder", "--format", "saved-model")
    assert "there.onnx: is there already" in error(vocoder, there)
    assert there.read_bytes() == b"kept"
    assert "found the suffix .pb, expected .onnx" in error(vocoder, tmp_path / "a.pb")
    assert "found --set, --jit-compile, which other formats take" in error(
        vocoder, tmp_path / "a.onnx", "--jit-compile", "--set", "synthesis.flow_steps=2"
    )
    monkeypatch.setattr(onnx_vocoder, "_largest_difference", lambda *_: np.nan)
    assert "onnxruntime's wave differs" in error(vocoder, tmp_path / "a.onnx")
    monkeypatch.setattr("xtts_pipeline.system.installation.find_spec", lambda _: None)
    assert "found no package onnx and no onnxruntime; run pip install" in error(vocoder, tmp_path / "a.onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "there.onnx"]

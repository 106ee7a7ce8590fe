"""`xtts export`: what a SavedModel says, without this package, is what the Synthesizer says."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from click.testing import Result

from tests.calling import xtts
from tests.speaking import SYMBOLS, make_run
from xtts_pipeline.errors import OutputError
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.training.checkpoints.state import read_run_state

ROOT = Path(__file__).parents[3]
# Of natural log. The loop is the same, its roundings are not: a frame is made from all frames before it.
TOLERANCE = 1e-3
# With more, the sound of random weights is so far over full scale that its rounding exceeds the tolerance.
GUIDED = "synthesis.guidance=2"


@pytest.fixture(scope="module")
def synthesizer(run: Path, vocoder: Path) -> Synthesizer:
    return Synthesizer.load(run, [GUIDED], vocoder=vocoder)


@pytest.fixture(scope="module")
def exported(run: Path, vocoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel that says two texts at a time."""
    folder = tmp_path_factory.mktemp("models") / "voice" / "1"
    result = export("--run", run, "--vocoder", vocoder, "--output", folder, "--batch-size", 2, "--set", GUIDED)
    assert result.exit_code == 0, result.output
    assert "in  tokens            int32 [2, 24]" in result.output
    assert f"out wave              float32 [2, {39 * 256}]" in result.output
    return folder


@pytest.fixture(scope="module")
def speak(exported: Path) -> Any:
    return tf.saved_model.load(str(exported)).signatures["serving_default"]


def export(*words: object) -> Result:
    return xtts("export", "--format", "saved-model", *words)


def inputs_for(*texts: str, **changed: object) -> dict[str, tf.Tensor]:
    tokens, lengths = np.zeros((2, 24), np.int32), np.zeros(2, np.int32)
    for row, text in enumerate(texts):
        ids = [1, *(3 + SYMBOLS.index(symbol) for symbol in text), 2]
        tokens[row, : len(ids)], lengths[row] = ids, len(ids)
    values: dict[str, object] = {
        "tokens": tokens,
        "text_length": lengths,
        "reference_mel": np.zeros((2, 0, 20), np.float32),
        "reference_length": [0, 0],
        "speaker": [0, 0],
        **changed,
    }
    return {
        name: tf.constant(value, tf.float32 if name == "reference_mel" else tf.int32) for name, value in values.items()
    }


def test_the_documented_client_says_the_same_in_a_process_without_this_package(
    synthesizer: Synthesizer, exported: Path, tmp_path: Path
) -> None:
    client, reference, _ = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "docs" / "export.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    client = client.replace("said = ", f"{reference}said = ", 1)
    # None in sys.modules: an import of it fails, wherever the package is installed.
    (tmp_path / "client.py").write_text(f"import sys\nsys.modules['xtts_pipeline'] = None\n{client}", encoding="utf-8")
    wave = 0.3 * np.sin(2 * np.pi * 300 * np.arange(30_000) / 16_000)
    soundfile.write(tmp_path / "voice.wav", wave, 16_000, subtype="PCM_16")
    arguments = ("client.py", exported, "a client, speaking.", "speech.wav")
    ended = subprocess.run(
        [sys.executable, "-I", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2_000:]
    spoken = synthesizer.synthesize("a client, speaking.", references=[tmp_path / "voice.wav"])
    assert np.abs(spoken.wave).max() > 10 * TOLERANCE
    expected = spoken.wave / max(1.0, np.abs(spoken.wave).max())
    np.testing.assert_allclose(soundfile.read(tmp_path / "speech.wav")[0], expected, atol=TOLERANCE)


def test_each_row_is_what_its_text_is_alone(synthesizer: Synthesizer, speak: Any) -> None:
    said = speak(**inputs_for("a", "bcd efg, hij.", speaker=[0, 1]))
    for row, (text, speaker) in enumerate((("a", "ann"), ("bcd efg, hij.", "bob"))):
        spoken = synthesizer.synthesize(text, speaker)
        frames = int(said["mel_length"][row])
        assert (frames, bool(said["has_stopped"][row])) == (len(spoken.mel), spoken.has_stopped)
        np.testing.assert_allclose(said["mel"][row, :frames], spoken.mel, atol=TOLERANCE)
        assert np.all(said["mel"][row, frames:] == synthesizer.silence(1))
        samples = int(said["wave_length"][row])
        assert samples == len(spoken.wave)
        np.testing.assert_allclose(said["wave"][row, :samples], spoken.wave, atol=TOLERANCE)
        assert not np.any(said["wave"][row, samples:])
        np.testing.assert_allclose(said["duration"][row, : len(spoken.tokens)], spoken.durations, atol=TOLERANCE)


def test_a_row_hears_its_own_reference_and_an_empty_row_says_nothing(speak: Any) -> None:
    clip = np.random.default_rng(3).normal(-3, 1, (2, 50, 20))
    texts = ("abc def", "abc def")
    plain, one, both = (
        speak(**inputs_for(*texts, reference_mel=clip, reference_length=lengths))["mel"].numpy()
        for lengths in ([0, 0], [0, 50], [50, 50])
    )
    np.testing.assert_allclose(one[0], plain[0], atol=TOLERANCE)
    np.testing.assert_allclose(one[1], both[1], atol=TOLERANCE)
    assert np.abs(one[1] - plain[1]).max() > 10 * TOLERANCE

    said = speak(**inputs_for("abc def"))
    np.testing.assert_allclose(said["mel"][0], plain[0], atol=TOLERANCE)
    assert (int(said["mel_length"][1]), int(said["wave_length"][1]), bool(said["has_stopped"][1])) == (0, 0, True)
    assert not np.any(said["wave"][1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"text_length": [25, 1]}, r"text_length: expected 0 to.*24.*found.*25"),
        ({"tokens": np.full((2, 24), 99)}, r"tokens: expected 0 to"),
        ({"speaker": [0, 2]}, r"speaker: expected 0 to"),
        ({"reference_length": [1, 0]}, r"reference_length: expected 0 to"),
        ({"reference_mel": np.full((2, 9, 20), np.nan)}, "reference_mel: found NaN"),
    ],
)
def test_an_input_out_of_range_is_an_error_and_no_noise(speak: Any, changed: dict[str, object], message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.compile(message, re.DOTALL)):
        speak(**inputs_for("abc", **changed))


def test_the_description_is_enough_to_speak(synthesizer: Synthesizer, vocoder: Path, exported: Path) -> None:
    about = json.loads((exported / "xtts.json").read_text(encoding="utf-8"))
    checkpoint = synthesizer.checkpoint
    assert list(about["tokens"]["symbols"]) == list(SYMBOLS)
    assert [about["tokens"][name] for name in ("pad", "begin", "end", "blank")] == [0, 1, 2, None]
    assert about["tokens"]["symbols"]["a"] == 3 + SYMBOLS.index("a")
    assert (about["speakers"], about["languages"]) == (["ann", "bob"], ["en"])
    assert about["audio"] == checkpoint.config.audio.model_dump(mode="json")
    assert about["inputs"]["reference_mel"] == {"dtype": "float32", "shape": [2, None, 20]}
    assert "language" not in about["inputs"]
    assert about["outputs"]["mel"] == {"dtype": "float32", "shape": [2, 40, 20]}
    assert about["outputs"]["duration"]["shape"] == [2, 24]
    assert about["vocoder"] == {"step": 9, "weights_sha256": read_run_state(vocoder).weights.sha256}
    state = json.loads((checkpoint.folder / "state.json").read_bytes())
    assert about["weights_sha256"] == state["weights"]["sha256"]


def test_xla_with_griffin_lim_says_the_same_and_a_model_without_voices_takes_no_reference(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", voice_latents=0, decoder_layers=1)
    # With guidance, the sound of random weights is so far over full scale that its rounding exceeds the tolerance.
    plain = "synthesis.guidance=1"
    result = export("--run", run, "--output", tmp_path / "out", "--jit-compile", "--json", "--set", plain)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    names = ("output", "step", "jit_compile", "vocoder")
    assert tuple(report[name] for name in names) == (str(tmp_path / "out"), 7, True, None)
    assert set(report["inputs"]) == {"tokens", "text_length", "speaker"}
    inputs = {name: inputs_for("abc")[name][:1] for name in report["inputs"]}
    said = tf.saved_model.load(str(tmp_path / "out")).signatures[report["signature"]](**inputs)
    spoken = Synthesizer.load(run, [plain]).synthesize("abc")
    np.testing.assert_allclose(said["mel"][0, : len(spoken.mel)], spoken.mel, atol=TOLERANCE)
    np.testing.assert_allclose(said["wave"][0, : len(spoken.wave)], spoken.wave, atol=TOLERANCE)
    assert not bool(said["has_stopped"][0])


def test_a_folder_that_is_there_is_refused_and_kept(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    error = export("--run", run, "--output", tmp_path / "out").exception
    assert isinstance(error, OutputError)
    assert (error.exit_code, str(error)) == (
        2,
        f"{tmp_path / 'out'}: is there already; remove it, or choose a new folder with --output",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_folder_one_stands_in_is_there_already(run: Path) -> None:
    error = export("--run", run, "--output", ".").exception
    assert isinstance(error, OutputError)
    assert "is there already" in str(error)


def test_settings_of_speaking_are_those_given(run: Path, tmp_path: Path) -> None:
    result = export("--run", run, "--output", tmp_path / "out", "--set", "synthesis.max_frames_per_token=1")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "xtts.json").read_text())["synthesis"]["max_frames_per_token"] == 1.0


@pytest.mark.parametrize(
    "failure",
    [
        OSError(28, "No space left on device"),
        tf.errors.ResourceExhaustedError(None, None, "disk full"),
        KeyboardInterrupt(),
    ],
)
def test_nothing_is_left_of_an_export_that_failed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(_checkpoint: object) -> None:
        (partial,) = (tmp_path / ".out.partial").iterdir()
        (partial / "saved_model.pb").write_bytes(b"half")
        raise failure

    monkeypatch.setattr("xtts_pipeline.inference.export.saved_model.load_network", fail)
    (tmp_path / ".out.partial").mkdir()  # left behind by an export that was killed
    result = export("--run", run, "--output", tmp_path / "out")
    assert result.exit_code != 0
    if not isinstance(failure, KeyboardInterrupt):
        assert isinstance(result.exception, OutputError)
        assert str(result.exception).startswith(f"{tmp_path / 'out'}: cannot be written (")
    assert list(tmp_path.iterdir()) == []

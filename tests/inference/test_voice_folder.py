"""`xtts export --format voice`: the folder speaks as its run does, and a changed file is refused."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

from tests.calling import error_of, refusal, xtts
from tests.damage import flip_bit, forged
from tests.speaking import make_run
from xtts_pipeline.config.load import load_config
from xtts_pipeline.errors import CheckpointError, DamagedVoiceError, OutputError
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.inference.voice_folder import verify_voice
from xtts_pipeline.system.sealed_json import unseal_json
from xtts_pipeline.training.checkpoints.files import load_checkpoint
from xtts_pipeline.vocoder.neural import NeuralVocoder

TERMS = ("--license", "CC-BY-4.0", "--data-license", "CC0-1.0; the speaker consents")
USED = (
    "voice.json",
    "config.yaml",
    "acoustic/state.json",
    "acoustic/weights.safetensors",
    "vocoder/state.json",
    "vocoder/weights.safetensors",
)
TEXT = "the first sentence, the second."


@pytest.fixture(scope="module")
def exported(run: Path, vocoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return a voice folder, moved from where it was written, and the report of its export."""
    folder = tmp_path_factory.mktemp("voices")
    options = ("--vocoder", vocoder, "--output", folder / "new", "--set", "synthesis.flow_steps=2", "--json")
    result = xtts("export", "--run", run, *TERMS, *options)
    assert result.exit_code == 0, result.output
    return (folder / "new").rename(folder / "ann"), json.loads(result.stdout)


@pytest.fixture
def voice(exported: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """Return a copy of the voice folder, to be changed."""
    return Path(shutil.copytree(exported[0], tmp_path / "voice"))


def test_a_moved_voice_speaks_as_its_run_with_its_vocoder(
    run: Path, vocoder: Path, exported: tuple[Path, dict[str, Any]]
) -> None:
    expected = Synthesizer.load(run, ["synthesis.flow_steps=2"], vocoder=vocoder).synthesize(TEXT, "bob")
    spoken = Synthesizer.load(str(exported[0])).synthesize(TEXT, "bob")
    np.testing.assert_array_equal(spoken.wave, expected.wave)
    assert spoken.wave.size > 0


def test_the_checksum_of_the_vocoder_is_that_of_the_loaded_one(run: Path, vocoder: Path) -> None:
    spoken_by = Synthesizer.load(run, vocoder=vocoder).vocoder
    assert isinstance(spoken_by, NeuralVocoder)
    assert spoken_by.weights_sha256 == load_checkpoint(vocoder).weights_sha256


def test_the_folder_holds_what_the_report_says(exported: tuple[Path, dict[str, Any]]) -> None:
    voice, report = exported
    listed = unseal_json((voice / "voice.json").read_bytes())["files"]
    found = {str(path.relative_to(voice)) for path in voice.rglob("*") if path.is_file()}
    assert found == {*USED, "README.md", "samples/en-1.wav", "samples/en-2.wav"} == {*listed, "voice.json"}
    assert report["samples"] == ["samples/en-1.wav", "samples/en-2.wav"]
    assert report["bytes"] == sum((voice / name).stat().st_size for name in found)
    assert (report["step"], report["vocoder"]["step"], report["languages_without_samples"]) == (7, 9, [])
    assert soundfile.info(voice / "samples" / "en-1.wav").frames > 0
    assert load_config([str(voice / "config.yaml")]).synthesis.flow_steps == 2
    metadata = yaml.safe_load((voice / "README.md").read_text(encoding="utf-8").split("---")[1])
    assert (metadata["license"], metadata["language"]) == ("cc-by-4.0", ["en"])


def test_synthesize_takes_a_voice_in_place_of_a_run(voice: Path, tmp_path: Path) -> None:
    result = xtts("synthesize", "--voice", voice, "--text", "a word", "--output", tmp_path / "a.wav", "--json")
    assert json.loads(result.stdout)["step"] == 7
    assert xtts("synthesize", "--voice", voice, "--list-speakers").output.split() == ["ann", "bob"]


@pytest.mark.parametrize("options", [(), ("--run", "{run}", "--voice", "{voice}")], ids=["neither", "both"])
def test_run_and_voice_exclude_each_other(run: Path, voice: Path, options: tuple[str, ...]) -> None:
    words = [option.format(run=run, voice=voice) for option in options]
    result = xtts("synthesize", *words, "--text", "a", "--output", "a.wav")
    assert (result.exit_code, "expected one of --run and --voice" in result.output) == (2, True)


@pytest.mark.parametrize("name", USED)
def test_a_flipped_bit_is_refused_with_the_name_of_the_file(voice: Path, name: str) -> None:
    flip_bit(voice / name, (voice / name).stat().st_size // 2)
    error = xtts("synthesize", "--voice", voice, "--text", "a", "--output", "a.wav").exception
    assert isinstance(error, DamagedVoiceError)
    assert str(error).startswith(f"{voice / name}: ")
    assert error.exit_code == 1
    with pytest.raises(DamagedVoiceError):
        Synthesizer.load(voice)


def test_the_card_and_the_samples_may_be_edited(voice: Path) -> None:
    (voice / "README.md").write_text("another card", encoding="utf-8")
    (voice / "samples" / "en-1.wav").unlink()
    assert verify_voice(voice).terms.license == "CC-BY-4.0"


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "acoustic/../../x", "samples/../x.wav", "vocoder"])
def test_a_manifest_that_names_another_path_is_refused(voice: Path, name: str) -> None:
    with forged(voice / "voice.json") as content:
        content["files"][name] = content["files"]["config.yaml"]
    with pytest.raises(DamagedVoiceError, match="expected the files of a voice folder alone"):
        verify_voice(voice)


def test_a_manifest_without_a_needed_file_is_refused(voice: Path) -> None:
    with forged(voice / "voice.json") as content:
        del content["files"]["vocoder/state.json"]
    with pytest.raises(DamagedVoiceError, match=r"found no vocoder/state\.json"):
        verify_voice(voice)


def test_a_vocoder_that_the_manifest_does_not_name_is_refused(voice: Path) -> None:
    with forged(voice / "voice.json") as content:
        content["files"] = {name: file for name, file in content["files"].items() if "vocoder" not in name}
    with pytest.raises(DamagedVoiceError, match=r"vocoder: is not in voice\.json"):
        verify_voice(voice)


def test_links_and_missing_files_are_refused(voice: Path, tmp_path: Path) -> None:
    weights = voice / "acoustic" / "weights.safetensors"
    weights.rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedVoiceError, match=r"weights\.safetensors: cannot be read \(No such file"):
        verify_voice(voice)
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedVoiceError, match="a link, expected a regular file"):
        verify_voice(voice)


def test_a_voice_of_another_version_and_a_folder_without_manifest_are_refused(voice: Path) -> None:
    with forged(voice / "voice.json") as content:
        content["voice_version"] = 2
    with pytest.raises(CheckpointError, match="found voice version 2, expected 1"):
        verify_voice(voice)
    (voice / "voice.json").unlink()
    error = error_of(xtts("synthesize", "--voice", voice, "--text", "a", "--output", "a.wav"))
    assert isinstance(error, CheckpointError)
    assert "found no voice.json" in str(error)


@pytest.mark.parametrize(
    ("given", "missing"),
    [((), "no --license and no --data-license"), (TERMS[:2], "no --data-license;"), (TERMS[2:], "no --license;")],
    ids=["neither", "license", "data license"],
)
def test_both_licenses_are_asked_for(run: Path, tmp_path: Path, given: tuple[str, ...], missing: str) -> None:
    result = xtts("export", "--run", run, "--output", tmp_path / "voice", *given)
    assert (result.exit_code, missing in result.output) == (2, True), result.output
    assert not (tmp_path / "voice").exists()


def test_an_empty_license_is_a_usage_error(run: Path, tmp_path: Path) -> None:
    assert xtts("export", "--run", run, "--output", tmp_path, "--license", " ", *TERMS[2:]).exit_code == 2


def test_a_voice_keeps_its_vocoder(voice: Path, vocoder: Path) -> None:
    error = xtts("use-vocoder", "--run", voice, "--vocoder", vocoder).exception
    assert isinstance(error, OutputError)
    assert "a voice folder holds its vocoder" in str(error)


def test_figures_of_other_settings_are_not_those_of_the_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = SimpleNamespace(overrides=["synthesis.pitch_range=1.3"])
    monkeypatch.setattr("xtts_pipeline.inference.export.voice.read_evaluation", lambda *_: measured)
    words = (
        "export",
        "--run",
        make_run(tmp_path / "run"),
        "--evaluation",
        tmp_path,
        "--output",
        tmp_path / "voice",
        *TERMS,
    )
    said = refusal(*words)
    assert "found figures with synthesis.pitch_range=1.3, expected the settings of the run; give xtts evaluate" in said
    assert not (tmp_path / "voice").exists()


def test_a_language_without_a_known_sentence_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none.txt").touch()
    monkeypatch.setattr("xtts_pipeline.inference.export.voice.SENTENCES_FILE", tmp_path / "none.txt")
    result = xtts("export", "--run", make_run(tmp_path / "run"), "--output", tmp_path / "voice", *TERMS)
    assert result.exit_code == 0, result.output
    assert "no samples of en" in result.stderr
    assert "a voice with Griffin-Lim and 0 samples" in result.stdout
    assert Synthesizer.load(tmp_path / "voice").vocoder.__class__.__name__ == "GriffinLim"


@pytest.mark.parametrize("damaged", ["run", "vocoder"])
def test_weights_that_do_not_fit_their_settings_are_those_of_the_run(
    run: Path, vocoder: Path, damaged: str, tmp_path: Path
) -> None:
    runs = {"run": tmp_path / "run", "vocoder": tmp_path / "vocoder"}
    for name, original in (("run", run), ("vocoder", vocoder)):
        shutil.copytree(original, runs[name])
    (state,) = (runs[damaged] / "checkpoints").glob("*/state.json")
    with forged(state) as content:
        content["config"]["model"]["encoder_layers"] = content["config"]["vocoder"]["blocks"] = 1
        content["config"]["model"]["width"] = 4
    error = error_of(
        xtts("export", "--run", runs["run"], "--vocoder", runs["vocoder"], "--output", tmp_path / "v", *TERMS)
    )
    assert str(error).startswith(f"{state.parent}: ")
    assert "another model's weights" in str(error)
    assert not (tmp_path / "v").exists()

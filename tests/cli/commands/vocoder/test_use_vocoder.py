"""`xtts use-vocoder`, and the choice of the vocoder by the commands that speak."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.calling import error_of, xtts
from tests.speaking import make_run, make_vocoder
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.training.checkpoints.run_folder import (
    VOCODER_NAME,
    checkpoint_folders,
    open_run_folder,
    read_vocoder_path,
)
from xtts_pipeline.vocoder.griffin_lim import GriffinLim
from xtts_pipeline.vocoder.neural import NeuralVocoder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.fixture(scope="module")
def vocoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vocoder(tmp_path_factory.mktemp("vocoders") / "vocoder")


def use(run: Path, vocoder: object) -> Result:
    return xtts("use-vocoder", "--run", run, "--vocoder", vocoder)


def test_a_run_remembers_its_vocoder_until_it_is_told_to_forget(run: Path, vocoder: Path) -> None:
    assert use(run, vocoder).stdout == f"{run}: speaks with the vocoder {vocoder} from now on\n"
    assert (run / VOCODER_NAME).read_text() == f"{vocoder}\n{os.path.relpath(vocoder, run)}\n"
    for named, expected in ((None, NeuralVocoder), ("griffin-lim", GriffinLim)):
        assert isinstance(Synthesizer.load(str(run), vocoder=named).vocoder, expected)
    assert isinstance(Synthesizer.load(checkpoint_folders(run)[0]).vocoder, NeuralVocoder)

    assert use(run, "griffin-lim").stdout == f"{run}: speaks with Griffin-Lim from now on\n"
    assert isinstance(Synthesizer.load(run).vocoder, GriffinLim)
    assert use(run, "griffin-lim").exit_code == 0


def test_a_vocoder_is_remembered_by_its_absolute_path_in_the_folder_of_the_run(
    run: Path, vocoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(vocoder.parent)
    assert use(checkpoint_folders(run)[0], vocoder.name).exit_code == 0
    assert (run / VOCODER_NAME).read_text().splitlines()[0] == str(vocoder)
    with open_run_folder(run):  # training goes on in a run that remembers a vocoder
        pass


def test_a_vocoder_whose_weights_were_cut_is_refused(run: Path, vocoder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(vocoder, tmp_path / "copy")
    weights = checkpoint_folders(copy)[-1] / "weights.safetensors"
    whole = weights.stat().st_size
    os.truncate(weights, whole - 4)
    assert f"{weights}: {whole - 4} bytes, expected {whole}" in str(error_of(use(run, copy)))
    weights.unlink()
    assert f"{weights}: no such file" in str(error_of(use(run, copy)))
    assert read_vocoder_path(run) is None


def test_a_run_and_its_vocoder_may_be_moved_together_or_alone(run: Path, vocoder: Path, tmp_path: Path) -> None:
    beside = shutil.copytree(vocoder, tmp_path / "vocoder")
    assert use(run, beside).exit_code == 0
    alone = shutil.copytree(run, tmp_path / "elsewhere" / "run")
    assert read_vocoder_path(alone) == beside
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert read_vocoder_path(moved / "run") == moved / "vocoder"
    assert isinstance(Synthesizer.load(moved / "run").vocoder, NeuralVocoder)
    assert read_vocoder_path(moved / "elsewhere" / "run") == beside


def test_a_file_above_the_run_is_not_its_own(run: Path, vocoder: Path) -> None:
    """A run may lie in another one's folder."""
    (run.parent / VOCODER_NAME).write_text(f"{vocoder}\n")
    for path in (run, checkpoint_folders(run)[0]):
        assert isinstance(Synthesizer.load(path).vocoder, GriffinLim)


def test_the_vocoder_of_the_option_makes_the_sound(run: Path, vocoder: Path, tmp_path: Path) -> None:
    waves = []
    for number, named in enumerate([vocoder, str(checkpoint_folders(vocoder)[0]), "griffin-lim"]):
        output = tmp_path / f"{number}.wav"
        result = xtts("synthesize", "--run", run, "--text", "abc", "--output", output, "--vocoder", named)
        assert result.exit_code == 0, result.output
        waves.append(output.read_bytes())
    assert waves[0] == waves[1] != waves[2]


def test_streamed_speech_equals_whole_speech_and_a_warm_up_traces_for_both(run: Path, vocoder: Path) -> None:
    synthesizer = Synthesizer.load(run, ["synthesis.max_frames_per_token=16"], vocoder=vocoder)
    assert isinstance(synthesizer.vocoder, NeuralVocoder)
    synthesizer.warm_up()
    assert synthesizer.vocoder.frames_of_block.experimental_get_tracing_count() == 1
    text = "one two three four, five six. seven eight nine."
    whole = synthesizer.synthesize(text)
    streamed = np.concatenate([*synthesizer.stream(text)])
    assert len(whole.wave) == (len(whole.mel) - 1) * 256
    # An untrained network is far too loud, and the rounding of float32 grows with the sound.
    loudest = np.abs(whole.wave).max()
    np.testing.assert_allclose(streamed / loudest, whole.wave / loudest, atol=1e-5)
    assert synthesizer.vocoder.frames_of_block.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("command", ["use-vocoder", "synthesize"])
def test_a_vocoder_of_another_mel_is_refused_with_each_difference(run: Path, tmp_path: Path, command: str) -> None:
    other = make_vocoder(tmp_path / "other", sample_rate=16_000, hop_samples=200, trim_db=30.0, max_hz=7_600.0)
    words = ["--text", "a", "--output", tmp_path / "a.wav"] if command == "synthesize" else []
    assert str(error_of(xtts(command, "--run", run, "--vocoder", other, *words))) == (
        f"{other}: not a vocoder for {run}: audio.sample_rate: the vocoder has 16000, the run 22050; "
        "audio.hop_samples: the vocoder has 200, the run 256; audio.max_hz: the vocoder has 7600, the run 8000; "
        "name a vocoder trained on a cache with the run's audio settings"
    )
    assert not (run / VOCODER_NAME).exists()


def test_a_run_and_a_vocoder_are_not_taken_for_each_other(run: Path, vocoder: Path, tmp_path: Path) -> None:
    assert f"{run}: found the weights of an acoustic model, expected those of a vocoder;" in str(
        error_of(use(run, run))
    )
    speak = ("synthesize", "--text", "a", "--output", tmp_path / "a.wav", "--run")
    for result in (xtts(*speak, vocoder), use(vocoder, vocoder)):
        assert "found the weights of a vocoder, expected those of an acoustic model" in str(error_of(result))


def test_a_vocoder_that_is_missing_is_refused_when_it_is_named(run: Path, vocoder: Path) -> None:
    missing = vocoder.with_name("vocodr")
    remedy = f"did you mean {vocoder}?; or name griffin-lim, which needs no run"
    assert str(error_of(use(run, missing))) == f"{missing}: nothing is there; {remedy}"


@pytest.mark.parametrize("damage", ["gone", "state.json", "weights.safetensors"])
def test_a_remembered_vocoder_that_cannot_be_read_names_the_ways_out(run: Path, tmp_path: Path, damage: str) -> None:
    vocoder, moved = make_vocoder(tmp_path / "vocoder"), tmp_path / "moved"
    assert use(run, vocoder).exit_code == 0
    if damage == "gone":
        vocoder.rename(moved)
    else:
        file = checkpoint_folders(vocoder)[0] / damage
        file.write_bytes(file.read_bytes()[:-9])
    speak = ("synthesize", "--run", run, "--text", "a", "--output", tmp_path / "a.wav")
    message = str(error_of(xtts(*speak)))
    assert message.startswith(str(vocoder))
    assert message.endswith(
        "; the run remembers this vocoder: speak with --vocoder griffin-lim, or set another by use-vocoder"
    )
    assert xtts(*speak, "--vocoder", "griffin-lim").exit_code == 0

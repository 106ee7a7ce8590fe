import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
from click.testing import Result

from tests import speaking
from tests.calling import error_of, xtts
from tests.speaking import make_run
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.cli.commands.synthesize import SpokenFile, SynthesisReport, say_speaker, warn_of_unread
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import (
    AudioError,
    CheckpointError,
    ConfigError,
    CorpusError,
    OutputError,
    TextError,
    XttsError,
)
from xtts_pipeline.inference.synthesizer import Synthesizer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "voice.wav", 0.3 * np.sin(0.1 * np.arange(16_000)), 16_000)
    return tmp_path / "voice.wav"


def synthesize(*words: object, **options: Any) -> Result:
    return xtts("synthesize", *words, **options)


def refusal(*words: object) -> XttsError:
    return error_of(synthesize(*words))


def test_each_line_of_a_file_becomes_a_file_in_line_order(run: Path, tmp_path: Path) -> None:
    lines = ["a", "bcd efg hij klm", "one, two, three, four, five, six.", "z"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = synthesize("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    report, synthesizer = json.loads(result.stdout), Synthesizer.load(run)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"000{number}.wav" for number in range(4)]
    for number, line in enumerate(lines):
        alone = synthesizer.synthesize(line)
        assert soundfile.info(tmp_path / "out" / f"000{number}.wav").frames == len(alone.wave)
        assert report["files"][number]["mel_frames"] == len(alone.mel)
    assert report["mel_frames"] == sum(file["mel_frames"] for file in report["files"])
    assert report["has_stopped"] is False


def test_blank_lines_are_skipped(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\na\n \nbcd\n\n", encoding="utf-8")
    result = synthesize("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0000.wav", "0001.wav"]


def test_lines_without_a_letter_or_digit_are_left_out_with_one_warning(run: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a\n* * *\nbcd\n😀😀\n", encoding="utf-8")
    result = synthesize("--run", run, "--text-file", lines, "--output", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"warning: {lines}:2, 4: nothing to speak, left out\n" in result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0000.wav", "0001.wav"]


def test_a_sound_file_is_refused_as_the_output_for_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "used").touch()
    for name in ("speech.mp3", "used"):
        error = refusal("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / name)
        assert str(error).endswith("is a file, expected a folder for the lines of --text-file; name a new folder")


def test_a_stream_is_a_wav_file(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "speech.wav"
    result = synthesize(
        "--run", run, "--text", "one, two, three, four, five.", "--output", output, "--stream", "--json"
    )
    assert result.exit_code == 0, result.output
    wave, rate = soundfile.read(output)
    report = json.loads(result.stdout)
    assert rate == 22_050
    assert len(wave) == (report["mel_frames"] - 1) * 256
    assert report["seconds"] == pytest.approx(len(wave) / rate)


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "streamed"])
def test_only_sound_is_written_to_stdout(run: Path, options: tuple[str, ...]) -> None:
    result = synthesize("--run", run, "--text", "abc", "--output", "-", *options)
    assert result.exit_code == 0, result.output
    assert result.stdout_bytes[:4] == b"RIFF"
    assert len(result.stdout_bytes) == 44 + 2 * 9 * 256
    assert "10 frames" in result.stderr


def test_changed_characters_are_named_in_one_warning(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("Hello, wörld!\nCafé? Yes! ☃ \a\n", encoding="utf-8")
    result = synthesize("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out", "--json")
    assert result.exit_code == 0, result.output
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning: characters")]
    assert warning == (
        "warning: characters that the run lacks: '!' became '.' (2 times), 'ö' became 'o' (once), "
        "'é' became 'e' (once), '?' became '.' (once); dropped '☃' (once)"
    )


def test_strict_text_names_the_line_of_an_unknown_character(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("hello\nna\u00efve\n", encoding="utf-8")
    asked = ("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out")
    error = refusal(*asked, "--strict-text")
    assert "lines.txt:2: text 'naïve': 'ï' (U+00EF LATIN SMALL LETTER I WITH DIAERESIS)" in str(error)
    assert not (tmp_path / "out").exists()


def test_strict_text_refuses_a_line_of_a_sign_that_is_read_in_other_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaking, "SYMBOLS", tuple(symbol for symbol in speaking.SYMBOLS if symbol != "p"))
    run = make_run(tmp_path / "run")
    (tmp_path / "lines.txt").write_text("hello\n%\n", encoding="utf-8")
    asked = ("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out")
    assert "lines.txt:2: text '%': 'p'" in str(refusal(*asked, "--strict-text"))


def test_a_reference_changes_the_speech(run: Path, tmp_path: Path, clip: Path) -> None:
    mels = []
    asked = ("--run", run, "--text", "abc", "--output", tmp_path / "a.wav", "--mel-output", tmp_path / "a.npy")
    for options in ((), ("--reference", clip)):
        assert synthesize(*asked, *options).exit_code == 0
        mels.append(np.load(tmp_path / "a.npy"))
    assert np.abs(mels[0] - mels[1]).max() > 1e-4


def test_synthesis_settings_can_be_overridden(run: Path, tmp_path: Path) -> None:
    frames = []
    for options in ((), ("--set", "synthesis.max_frames_per_token=1")):
        result = synthesize("--run", run, "--text", "abc", "--output", tmp_path / "a.wav", "--json", *options)
        assert result.exit_code == 0, result.output
        frames.append(json.loads(result.stdout)["mel_frames"])
    assert frames == [10, 5]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.steps=3", "a trained run takes synthesis.* alone"),
        ("synthesis.flow_step=2", "did you mean synthesis.flow_steps?"),
        ("synthesis.flow_steps=0", "--set synthesis.flow_steps=0: input should be greater than or equal to 1"),
        ("synthesis", "expected section.key=value"),
    ],
)
def test_an_invalid_synthesis_setting_is_named(run: Path, tmp_path: Path, override: str, message: str) -> None:
    error = refusal("--run", run, "--text", "a", "--output", tmp_path / "a.wav", "--set", override)
    assert isinstance(error, ConfigError)
    assert message in str(error)
    assert not (tmp_path / "a.wav").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "\n\n😀\n".encode(),
            r"lines\.txt:3: text '😀': no letter or digit to speak; give words in the letters of the run$",
        ),
        (b"", "no lines"),
        (b" \n\n", "no lines"),
        (b"abc\n\xff\n", "byte 4 is not UTF-8"),
        ("abc\nф\n".encode(), r"lines\.txt:2: .*no letter or digit is among the 30 symbols \(dropped 'ф' \(once\)\)"),
    ],
)
def test_a_line_that_cannot_be_spoken_is_named_before_tensorflow_starts(
    run: Path, tmp_path: Path, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xtts_pipeline.cli.commands.synthesize.tensorflow", None)
    (tmp_path / "lines.txt").write_bytes(content)
    error = refusal("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out")
    assert isinstance(error, (CorpusError, TextError))
    with pytest.raises(XttsError, match=message):
        raise error
    assert not (tmp_path / "out").exists()


def test_the_files_of_a_text_file_are_not_mixed_with_those_of_another(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "0001.wav").write_bytes(b"of a longer text file")
    error = refusal("--run", run, "--text-file", tmp_path / "lines.txt", "--output", tmp_path / "out")
    assert "this folder is not empty; choose another --output" in str(error)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["0001.wav"]


@pytest.mark.parametrize("option", ["--text-file", "--reference"])
def test_a_pipe_and_a_device_are_refused_at_once(run: Path, tmp_path: Path, option: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    texts, output = ((), tmp_path / "out") if option == "--text-file" else (("--text", "a"), tmp_path / "out.wav")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        error = refusal("--run", run, *texts, option, path, "--output", output)
        assert f"{path}: cannot be read (no regular file)" in str(error)
    (tmp_path / "loop").symlink_to("loop")
    assert "loop: cannot be read" in str(refusal("--run", run, *texts, option, tmp_path / "loop", "--output", output))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of --text and --text-file"),
        (("--text", "a", "--text-file", "b"), "one of --text and --text-file"),
        (("--text-file", "b", "--stream"), "leave out --stream"),
        (("--text", "a", "--stream", "--plot", "p.png"), "--plot, --mel-output and --timings"),
        (("--text", "a", "--speaker", "ann", "--reference", "a.wav"), "takes the speaker's place"),
    ],
)
def test_options_that_exclude_each_other_are_an_error(
    run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    error = refusal("--run", run, "--output", tmp_path / "a.wav", *arguments)
    assert isinstance(error, ConfigError)
    assert message in str(error)
    assert not (tmp_path / "a.wav").exists()


def test_a_folder_of_runs_is_refused_with_the_runs_in_it(run: Path) -> None:
    error = refusal("--run", run.parent, "--text", "a", "--output", "a.wav")
    assert f"no checkpoint here; it holds the run {run.name}; name {run}" in str(error)


def test_a_misspelled_run_is_refused_with_the_similar_one(run: Path) -> None:
    error = refusal("--run", run.with_name(f"{run.name}x"), "--text", "a", "--output", "a.wav")
    assert str(error).endswith(f"nothing is there; did you mean {run}?")


def test_sound_and_picture_are_in_the_formats_of_their_suffixes(run: Path, tmp_path: Path) -> None:
    speech, picture, timings = (tmp_path / f"speech.{suffix}" for suffix in ("mp3", "svg", "json"))
    result = synthesize("--run", run, "--text", "abc", "--output", speech, "--plot", picture, "--timings", timings)
    assert result.exit_code == 0, result.output
    spoken = json.loads(timings.read_text(encoding="utf-8"))
    assert [word["word"] for word in spoken["words"]] == ["abc"]
    # 5 tokens of at most 2 frames of 256 samples each, in all.
    assert spoken["tokens"][-1]["end"] == pytest.approx(10 * 256 / 22_050, abs=1e-3)
    assert soundfile.info(speech).format == "MP3"
    assert picture.read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize("output", ["-", "speech.wav"])
def test_a_text_file_needs_a_folder(run: Path, output: str) -> None:
    error = refusal("--run", run, "--text-file", "b", "--output", output)
    assert "expected a folder for the lines of --text-file; name a new folder" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--output", "a.mp4"),
            "found the suffix .mp4, expected .wav or .flac or .mp3 or .ogg; rename the file",
        ),
        (
            ("--output", "a.mp3", "--stream"),
            "found the suffix .mp3, expected .wav, which --stream writes; rename the file, or leave out --stream",
        ),
        (("--output", "a.wav", "--plot", "a.bmp"), "a.bmp: found the suffix .bmp, expected .png or .svg or .pdf;"),
        (("--output", "a.wav", "--mel-output", "a.npz"), "a.npz: found the suffix .npz, expected .npy;"),
    ],
)
def test_an_unknown_suffix_is_refused_before_the_run_is_loaded(
    run: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("loaded"))
    assert message in str(refusal("--run", run, "--text", "a", *options))


@pytest.mark.parametrize(("option", "names"), [("--list-speakers", ["ann", "bob"]), ("--list-languages", ["en"])])
def test_the_names_of_a_run_are_listed_without_a_text(run: Path, option: str, names: list[str]) -> None:
    assert synthesize("--run", run, option).stdout.splitlines() == names
    assert json.loads(synthesize("--run", run, option, "--json").stdout) == names


def test_a_text_without_an_output_is_a_usage_error(run: Path) -> None:
    result = synthesize("--run", run, "--text", "a")
    assert result.exit_code == 2
    assert "--output: found none" in result.output


def test_lines_come_from_stdin(run: Path, tmp_path: Path) -> None:
    words = ("--run", run, "--text-file", "-", "--output", tmp_path / "out")
    assert synthesize(*words, input="a\nb\n").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0000.wav", "0001.wav"]
    error = synthesize(*words, input="").exception
    assert "stdin: no lines" in str(error)


def test_an_endless_stdin_is_refused_at_the_limit_of_a_file(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xtts_pipeline.cli.commands.synthesize.MAX_TEXT_FILE_BYTES", 4)
    words = ("--run", run, "--text-file", "-", "--output", tmp_path / "out")
    error = synthesize(*words, input="a\nb\n" * 3).exception
    assert isinstance(error, CorpusError)
    assert error.exit_code == 2
    assert str(error) == "stdin: found more than 4 bytes, expected at most as many; give the texts in parts"
    assert not (tmp_path / "out").exists()
    assert synthesize(*words, input="a\nb\n").exit_code == 0


def test_a_run_of_one_speaker_says_that_it_cannot_clone(tmp_path: Path, clip: Path) -> None:
    run = make_run(tmp_path / "run", speakers=("ann",))
    result = synthesize("--run", run, "--text", "a", "--output", tmp_path / "a.wav", "--reference", clip)
    assert result.exit_code == 0, result.output
    assert f"warning: {run} was trained on one speaker and cannot clone a voice" in result.stderr


def test_a_reference_for_a_model_that_takes_none_is_an_error_without_a_warning(tmp_path: Path, clip: Path) -> None:
    run = make_run(tmp_path / "run", speakers=("ann",), voice_latents=0)
    result = synthesize("--run", run, "--text", "a", "--output", tmp_path / "a.wav", "--reference", clip)
    assert isinstance(result.exception, CheckpointError)
    assert "the model cannot clone a voice (model.voice_latents=0)" in str(result.exception)
    assert "warning" not in result.stderr


def test_paths_may_be_text(run: Path, clip: Path) -> None:
    spoken = Synthesizer.load(str(run)).synthesize("abc", references=[str(clip)])
    assert len(spoken.mel) == 10


def test_an_output_without_a_file_name_is_refused(run: Path) -> None:
    assert "is a folder; name a file" in str(refusal("--run", run, "--text", "a", "--output", "."))
    result = synthesize("--run", run, "--text", "a", "--output", "")
    assert (result.exit_code, "found an empty name" in result.stderr) == (2, True)


def test_a_text_that_is_not_utf_8_is_refused(run: Path, tmp_path: Path) -> None:
    error = refusal("--run", run, "--text", "caf\udce9", "--output", tmp_path / "a.wav", "--plot", tmp_path / "a.png")
    assert "not UTF-8" in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_stream_into_a_pipe_has_a_header_of_unknown_length(run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    result = synthesize(
        "--run", run, "--text", "one, two, three, four, five.", "--output", tmp_path / "pipe", "--stream"
    )
    reader.join()
    assert result.exit_code == 0, result.output
    assert heard[0][40:44] == b"\xff" * 4
    assert len(heard[0]) > 44


def test_the_error_of_a_full_disk_names_the_file(run: Path, tmp_path: Path) -> None:
    error = refusal("--run", run, "--text", "a", "--output", tmp_path / "a.wav", "--mel-output", "/dev/full")
    assert "/dev/full: cannot be written" in str(error)
    assert (tmp_path / "a.wav").is_file()


def test_json_beside_sound_on_stdout_is_a_usage_error(run: Path) -> None:
    assert synthesize("--run", run, "--text", "a", "--output", "-", "--json").exit_code == 2


def test_sound_is_not_written_to_a_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    result = synthesize("--run", run, "--text", "a", "--output", "-")
    assert result.exit_code == 2
    assert "--output -: stdout is a terminal; pipe it into a player, or name a file" in result.stderr
    assert not result.stdout_bytes


def test_an_unreadable_reference_is_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "voice.wav").write_bytes(b"no sound")
    error = refusal("--run", run, "--text", "a", "--output", tmp_path / "a.wav", "--reference", tmp_path / "voice.wav")
    assert isinstance(error, AudioError)
    assert "voice.wav: cannot be decoded" in str(error)


@pytest.mark.parametrize("options", [(), ("--stream",)], ids=["whole", "streamed"])
def test_an_output_that_cannot_be_written_is_named(run: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    error = refusal("--run", run, "--text", "a", "--output", tmp_path / "file" / "a.wav", *options)
    assert isinstance(error, OutputError)
    assert "file" in str(error)


def test_figures_that_the_language_does_not_read_are_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    spec = RecordSpec(16, 24, 4, -11.5)
    cache = CacheIdentity("fingerprint", spec, ("a",), ("Anna", "Ugo"), ("de", "it"), ("de", "it"))
    synthesizer: Any = SimpleNamespace(checkpoint=SimpleNamespace(cache=cache, config=Config()))
    warn_of_unread(synthesizer, ["Il 5%.", "Le 8:30."], None, "Ugo")
    warn_of_unread(synthesizer, ["5%"], "German", "Ugo")
    assert capsys.readouterr().err == (
        "speaking it of de, it; --language names another\n"
        "warning: language it: numbers are read, but signs, dates and times are not; write these in words\n"
    )


def test_the_speaker_that_is_chosen_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    spec = RecordSpec(16, 24, 4, -11.5)
    for speakers in (("Anna",), ("Anna", "Ugo")):
        say_speaker(CacheIdentity("fingerprint", spec, ("a",), speakers, ("de",), ("de",) * len(speakers)))
    assert capsys.readouterr().err == "speaker Anna, the first of 2; --speaker names another\n"


def test_a_run_is_no_voice_folder(run: Path, tmp_path: Path) -> None:
    error = refusal("--voice", run, "--text", "a", "--output", tmp_path / "a.wav")
    assert str(error) == f"--voice {run}: is a run, expected a voice folder; give it as --run {run}"


def test_speech_that_is_cut_comes_with_a_remedy() -> None:
    path = Path("a.wav")
    text = SynthesisReport(path, (SpokenFile(path, 1.0, 87, has_stopped=False),), 5).to_text()
    assert "cut by synthesis.max_frames_per_token: train longer, or split the text" in text


def test_words_that_are_not_spoken_as_written_are_one_warning_and_counted_in_json() -> None:
    files = (
        SpokenFile(Path("out/0.wav"), 1.0, 87, has_stopped=True),
        SpokenFile(Path("out/1.wav"), 1.0, 87, has_stopped=True, attempts=3, skipped_words=2, overlong_tokens=1),
        SpokenFile(Path("out/2.wav"), 1.0, 87, has_stopped=True, attempts=2),
    )
    report = SynthesisReport(Path("out"), files, 5)
    found = "not spoken as written: 1.wav (skipped words 2, overlong tokens 1)"
    remedy = "listen; more training, another --seed, a lower --speed or other words may help"
    assert report.warnings() == [f"{found}; {remedy}"]
    counts = ("attempts", "skipped_words", "repeated_words", "overlong_tokens")
    assert [report.to_json()[name] for name in counts] == [3, 2, 0, 1]
    assert SynthesisReport(Path("out"), files[:1], 5).warnings() == []

"""`xtts synthesize`: speak texts with a run, and write sound files."""

import io
import json
import os
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import numpy as np

from xtts_pipeline.audio.save import SOUND_FORMATS, WavStream, encode_wave, write_wave
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cli.echo import echo
from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    FOLDER,
    PICTURE,
    OutputFile,
    check_suffix,
    create_empty_folder,
    json_option,
    print_report,
    print_warnings,
)
from xtts_pipeline.cli.run_options import (
    RunPath,
    VoicePath,
    print_text_changes,
    reference_option,
    synthesis_option,
    vocoder_option,
    warn_of_one_voice,
)
from xtts_pipeline.config.languages import nearest_language
from xtts_pipeline.errors import ConfigError, CorpusError, OutputError, Reason, TextError, listed, output_errors
from xtts_pipeline.inference.guard import Faults
from xtts_pipeline.inference.pieces import TextSplitter
from xtts_pipeline.inference.timings import timings_to_json
from xtts_pipeline.plots import save_speech_picture
from xtts_pipeline.system.atomic_files import write_output
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.terminal import counted, duration_text, echo_line, has_surrogate
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.text.language_check import unread_figures
from xtts_pipeline.training.checkpoints.state import read_run_state

if TYPE_CHECKING:
    from xtts_pipeline.inference.speech import SpokenText
    from xtts_pipeline.inference.synthesizer import Synthesizer

# Speaker, language, references, speed, semitones and seed, as `Synthesizer.synthesize` takes them.
SpokenBy = tuple[str | None, str | None, Sequence[Path], float, float, int | None]

STDIN = STDOUT = Path("-")
# Batches of lines that are spoken before their files are written: enough to sort lines by length, and little memory.
BATCHES_AT_ONCE = 4
MAX_TEXT_FILE_BYTES = 16 << 20
TITLE_CHARACTERS = 300
_OTHER_PATH = "choose another path"
_EXPECTED_FOLDER = "expected a folder for the lines of --text-file; name a new folder"


@dataclass(frozen=True)
class SpokenFile:
    """A sound file that was written."""

    output: Path
    seconds: float
    mel_frames: int
    has_stopped: bool
    attempts: int = 1
    skipped_words: int = 0
    repeated_words: int = 0
    overlong_tokens: int = 0


@dataclass(frozen=True)
class SynthesisReport:
    """The written files: one for a text, or a folder of them for a file of texts."""

    output: Path
    files: tuple[SpokenFile, ...]
    step: int

    def to_json(self) -> dict[str, object]:
        """Return the report for programs, with `files` only if the output is a folder."""
        sums: dict[str, object] = {
            "output": str(self.output),
            "seconds": sum(file.seconds for file in self.files),
            "mel_frames": sum(file.mel_frames for file in self.files),
            "has_stopped": all(file.has_stopped for file in self.files),
            "attempts": max(file.attempts for file in self.files),
            **{name: sum(getattr(file, name) for file in self.files) for name in Faults._fields},
            "step": self.step,
        }
        if not self._is_single:
            sums["files"] = [{**vars(file), "output": str(file.output)} for file in self.files]
        return sums

    def to_text(self) -> str:
        """Return the report for people."""
        seconds, frames = sum(file.seconds for file in self.files), sum(file.mel_frames for file in self.files)
        cut = [file.output.name for file in self.files if not file.has_stopped]
        reason = "cut by synthesis.max_frames_per_token: train longer, or split the text"
        if self._is_single:
            ending = reason if cut else "stopped by itself"
        else:
            ending = f"{listed(cut)} {reason}" if cut else "all stopped by themselves"
        count = "" if self._is_single else f"{counted(len(self.files), 'file')}, "
        length = f"{count}{duration_text(seconds, 2)}, {frames} frames"
        return f"{self.output}: {length}, {ending} (checkpoint of step {self.step})"

    def warnings(self) -> list[str]:
        """Return one warning if words are not spoken as they should be."""
        found = []
        for file in self.files:
            faults = [f"{name.replace('_', ' ')} {vars(file)[name]}" for name in Faults._fields if vars(file)[name]]
            if faults:
                found.append(f"{file.output.name} ({', '.join(faults)})")
        if not found:
            return []
        remedy = "listen; more training, another --seed, a lower --speed or other words may help"
        return [f"not spoken as written: {listed(found)}; {remedy}"]

    @property
    def _is_single(self) -> bool:
        return len(self.files) == 1 and self.files[0].output == self.output


@click.command(
    cls=DocumentedCommand,
    example='xtts synthesize --run runs/first --text "Good morning." --output speech.wav',
    sections={
        "Voice": ["references", "speaker", "language", "speed", "semitones", "seed", "listed", "vocoder", "overrides"],
        "Other outputs": ["stream", "plot", "mel_output", "timings", "as_json"],
    },
)
@click.option("--run", type=RunPath(), help="Folder of the run, or one of its checkpoints.")
@click.option("--voice", type=VoicePath(), help="Voice folder of `xtts export`, in place of --run.")
@click.option("--text", help="Text to speak; a long one is split at its sentences.")
@click.option(
    "--text-file",
    type=FOLDER,
    help="UTF-8 file with one text per line, `-` for stdin; blank ones are skipped. --output is a folder: 0000.wav ...",
)
@click.option(
    "--output",
    type=FOLDER,
    help="WAV, FLAC, MP3 or OGG file to write, `-` for WAV on stdout, or the folder for --text-file.",
)
@reference_option
@click.option("--speaker", help="Name of a speaker of the cache.  [default: the first]")
@click.option("--language", help="Language of the cache to speak.  [default: that of most clips of the speaker]")
@click.option(
    "--speed",
    type=float,
    default=1.0,
    show_default=True,
    help="0.8 is slower, 1.25 faster; 0.25 to 4.",
)
@click.option(
    "--semitones",
    type=float,
    default=0.0,
    show_default=True,
    help="How much higher to speak, below 0 lower; up to 12.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    help="Seed of the speech's noise; another one speaks anew.  [default: the run's]",
)
@click.option("--list-speakers", "listed", flag_value="speakers", help="Only print the speakers.")
@click.option("--list-languages", "listed", flag_value="languages", help="Only print the languages.")
@vocoder_option
@synthesis_option
@click.option("--stream", is_flag=True, help="Write the WAV file while the text is being spoken.")
@click.option(
    "--strict-text", is_flag=True, help="Refuse a text with a character that the run lacks, instead of changing it."
)
@click.option("--plot", type=PICTURE, help="Write the mel and its tokens as a PNG, SVG or PDF file.")
@click.option(
    "--mel-output", type=OutputFile(".npy"), help="Write the mel as .npy: float32 [frames, mel_bins], in natural log."
)
@click.option(
    "--timings", type=OutputFile(".json"), help="Write when each token and each word begins and ends, in seconds."
)
@json_option
@click.pass_obj
def synthesize(
    debug: bool,
    /,
    run: Path | None,
    voice: Path | None,
    text: str | None,
    text_file: Path | None,
    output: Path | None,
    references: Sequence[Path],
    speaker: str | None,
    language: str | None,
    speed: float,
    semitones: float,
    seed: int | None,
    listed: Literal["speakers", "languages"] | None,
    vocoder: Path | str | None,
    overrides: Sequence[str],
    stream: bool,
    strict_text: bool,
    plot: Path | None,
    mel_output: Path | None,
    timings: Path | None,
    as_json: bool,
) -> None:
    """Speak a text, or each line of a file, with a run or a voice."""
    run = _run_or_voice(run, voice)
    if listed is not None:
        names: list[str] = list(getattr(read_run_state(run).cache, listed))
        echo(*[json.dumps(names, ensure_ascii=False)] if as_json else names)
        return
    if output is None:
        raise click.UsageError("--output: found none, expected a file, `-` or a folder; add --output speech.wav")
    if output == STDOUT and as_json:
        raise click.UsageError("--json and --output - both need stdout; name a file with --output")
    if output == STDOUT and sys.stdout.isatty():
        raise click.UsageError("--output -: stdout is a terminal; pipe it into a player, or name a file")
    _check_options(text, text_file, output, stream=stream, extras=any((plot, mel_output, timings)))
    others = {"--output": output, "--plot": plot, "--mel-output": mel_output, "--timings": timings}
    _check_files_differ(others, references)
    texts = [text or ""]
    if text_file is not None:
        texts, changes = _check_lines(run, text_file, language, speaker, strict=strict_text)
        print_text_changes(changes)
    spoken_by = speaker, language, references, speed, semitones, seed
    with tensorflow("xtts_pipeline.inference.synthesizer", echo=debug) as (_, inference):
        synthesizer: Synthesizer = inference.Synthesizer.load(run, overrides, vocoder=vocoder, strict_text=strict_text)
        warn_of_one_voice(run, synthesizer.checkpoint, references)
        if speaker is None and not references:
            say_speaker(synthesizer.checkpoint.cache)
        warn_of_unread(synthesizer, texts, language, speaker)
        with output_errors(output, _OTHER_PATH, names_file=True):
            if text_file is not None:
                files = _speak_lines(synthesizer, texts, output, spoken_by)
            elif stream:
                files = (_stream_text(synthesizer, text or "", output, spoken_by),)
            else:
                spoken = synthesizer.synthesize(text or "", *spoken_by)
                print_text_changes(spoken.text_changes)
                files = (_write_text(spoken, output),)
                _write_extras(synthesizer, spoken, plot, mel_output, timings)
    report = SynthesisReport(output, files, synthesizer.checkpoint.step)
    print_warnings(report.warnings())
    if output == STDOUT:
        echo(report.to_text(), err=True)
    else:
        print_report(report, as_json)


def _run_or_voice(run: Path | None, voice: Path | None) -> Path:
    """Return the one that is given. Raises a usage error for none or both."""
    path = run or voice
    if path is None or (run and voice):
        raise click.UsageError("expected one of --run and --voice: a run, or a voice folder of xtts export")
    return path


def say_speaker(cache: CacheIdentity) -> None:
    """Say which of several speakers is chosen without --speaker."""
    if len(cache.speakers) > 1:
        echo_line(f"speaker {cache.speakers[0]}, the first of {len(cache.speakers)}; --speaker names another")


def warn_of_unread(synthesizer: "Synthesizer", texts: Sequence[str], wanted: str | None, speaker: str | None) -> None:
    """Warn of figures that are not read in the texts' language. Without one wanted, say which of several is spoken."""
    cache, text = synthesizer.checkpoint.cache, synthesizer.checkpoint.config.text
    language = _language_of(cache, wanted, speaker)
    if language is None:
        return
    if wanted is None and len(cache.languages) > 1:
        echo_line(f"speaking {language} of {', '.join(cache.languages)}; --language names another")
    print_warnings(unread_figures(texts, language, text))


def _language_of(cache: CacheIdentity, wanted: str | None, speaker: str | None) -> str | None:
    """Return the run's language of this name, by default that of the speaker; None for one that it lacks."""
    return cache.default_language(speaker) if wanted is None else nearest_language(wanted, cache.languages)


def _check_options(text: str | None, text_file: Path | None, output: Path, *, stream: bool, extras: bool) -> None:
    if (text is None) == (text_file is None):
        raise ConfigError("synthesize: expected one of --text and --text-file")
    if text_file is not None and stream:
        raise ConfigError("--text-file writes a folder of files: leave out --stream")
    if text_file is not None and output == STDOUT:
        raise OutputError(f"--output {output}: is standard output, {_EXPECTED_FOLDER}")
    if text_file is not None and not output.is_dir() and (output.exists() or output.suffix.lower() in SOUND_FORMATS):
        raise OutputError(f"--output {output}: is a file, {_EXPECTED_FOLDER}")
    if text_file is None and (not output.name or (output.is_dir() and output != STDOUT)):
        raise OutputError(f"--output {output}: is a folder; name a file, such as speech.wav")
    if text_file is None:
        check_suffix(output, SOUND_FORMATS)
    if stream and output.suffix.lower() not in ("", ".wav"):
        problem = f"found the suffix {output.suffix}, expected .wav, which --stream writes"
        raise OutputError(f"{output}: {problem}; rename the file, or leave out --stream")
    if text is not None and has_surrogate(text):
        raise TextError(
            Reason.BAD_ROW,
            "--text: holds bytes that are not UTF-8; give the text in UTF-8, or in a file with --text-file",
        )
    if extras and (stream or text_file is not None):
        options = "--plot, --mel-output and --timings"
        raise ConfigError(f"{options} are for one whole text: leave out --stream and --text-file")


def _check_files_differ(outputs: Mapping[str, Path | None], references: Sequence[Path]) -> None:
    """Raise ConfigError if an output would overwrite another one or a reference."""
    named = [
        *((option, path) for option, path in outputs.items() if path),
        *(("--reference", path) for path in references),
    ]
    options: dict[str, str] = {}
    for option, path in named:
        other = options.setdefault(os.path.realpath(path), option)
        if option != other:
            raise ConfigError(
                f"{other} and {option}: both are {path}, expected a file for each; choose another {other}"
            )


def _shown(text_file: Path) -> Path:
    return Path("stdin") if text_file == STDIN else text_file


def _read_lines(path: Path) -> dict[int, str]:
    """Return the lines of a text file or of stdin that are not blank, by their number from 1 on."""
    is_stdin, path = path == STDIN, _shown(path)
    try:
        content = _read_stdin() if is_stdin else read_regular_file(path, MAX_TEXT_FILE_BYTES)
        text = content.decode("utf-8-sig")
        lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); expected a text file, one text a line") from None
    spoken = {number: line for number, line in enumerate(lines, start=1) if line.strip()}
    if not spoken:
        raise CorpusError(f"{path}: no lines; expected one text a line")
    return spoken


def _read_stdin() -> bytes:
    # A byte over the limit shows that there is more, and an endless input ends here.
    content = sys.stdin.buffer.read(MAX_TEXT_FILE_BYTES + 1)
    if len(content) > MAX_TEXT_FILE_BYTES:
        raise CorpusError(
            f"stdin: found more than {MAX_TEXT_FILE_BYTES} bytes, expected at most as many; give the texts in parts"
        )
    return content


def _check_lines(
    run: Path, text_file: Path, wanted: str | None, speaker: str | None, *, strict: bool
) -> tuple[list[str], TextChanges]:
    """Return the lines to speak and the changes of all of them, before TensorFlow starts.

    Lines without a letter or digit, such as `* * *`, are left out with a warning. Raises TextError with the number of a
    line that cannot be spoken. An unknown language is left to the Synthesizer.
    """
    path, lines = _shown(text_file), _read_lines(text_file)
    state, changes = read_run_state(run), TextChanges()
    language = _language_of(state.cache, wanted, speaker)
    if language is None:
        return [*lines.values()], changes
    splitter = TextSplitter(state, 1, strict=strict)
    spoken, left_out = list[str](), list[str]()
    for number, line in lines.items():
        try:
            changes.update(splitter.split(line, state.cache.languages.index(language)).changes)
            spoken.append(line)
        except TextError as error:
            left_out.append(str(number))
            # A line of letters or signs that the run lacks is an error, and so is a file without a line to speak.
            if error.reason != Reason.EMPTY_TEXT or any(map(str.isalnum, line)) or len(left_out) == len(lines):
                raise TextError(error.reason, f"{path}:{number}: {error.detail}") from None
    if left_out:
        print_warnings([f"{path}:{listed(left_out)}: nothing to speak, left out"])
    return spoken, changes


def _speak_lines(
    synthesizer: "Synthesizer", lines: Sequence[str], folder: Path, spoken_by: SpokenBy
) -> tuple[SpokenFile, ...]:
    create_empty_folder(folder)
    files: list[SpokenFile] = []
    group_lines = BATCHES_AT_ONCE * synthesizer.checkpoint.config.synthesis.batch_size
    for first in range(0, len(lines), group_lines):
        for spoken in synthesizer.synthesize_batch(lines[first : first + group_lines], *spoken_by):
            files.append(_write_text(spoken, folder / f"{len(files):04d}.wav"))
    return tuple(files)


def _write_text(spoken: "SpokenText", output: Path) -> SpokenFile:
    if output == STDOUT:
        sys.stdout.buffer.write(encode_wave(output, spoken.wave, spoken.sample_rate))
    else:
        write_wave(output, spoken.wave, spoken.sample_rate)
    return SpokenFile(output, spoken.seconds, len(spoken.mel), spoken.has_stopped, spoken.attempts, *spoken.faults)


def _stream_text(synthesizer: "Synthesizer", text: str, output: Path, spoken_by: SpokenBy) -> SpokenFile:
    speech = synthesizer.stream(text, *spoken_by)
    print_text_changes(speech.text_changes)
    # Otherwise a player would wait within the speech for the compilation of the next chunk.
    synthesizer.warm_up()
    if output != STDOUT:
        output.parent.mkdir(parents=True, exist_ok=True)
    with nullcontext(sys.stdout.buffer) if output == STDOUT else output.open("wb") as file:
        # The path may name a pipe, which cannot seek.
        wav = WavStream(file, speech.sample_rate, can_seek=output != STDOUT and file.seekable())
        for wave in speech:
            wav.write(wave)
        return SpokenFile(output, wav.seconds, speech.mel_frames, speech.has_stopped, 1, *speech.faults)


def _write_extras(
    synthesizer: "Synthesizer",
    spoken: "SpokenText",
    plot: Path | None,
    mel_output: Path | None,
    timings: Path | None,
) -> None:
    symbols, audio = synthesizer.symbols(spoken.tokens), synthesizer.checkpoint.config.audio
    if timings is not None:
        content = timings_to_json(symbols, spoken.durations, audio.frame_seconds)
        with output_errors(timings, _OTHER_PATH):
            write_output(timings, f"{json.dumps(content, ensure_ascii=False, indent=1)}\n".encode())
    if mel_output is not None:
        stored = io.BytesIO()
        np.save(stored, spoken.mel)
        with output_errors(mel_output, _OTHER_PATH):
            write_output(mel_output, stored.getvalue())
    if plot is not None:
        title = textwrap.shorten(spoken.text, TITLE_CHARACTERS, placeholder="...")
        save_speech_picture(plot, spoken.mel, audio, title, spoken.durations, symbols, spoken.has_stopped)

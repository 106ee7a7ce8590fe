"""The command line as a whole: help, interruption."""

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.main import COMMANDS as SECTIONS
from xtts_pipeline.cli.main import cli, main

ROOT = Path(__file__).parents[2]
INTERRUPTED_IMPORT = """
import os, signal, sys

class InterruptingFinder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.{number})
            except KeyboardInterrupt as interruption:
                raise {raised} from interruption

sys.meta_path.insert(0, InterruptingFinder())
sys.argv = ["xtts", "config", "show"]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
{before}
from xtts_pipeline.__main__ import main
main()
"""
IMPORTS_OF = """
import sys
from xtts_pipeline.cli.main import main, cli
try:
    cli({arguments!r}, standalone_mode=False)
finally:
    print(*(name for name in sys.modules), file=sys.stderr)
"""


def run(module: str, before: str = "", number: str = "SIGINT", raised: str = "interruption") -> tuple[int, bool, str]:
    program = INTERRUPTED_IMPORT.format(module=module, before=before, number=number, raised=raised)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.returncode, "sample_rate" in ended.stdout, ended.stderr.strip()


def modules_imported_by(*arguments: str) -> set[str]:
    program = IMPORTS_OF.format(arguments=list(arguments))
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


def commands(group: click.Group = cli, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group below a group, by the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


COMMANDS = dict(commands())
SUMMARIES = {name: text for summaries in SECTIONS.values() for name, text in summaries.items()}


@pytest.mark.parametrize(
    ("module", "stderr"),
    [("xtts_pipeline.cli.main", ""), ("click", ""), ("pydantic", "xtts: interrupted")],
    ids=["cli", "click", "pydantic"],
)
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupted_import_prints_no_traceback(module: str, stderr: str, number: str):
    assert run(module, number=number) == (130, False, stderr)


@pytest.mark.parametrize("raised", ["RuntimeError('of a library')", "OSError(5, 'of a library')"])
def test_an_interruption_that_a_library_turns_into_its_own_error_ends_with_130(raised: str):
    assert run("pydantic", raised=raised) == (130, False, "xtts: interrupted")


@pytest.mark.parametrize(
    ("raised", "found"),
    [(MemoryError(), "get more memory"), (RuntimeError("can't start new thread"), "start another thread")],
)
def test_too_little_memory_is_one_line(
    raised: Exception, found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(**_: object) -> None:
        raise raised

    monkeypatch.setattr(sys, "argv", ["xtts", "config", "presets"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("xtts_pipeline.cli.main.cli", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith(f"xtts: this process: cannot {found}; free some memory, ")
    assert line.count("\n") == 1


def test_a_job_that_was_started_with_interruptions_ignored_goes_on():
    assert run("xtts_pipeline.cli.main", before="signal.signal(signal.SIGINT, signal.SIG_IGN)") == (0, True, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "no such command trian; did you mean train?"),
        ("diagnose inptu", "no such command inptu; did you mean input?"),
        ("train --stpes 3", "no such option --stpes; did you mean --steps?"),
        ("train --step 3", "no such option --step; did you mean --steps?"),
        ("--debgu train", "no such option --debgu; did you mean --debug?"),
        ("train --batch-size 4", "no such option --batch-size; use --set training.batch_size=VALUE"),
        ("synthesize --flow-steps 4", "no such option --flow-steps; use --set synthesis.flow_steps=VALUE"),
        ("cache subset --cache x", "no such option --cache; the usage is cli cache subset [OPTIONS] SRC DST"),
        ("diagnose --run r", "no such option --run; name one of its commands first: retracing, input, "),
        ("preprocess --data . --layout LJSpech", "found LJSpech; did you mean ljspeech?"),
        ("preprocess --data . --layout x", "known are auto, vctk"),
        ("config show ljspech", "did you mean ljspeech?"),
        ("config show hardware/rtx309", "did you mean hardware/rtx3090?"),
        ("config check --set trainin.steps=1", "--set trainin.steps=1: unknown key trainin; did you mean training?"),
        ("train --output r --resume --allow-change training.step", "did you mean training.steps?"),
    ],
)
def test_an_unknown_name_is_answered_with_what_may_be_meant(words: str, message: str):
    result = CliRunner().invoke(cli, words.split(), standalone_mode=False)
    error = result.exception
    shown = error.format_message() if isinstance(error, click.UsageError) else str(error)

    assert message.casefold() in f"{result.output} {shown}".casefold()


def test_an_option_that_resembles_none_is_answered_without_a_guess():
    result = CliRunner().invoke(cli, ["synthesize", "--volume", "2"], standalone_mode=False)

    assert isinstance(result.exception, click.UsageError)
    assert result.exception.format_message() == "no such option --volume"
    # A trained run takes the settings of its synthesis alone.
    result = CliRunner().invoke(cli, ["synthesize", "--width", "2"], standalone_mode=False)
    assert "--set" not in str(result.exception)


@pytest.mark.parametrize(
    ("words", "found", "example"),
    [
        ("verify-cache old", "found old, which belongs to no option", "xtts verify-cache --cache cache/"),
        ("cache push a gs://b c", "found c, which belongs to no option", "xtts cache push"),
        ("preprocess LJSpeech-1.1", "--data is missing", "xtts preprocess --data LJSpeech-1.1"),
        ("cache merge", "SRC... is missing", "xtts cache merge"),
    ],
)
def test_a_word_too_many_or_too_few_is_answered_with_an_example(words: str, found: str, example: str):
    error = CliRunner().invoke(cli, words.split(), standalone_mode=False).exception

    assert isinstance(error, click.UsageError)
    assert error.format_message().startswith(f"{found}; an example is: {example}")


@pytest.mark.parametrize(("columns", "is_folded"), [(40, True), (None, False)])
def test_an_error_is_folded_on_a_terminal_only(
    columns: int | None, is_folded: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["xtts", "config", "show", "nothing"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("xtts_pipeline.cli.main.columns_of", lambda _: columns)

    with pytest.raises(SystemExit):
        main()

    lines = capsys.readouterr().err.splitlines()
    assert (len(lines) > 1) is is_folded
    assert not is_folded or max(map(len, lines)) <= 40


def test_an_error_keeps_the_spaces_of_a_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["xtts", "config", "check", "two  spaces\xa0.yaml"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        main()
    assert "two  spaces\xa0.yaml: " in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--debug config show nothing", "config show nothing --debug", "config show nothing"])
def test_debug_may_stand_before_or_after_the_command(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["xtts", *words.split()])
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert ("Traceback" in capsys.readouterr().err) is ("--debug" in words)


def test_every_command_passes_debug_on(monkeypatch: pytest.MonkeyPatch):
    passed = []
    monkeypatch.setattr(COMMANDS["stats"], "callback", lambda **_: passed.append(click.get_current_context().obj))
    for words in (["stats"], ["stats", "--debug"], ["--debug", "stats"]):
        CliRunner().invoke(cli, words)

    assert passed == [False, True, True]


def processor_seconds(program: str) -> float:
    """Return what a fresh interpreter needs for the program, its own start included."""
    command = [sys.executable, "-c", f"{program}; import time; print(time.process_time())"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return float(shown.split()[-1])


def test_help_imports_no_command_and_nothing_slow():
    imported = modules_imported_by("--help")

    assert not imported & {"numpy", "pydantic", "tensorflow", "keras", "joblib", "yaml", "tqdm"}
    assert not [name for name in imported if name.startswith("xtts_pipeline.cli.commands")]


def test_help_costs_less_than_twice_what_importing_click_does():
    """In processor time, by turns: the speed of the machine and other load change both alike. Click takes 0.04 s."""
    shows_help = "from xtts_pipeline.cli.main import cli; cli(['--help'], standalone_mode=False)"
    costs = [(processor_seconds(shows_help), processor_seconds("import click")) for _ in range(5)]

    assert min(help_cost for help_cost, _ in costs) < 2.0 * min(click_cost for _, click_cost in costs)


@pytest.mark.parametrize("words", ["train", "synthesize", "evaluate", "export", "diagnose input", "benchmark step"])
def test_the_help_of_a_command_imports_no_tensorflow(words: str):
    assert "tensorflow" not in modules_imported_by(*words.split(), "--help")


def help_of(words: str) -> list[str]:
    """Return the lines that `xtts WORDS --help` prints in a terminal of 80 columns."""
    return CliRunner().invoke(cli, [*words.split(), "--help"], terminal_width=80, prog_name="xtts").output.splitlines()


def test_help_lists_each_command_below_its_group_with_its_summary_on_the_same_line():
    shown = help_of("")

    assert list(SECTIONS) == ["Data", "Training", "Speaking", "Vocoder", "Looking", "Measuring"]
    for heading, summaries in SECTIONS.items():
        start = shown.index(f"{heading}:") + 1
        assert [tuple(line.split(maxsplit=1)) for line in shown[start : start + len(summaries)]] == [*summaries.items()]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_the_first_sentence_of_the_help_of_its_command(name: str):
    assert (COMMANDS[name].help or "").partition("\n\n")[0] == SUMMARIES[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_fits_in_80_columns_and_ends_with_an_example_that_it_accepts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for run in ("first", "vocoder"):
        (tmp_path / "runs" / run / "checkpoints" / "step-00000001").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    command, shown = COMMANDS[name], help_of(name)

    assert [line for line in shown if len(line) > 80] == []
    if isinstance(command, DocumentedCommand):
        words = shlex.split(command.example.partition(" > ")[0])
        assert shown[-2:] == ["Example:", f"  {command.example}"]
        assert words[: 1 + len(name.split())] == ["xtts", *name.split()]
        command.make_context(name, words[1 + len(name.split()) :])
    else:
        assert isinstance(command, click.Group)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_listed_once(name: str):
    options = [option for option in COMMANDS[name].params if isinstance(option, click.Option)]
    listed = [line.split()[0].rstrip(",") for line in help_of(name) if line.startswith("  -")]

    assert sorted(listed) == sorted(["-h", *(option.opts[0] for option in options)])


def test_the_everyday_options_of_a_long_command_come_first():
    shown = help_of("train")

    assert [line.split()[0] for line in shown if line.startswith("  -")][:5] == [
        "--cache",
        "--config",
        "--set",
        "--output",
        "--steps",
    ]
    assert [line for line in shown if line.endswith(":") and not line.startswith(" ")] == [
        "Options:",
        "Continuing and fine-tuning:",
        "Training without a cache:",
        "Machine:",
        "Example:",
    ]


@pytest.mark.parametrize(("text", "message"), [("0", "0 is not between 1 and"), ("1.5", "'1.5' is not a whole number")])
def test_a_count_is_a_whole_number_from_one_on(text: str, message: str):
    result = CliRunner().invoke(cli, ["train", "--steps", text])

    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_explained(name: str):
    command = COMMANDS[name]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]

    assert (command.help or "").partition("\n\n")[0].endswith(".")
    assert [option.name for option in options if len((option.help or "").split()) < 3] == []

"""What Tab offers, asked as a shell asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete, get_completion_class

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cli.main import cli
from xtts_pipeline.config.load import preset_names
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.read import LAYOUTS


def offered(*words: str, incomplete: str = "") -> list[str]:
    complete = ShellComplete(cli, {}, "xtts", "_XTTS_COMPLETE")
    return [item.value for item in complete.get_completions([*words], incomplete) if item.type == "plain"]


@pytest.fixture
def in_bash(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that gives the lines for bash, which splits words at `=` too; the last word is incomplete."""
    bash = get_completion_class("bash")
    assert bash is not None

    def complete(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ")
        words = [word for word in words[:-1] if word] + ([words[-1]] if words[-1] else [])
        number = len(words) - 1 if words[-1] == "=" or not line.endswith(" ") else len(words)
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(number))
        return bash(cli, {}, "xtts", "_XTTS_COMPLETE").complete().splitlines()

    return complete


def test_commands_are_completed_by_name():
    assert offered(incomplete="e") == ["export", "evaluate"]


@pytest.mark.parametrize("words", [("preprocess", "--config"), ("config", "show"), ("config", "check")], ids=" ".join)
def test_presets_are_completed(words: tuple[str, ...]):
    assert "ljspeech" in offered(*words, incomplete="ljs")
    assert offered(*words, incomplete="ljs") == [name for name in preset_names() if name.startswith("ljs")]


def test_files_of_settings_are_left_to_the_shell_where_no_preset_fits(in_bash):
    # bash drops what comes before a line `file`.
    assert in_bash("xtts preprocess --config ljsp") == ["file,ljsp", "plain,ljspeech", "plain,ljspeech-800"]


def test_layouts_are_completed():
    assert offered("preprocess", "--layout") == ["auto", *LAYOUTS]


def test_settings_are_completed_by_name_then_by_choice():
    names = offered("train", "--set")

    assert names == [f"{part}.{key}=" for part, of in Config() for key in type(of).model_fields]
    assert offered("train", "--set", incomplete="training.pre") == ["training.precision="]
    assert offered("train", "--set", incomplete="training.precision=") == [
        f"training.precision={choice}" for choice in ("auto", "float32", "bfloat16", "float16")
    ]
    assert offered("train", "--set", incomplete="text.blank=t") == ["text.blank=true"]
    assert offered("train", "--set", incomplete="training.steps=") == []
    assert offered("train", "--allow-change", incomplete="training.pre") == ["training.precision"]


def test_a_run_that_speaks_is_offered_settings_of_synthesis_alone():
    assert offered("synthesize", "--set") == [f"synthesis.{key}=" for key in type(Config().synthesis).model_fields]


def test_bash_gets_what_follows_the_equals_sign_that_it_splits_at(in_bash):
    assert in_bash("xtts train --set training.pre") == ["plain,training.precision="]
    assert in_bash("xtts train --set training.precision=") == [
        "plain,auto",
        "plain,float32",
        "plain,bfloat16",
        "plain,float16",
    ]
    assert in_bash("xtts train --set text.blank=true --set training.precision=fl") == ["plain,float32", "plain,float16"]


def test_utterance_ids_of_the_named_cache_are_completed(cache: Path):
    ids = [entry.id for entry in read_utterances(cache)]

    assert offered("inspect", "--cache", str(cache), "--id") == ids
    assert offered("inspect", "--cache", str(cache), "--id", incomplete="clip-00") == [
        id for id in ids if id.startswith("clip-00")
    ]
    assert offered("inspect", "--cache", str(cache / "none"), "--id") == []

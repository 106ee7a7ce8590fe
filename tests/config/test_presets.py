"""Every preset loads, and every setting is used."""

import ast
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

from xtts_pipeline.config.load import load_config, preset_names
from xtts_pipeline.config.schema import Config

ROOT = Path(__file__).parents[2]
PRESETS = sorted(
    path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in (ROOT / "configs").rglob("*.yaml")
)


def keys_of(section: type[BaseModel]) -> set[str]:
    return set(section.model_fields)


@cache
def attributes_read() -> set[tuple[str, str]]:
    """Return every attribute that the package reads, after the last name of what has it: `audio.hop_samples`.

    The modules that declare the settings do not count.
    """
    modules = [module for module in (ROOT / "xtts_pipeline").rglob("*.py") if module.parent.name != "config"]
    trees = [ast.parse(module.read_text(encoding="utf-8")) for module in modules]
    return {
        (ast.unparse(node.value).split(".")[-1], node.attr)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_loads_by_its_name_and_by_its_file(name: str):
    assert name in preset_names()
    assert load_config([name]) == load_config([str(ROOT / "configs" / f"{name}.yaml")])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_begins_with_a_comment(name: str):
    assert (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("section", sorted(Config.model_fields))
def test_every_setting_is_read(section: str):
    annotation = Config.model_fields[section].annotation
    assert annotation is not None

    # Others may have an attribute of the same name.
    owners = {section, "config", "settings"}
    assert keys_of(annotation) - {name for owner, name in attributes_read() if owner in owners} == set()


def test_the_ljspeech_presets_have_the_limits_of_their_names():
    whole, quoted = load_config(["ljspeech"]), load_config(["ljspeech-800"])

    assert (whole.limits.max_text_length, whole.limits.max_mel_frames) == (200, 880)
    assert (quoted.limits.max_text_length, quoted.limits.max_mel_frames) == (200, 800)
    assert whole.audio == quoted.audio == Config().audio
    assert whole.audio.trim_db is None


def test_a_later_preset_overrides_an_earlier_one():
    merged = load_config(["demo", "ljspeech"])

    assert merged.limits == load_config(["ljspeech"]).limits
    assert merged.model == load_config(["demo"]).model

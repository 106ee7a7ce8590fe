"""docs/troubleshooting.md: every row names an existing command, existing settings, and a test that tries it."""

import ast
import re
from pathlib import Path

import click
import pytest

from xtts_pipeline.cli.main import cli
from xtts_pipeline.config.schema import Config

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what is seen")]
SETTINGS = {f"{section}.{key}" for section, keys in Config().model_dump().items() for key in keys}


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| ").split("|")]


def test_every_row_has_five_cells() -> None:
    assert len(ROWS) > 30
    assert [row for row in ROWS if len(cells(row)) != 5 or not all(cells(row))] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:50])
def test_command_settings_and_test_of_a_row_exist(row: str) -> None:
    _, command, _, _, tried = cells(row)
    (words,) = re.findall(r"^`xtts ([^`]+)`$", command)
    found: click.Command = cli
    for word in words.split():
        if word.startswith("--"):
            assert word in {name for parameter in found.params for name in parameter.opts}
        else:
            assert isinstance(found, click.Group)
            command_of_word = found.get_command(click.Context(found), word)
            assert command_of_word is not None
            found = command_of_word
    sections = "|".join(Config.model_fields)
    assert set(re.findall(rf"\b((?:{sections})\.[a-z_]+)(?=[`=,; ])", row)) - {"data.pad_to_fixed_length"} <= SETTINGS
    (path, test) = re.findall(r"^`(tests/\S+\.py)::(test_\w+)`$", tried)[0]
    functions = {
        node.name
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert test in functions


def test_the_files_named_in_the_introduction_are_those_of_rows() -> None:
    introduction = PAGE.partition("\n## ")[0]
    named = set(re.findall(r"`(test_\w+\.py)`", introduction))
    assert named
    assert named <= {Path(re.findall(r"tests/\S+\.py", row)[0]).name for row in ROWS}

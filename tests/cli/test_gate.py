"""The gate redirects TensorFlow's log before the import, and every target in the command line exists."""

import ast
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xtts_pipeline.cli import gate
from xtts_pipeline.cli.gate import with_tensorflow

ROOT = Path(__file__).parents[2]
TARGETS = sorted(
    {
        node.value
        for module in (ROOT / "xtts_pipeline" / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and re.fullmatch(r"xtts_pipeline(\.\w+)+(:\w+)?", str(node.value))
    }
)


def test_the_targets_of_the_commands_are_found():
    assert {target.partition(":")[2] for target in TARGETS} >= {"diagnose_input", "diagnose_gpu", "demonstrate"}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_exists(target: str):
    module, _, function = target.partition(":")
    imported = importlib.import_module(module)

    assert not function or callable(getattr(imported, function))


def test_the_function_gets_the_log_first_and_its_result_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "planted.py").write_text(
        "def work(log, *args, **kwargs):\n    return log.compilations(), args, kwargs\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert with_tensorflow("planted:work", 1, 2, log_path=tmp_path / "log", key=3) == ({}, (1, 2), {"key": 3})


def test_the_log_is_redirected_before_the_module_is_imported(tmp_path: Path):
    planted = (
        "import os\nprint('import', flush=True)\nos.write(2, b'native line\\n')\ndef work(log):\n    return None\n"
    )
    (tmp_path / "planted.py").write_text(planted, encoding="utf-8")
    program = (
        "from pathlib import Path\n"
        "from xtts_pipeline.cli.gate import with_tensorflow\n"
        "with_tensorflow('planted:work', log_path=Path('log'), before_import=lambda found: print('before', found))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (tmp_path / "log").read_text(encoding="utf-8") == "native line\n"
    assert ended.stderr == ""
    before, imported = ended.stdout.splitlines()
    assert before.startswith("before CPU, XLA_FLAGS=")
    assert imported == "import"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_told_of_the_seconds_that_the_import_takes(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stderr = io.StringIO()
    stderr.isatty = lambda: is_terminal  # type: ignore[method-assign]
    said: list[str] = []
    (tmp_path / "planted.py").write_text("def work(log):\n    return None\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(gate, "echo_line", said.append)

    with_tensorflow("planted:work")

    assert said == ["starting TensorFlow"] * is_terminal

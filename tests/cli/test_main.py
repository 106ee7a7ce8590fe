"""Ctrl-C is quiet from the first moment on: while the command line itself is still being imported."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from xtts_pipeline.cli.main import cli
from xtts_pipeline.config.load import preset_names

ROOT = Path(__file__).parents[2]
INTERRUPTED_IMPORT = """
import os, signal, sys

class InterruptingFinder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptingFinder())
sys.argv = ["xtts", "config", "show"]
{before}
from xtts_pipeline.__main__ import main
main()
"""


def run(module: str, before: str = "") -> tuple[int, bool, str]:
    program = INTERRUPTED_IMPORT.format(module=module, before=before)
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.returncode, "sample_rate" in ended.stdout, ended.stderr.strip()


@pytest.mark.parametrize(
    ("module", "stderr"),
    [("xtts_pipeline.cli.main", ""), ("click", ""), ("pydantic", "xtts: interrupted")],
    ids=["cli", "click", "pydantic"],
)
def test_an_interrupted_import_is_no_traceback(module: str, stderr: str):
    assert run(module) == (130, False, stderr)


def test_presets_are_completed_and_files_left_to_the_shell():
    complete = ShellComplete(cli, {}, "xtts", "_XTTS_COMPLETE")
    offered = [(item.type, item.value) for item in complete.get_completions(["preprocess", "--config"], "ljs")]
    assert offered == [*(("plain", name) for name in preset_names() if name.startswith("ljs")), ("file", "ljs")]
    assert ("plain", "ljspeech") in offered


def test_a_job_that_was_started_with_interruptions_ignored_goes_on():
    assert run("xtts_pipeline.cli.main", before="signal.signal(signal.SIGINT, signal.SIG_IGN)") == (0, True, "")

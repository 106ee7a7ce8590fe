"""Outputs of commands: folders and files."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calling import refusal
from xtts_pipeline.cli.options import dated_folder, whole_folder
from xtts_pipeline.errors import OutputError


def test_a_second_command_of_the_same_second_gets_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _format: "20260101-120000")
    for name in ("20260101-120000", "20260101-120000-2", "20260101-120000-3"):
        folder = dated_folder("runs")
        assert folder == Path("runs") / name
        folder.mkdir(parents=True)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_output_folder_is_left_as_it_was_if_its_command_fails(tmp_path: Path, *, is_there: bool) -> None:
    folder = tmp_path / "report"
    if is_there:
        folder.mkdir()

    def write_part() -> None:
        with whole_folder(folder) as partial:
            (partial / "sounds").mkdir()
            (partial / "sounds" / "0.wav").write_bytes(b"sound")
            (partial / "index.html").write_text("page")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_part()
    assert folder.is_dir() == is_there
    with whole_folder(folder) as partial:
        (partial / "index.html").write_text("page")
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    with pytest.raises(OutputError, match="this folder is not empty; choose another --output"), whole_folder(folder):
        pass
    assert (folder / "index.html").read_text() == "page"


def test_an_output_folder_of_a_killed_command_takes_the_same_command_again(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    killed = (
        "import os, sys\nfrom pathlib import Path\nfrom xtts_pipeline.cli.options import whole_folder\n"
        "with whole_folder(Path(sys.argv[1])) as partial:\n"
        "    (partial / 'index.html').write_text('half a page')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", killed, folder], check=False).returncode == -signal.SIGKILL
    with whole_folder(folder) as partial:
        (partial / "sounds").mkdir()
    assert [path.name for path in folder.iterdir()] == ["sounds"]


def test_a_folder_as_the_file_to_write_is_refused_before_the_work(tmp_path: Path) -> None:
    said = f"{tmp_path}: found a folder, expected a file to write; choose another path"
    assert said in refusal("diagnose", "gpu", "--run", tmp_path / "none", "--plot", tmp_path)

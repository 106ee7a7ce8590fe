"""Output folders of commands."""

from pathlib import Path

import pytest

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
        with whole_folder(folder):
            (folder / "sounds").mkdir()
            (folder / "sounds" / "0.wav").write_bytes(b"sound")
            (folder / "index.html").write_text("page")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_part()
    assert folder.is_dir() == is_there
    with whole_folder(folder):
        (folder / "index.html").write_text("page")
    assert (folder / "index.html").read_text() == "page"
    with pytest.raises(OutputError, match="this folder is not empty; choose another --output"), whole_folder(folder):
        pass
    assert (folder / "index.html").read_text() == "page"

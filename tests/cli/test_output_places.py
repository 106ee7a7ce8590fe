"""Outputs that would damage an input or another output are refused before anything is written."""

from pathlib import Path

import pytest

from tests.calling import refusal
from xtts_pipeline.cache.verify.verify import verify_cache


@pytest.fixture(autouse=True)
def _run(tmp_path: Path) -> None:
    """Make a run that commands find: outputs are checked before its checkpoint is read."""
    (tmp_path / "run" / "checkpoints" / "step-00000001").mkdir(parents=True)


@pytest.mark.parametrize(
    "command",
    [
        "cache push {cache} {cache}/sub",
        "train --cache {cache} --stage {cache}/stage --set training.batch_size=2 --set training.save_every=1",
        "train --cache {cache} --output {cache}/run",
        "inspect --cache {cache} --id clip-000 --output {cache}/inspect",
        "stats --cache {cache} --plot {cache}/lengths.png",
        "evaluate --cache {cache} --run run --output {cache}/evaluation",
        "benchmark input --cache {cache} --output {cache}/benchmark",
        "diagnose input --cache {cache} --plot {cache}/input.png",
        "diagnose gpu --cache {link} --plot {cache}/gpu.png",
    ],
)
def test_no_output_is_written_into_a_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(cache)
    before = sorted(cache.iterdir())
    assert "apart from it; choose another" in refusal(*command.format(cache=cache, link=tmp_path / "link").split())
    assert sorted(cache.iterdir()) == before
    assert verify_cache(cache).valid


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("--mel-output ./link.npy", "--output and --mel-output"),
        ("--plot link.png", "--output and --plot"),
        ("--plot a --mel-output a", "--plot and --mel-output"),
        ("--reference speech.wav", "--output and --reference"),
    ],
)
def test_one_file_is_not_written_for_two_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, names: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for link in ("link.png", "link.npy"):
        Path(link).symlink_to("speech.wav")
    Path("speech.wav").write_bytes(b"earlier speech")
    message = refusal("synthesize", "--run", "run", "--text", "a", "--output", "speech.wav", *options.split())
    assert message.startswith(f"{names}: both are ")
    assert Path("speech.wav").read_bytes() == b"earlier speech"

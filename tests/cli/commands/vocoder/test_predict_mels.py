"""`xtts predict-mels`, and the commands that refuse the cache that it writes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cache.corpora import SETTINGS, build, cache_bytes, make_config, write_corpus
from tests.calling import refusal, xtts
from tests.speaking import make_run_of_cache
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.training.checkpoints.run_folder import write_cache_path

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its cache with waves, a run that names it, and the cache that the run predicts, with the report."""
    root = tmp_path_factory.mktemp("predict")
    build(write_corpus(root / "data", 24), root / "cache", make_config("cache.store_waves=true"))
    make_run_of_cache(root / "run", load_manifest(root / "cache"))
    write_cache_path(root / "run", root / "cache")
    result = xtts("predict-mels", "--run", root / "run", "--output", root / "predicted", "--json")
    assert result.exit_code == 0, result.output
    (root / "report.json").write_text(result.stdout)
    return root


def test_the_cache_of_the_run_is_written_again_and_the_report_has_its_figures(root: Path) -> None:
    report = json.loads((root / "report.json").read_text())
    manifest = load_manifest(root / "predicted")

    assert verify_cache(root / "predicted", jobs=1).valid
    assert manifest.mels_from is not None
    assert report["weights_sha256"] == manifest.mels_from.weights_sha256
    assert (report["cache"], report["step"]) == (str(root / "cache"), 7)
    assert (report["flow_steps"], report["guidance"]) == (4, 3.0)
    assert {split: each["clips"] for split, each in report["splits"].items()} == {
        split: manifest.split_records(split) for split in ("train", "val")
    }
    frames = manifest.statistics["frames"].mean * manifest.counts.kept
    assert sum(each["frames"] for each in report["splits"].values()) == pytest.approx(frames)
    assert all(each["mel_difference"] > 0 for each in report["splits"].values())


def test_the_text_names_the_next_command_and_a_second_run_writes_the_same_bytes(root: Path, tmp_path: Path) -> None:
    options = ("--cache", root / "cache", "--output", tmp_path / "new", "--set", "synthesis.flow_steps=4")
    shown = xtts("predict-mels", "--run", root / "run", *options).stdout

    page = (ROOT / "docs" / "vocoder.md").read_text(encoding="utf-8")
    matched = page[page.index("    xtts train-vocoder --init-from runs/vocoder --cache predicted/") :].split("\n\n")[0]
    expected = matched.replace("\\\n", " ").replace("runs/vocoder", "VOCODER").replace("predicted/", f"{tmp_path}/new")
    assert shown.splitlines()[-1].removeprefix("next ").split() == expected.split()
    assert cache_bytes(tmp_path / "new") == cache_bytes(root / "predicted")


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("train --cache {root}/predicted --output {new} --set training.batch_size=2", "name another cache"),
        ("preprocess --data {root}/data --cache {root}/predicted", "choose another --cache"),
        ("preprocess --data {root}/data --cache {root}/predicted --dry-run", "choose another --cache"),
        ("predict-mels --run {root}/run --cache {root}/predicted --output {new}", "name another cache"),
    ],
)
def test_predicted_mels_are_refused_in_place_of_recorded_ones(
    root: Path, tmp_path: Path, command: str, remedy: str
) -> None:
    before = cache_bytes(root / "predicted")

    error = refusal(*command.format(root=root, new=tmp_path / "new").split())

    assert error.startswith(f"{root / 'predicted'}: found mels that a model predicted (step 7, weights ")
    assert error.endswith(f"expected those of recordings; {remedy}")
    assert cache_bytes(root / "predicted") == before
    assert not (tmp_path / "new").exists()


def test_a_cache_without_waves_is_refused_with_the_command_that_adds_them(root: Path, tmp_path: Path) -> None:
    build(root / "data", tmp_path / "cache")

    error = refusal("predict-mels", "--run", root / "run", "--cache", tmp_path / "cache", "--output", tmp_path / "new")

    remedy = f"xtts preprocess --data DIR --cache {tmp_path / 'cache'} --set cache.store_waves=true"
    assert f"has no stored waves; add them by {remedy}" in error
    command = remedy.replace("DIR", str(root / "data")).removeprefix("xtts ")
    assert xtts(*command.split(), *SETTINGS, "--jobs", "1").exit_code == 0
    assert verify_cache(tmp_path / "cache", jobs=1).valid
    assert load_manifest(tmp_path / "cache").wave_files


def test_an_output_that_holds_anything_is_refused(root: Path) -> None:
    before = cache_bytes(root / "cache")
    for output in (root / "cache", root / "cache" / "inside", root / "data"):
        assert "choose another --output" in refusal("predict-mels", "--run", root / "run", "--output", output)
    assert cache_bytes(root / "cache") == before


def test_a_run_with_cut_weights_is_refused_and_leaves_no_output(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "run", tmp_path / "run")
    (weights,) = (tmp_path / "run" / "checkpoints").glob("*/weights.safetensors")
    os.truncate(weights, 100)
    said = refusal("predict-mels", "--run", tmp_path / "run", "--output", tmp_path / "new")
    assert "weights.safetensors: 100 bytes, expected" in said
    assert not (tmp_path / "new").exists()

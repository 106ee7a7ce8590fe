"""The wheel and the image: what they hold, and that a voice folder speaks where nothing but the wheel is installed."""

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from configparser import ConfigParser
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from packaging.requirements import Requirement

from tests.speaking import make_run, make_vocoder
from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cli.main import cli
from xtts_pipeline.inference.synthesizer import Synthesizer

ROOT = Path(__file__).parents[1]
SOURCES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "configs", "xtts_pipeline")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that `python -m build` makes of the sdist that it makes of the tree."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new environment with the wheel, and the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    install = ["install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(interpreter), *install], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    # Plain paths: files that put a clone on the path are read in no folder but the environment's own.
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(paths), encoding="utf-8")
    return interpreter


def run_installed(python: Path, folder: Path, *arguments: object) -> str:
    """Run the installed `xtts` in a folder, and return what it prints."""
    command = [str(python.parent / "xtts"), *map(str, arguments)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = [path for path in (ROOT / "xtts_pipeline").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    presets = [path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml")]
    expected = {str(path.relative_to(ROOT)) for path in package} | {f"xtts_pipeline/presets/{path}" for path in presets}
    assert found == expected


@pytest.mark.slow
def test_a_moved_voice_speaks_from_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    run, vocoder = make_run(tmp_path / "run", token_frames=1.5), make_vocoder(tmp_path / "vocoder")
    export = ["export", "--run", run, "--vocoder", vocoder, "--output", tmp_path / "new"]
    terms = ["--license", "MIT", "--data-license", "random numbers"]
    assert CliRunner().invoke(cli, [*map(str, export), *terms]).exit_code == 0
    spoken = Synthesizer.load(run, vocoder=vocoder).synthesize("one, two, three.")
    write_wave(tmp_path / "expected.wav", spoken.wave, spoken.sample_rate)
    shutil.rmtree(run)
    shutil.rmtree(vocoder)

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "new").rename(elsewhere / "voice")
    run_installed(
        python, elsewhere, "synthesize", "--voice", "voice", "--text", "one, two, three.", "--output", "a.wav"
    )
    heard, expected = (soundfile.read(path)[0] for path in (elsewhere / "a.wav", tmp_path / "expected.wav"))
    assert len(heard) == len(expected) > 0
    np.testing.assert_allclose(heard, expected, atol=1e-3)
    where = subprocess.run(
        [python, "-c", "import xtts_pipeline; print(xtts_pipeline.__file__)"],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout).is_relative_to(python.parents[1])


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(python: Path, tmp_path: Path) -> None:
    assert "ljspeech-800" in run_installed(python, tmp_path, "config", "presets")
    assert "Made in" in run_installed(python, tmp_path, "demo", "--steps", "2")
    assert soundfile.info(tmp_path / "demo" / "speech.wav").frames > 0


def test_the_image_copies_files_that_exist_and_are_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert {*SOURCES, "constraints.txt"} == set(copied) == kept
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_image_installs_what_the_package_declares() -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = re.findall(r"EXTRAS=([\w,]+)", DOCKERFILE)
    assert len(extras) == 2
    assert {name for names in extras for name in names.split(",")} <= set(setup["options.extras_require"])
    (command,) = re.findall(r'^ENTRYPOINT \["(\w+)"\]$', DOCKERFILE, re.MULTILINE)
    assert f"{command} = " in setup["options.entry_points"]["console_scripts"]
    (minor,) = re.findall(r"^ARG PYTHON=([\d.]+)$", DOCKERFILE, re.MULTILINE)
    assert Requirement(f"python{setup['options']['python_requires']}").specifier.contains(minor)
    (tool,) = re.findall(r"build==\S+", DOCKERFILE)
    assert tool in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()

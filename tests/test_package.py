"""Rules that hold for the whole tree: who may import whom, how long a file is, what ships, what `xtts --help` costs."""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "xtts_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))

# What each part may import of the others. A part stands below all that name it, so imports run downward only.
MAY_IMPORT = {
    "errors": set(),
    "schema": set(),
    "runtime": {"errors"},
    "nvml": {"runtime"},
    "pictures": {"errors"},
    "storage": {"errors"},
    "strict_yaml": set(),
    "settings_errors": set(),
    "config": {"errors", "settings_errors", "strict_yaml"},
    "migration": set(),
    "corpus": {"errors"},
    "demo": {"errors"},
    "audio": {"config", "errors", "schema"},
    "text": {"config", "errors", "schema"},
    "evaluation": {"audio", "config", "errors", "schema", "text"},
    "model": {"config", "errors", "schema"},
    "cache": {"audio", "config", "corpus", "errors", "schema", "storage", "text"},
    "native": {"audio", "cache", "config", "corpus", "errors", "schema", "text"},
    "training": {"audio", "cache", "config", "errors", "model", "native", "pictures", "runtime", "schema", "text"},
    "diagnosis": {"cache", "config", "errors", "model", "nvml", "pictures", "runtime", "schema", "training"},
    "synthesis": {"audio", "config", "errors", "model", "schema", "text", "training"},
    "export": {"audio", "cache", "errors", "model", "schema", "text", "training"},
    "benchmarking": {"audio", "cache", "config", "corpus", "errors", "model", "nvml", "pictures", "runtime", "schema", "training"},
    "commands": {
        "audio",
        "benchmarking",
        "cache",
        "config",
        "corpus",
        "demo",
        "diagnosis",
        "errors",
        "evaluation",
        "export",
        "migration",
        "model",
        "native",
        "nvml",
        "pictures",
        "runtime",
        "schema",
        "settings_errors",
        "storage",
        "synthesis",
        "text",
        "training",
    },
    "options": {"config", "storage"},
    "cli": {"commands", "config", "errors", "options"},
    "__main__": {"cli"},
}


def part_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import hides which part it reaches"
            yield node.module or ""


def imported_parts(module: Path) -> set[str]:
    """Return the parts of this package that a module imports, wherever in it the import stands."""
    return {name.split(".")[1] for name in imported_names(module) if name.startswith("xtts_pipeline.")} - {part_of(module)}


def show(module: Path) -> str:
    return str(module.relative_to(ROOT))


def test_every_part_has_its_place():
    assert {part_of(module) for module in MODULES} - {"__init__"} == set(MAY_IMPORT)


def test_no_part_stands_above_itself():
    placed: set[str] = set()
    while ready := {part for part, below in MAY_IMPORT.items() if part not in placed and below <= placed}:
        placed |= ready

    assert placed == set(MAY_IMPORT)


def test_the_rooms_of_the_architecture_stand_in_the_order_of_imports():
    """One row a part, or several parts of one: a part's row stands above those that it imports."""
    rows = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    place = {part: number for number, row in enumerate(rows) for part in re.findall(r"`(\w+)(?:/|\.py)`", row)}
    assert set(place) == set(MAY_IMPORT) - {"__main__"}
    upward = [(part, one) for part in place for one in MAY_IMPORT[part] if place[one] < place[part]]
    assert upward == []


@pytest.mark.parametrize("module", MODULES, ids=show)
def test_imports_run_downward_only(module: Path):
    allowed = MAY_IMPORT.get(part_of(module), set())

    assert imported_parts(module) <= allowed


WITHOUT_TENSORFLOW = {"corpus", "text", "audio", "demo", "evaluation", "schema", "config", "errors"}


@pytest.mark.parametrize("module", [module for module in MODULES if part_of(module) in WITHOUT_TENSORFLOW], ids=show)
def test_what_runs_in_workers_knows_no_tensorflow(module: Path):
    roots = {name.split(".")[0] for name in imported_names(module)}

    assert not roots & {"tensorflow", "keras"}


@pytest.mark.parametrize(
    "module", [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))], ids=show
)
def test_no_file_is_over_450_lines(module: Path):
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 450


@pytest.mark.parametrize("folder", ["model", "training"])
def test_no_shape_is_read_at_run_time(folder: str):
    # tf.shape makes a dynamic operation of what the signature already fixes.
    found = [show(module) for module in (PACKAGE / folder).rglob("*.py") if re.search(r"\btf\.shape\(", module.read_text(encoding="utf-8"))]

    assert found == []


def test_no_python_runs_inside_the_input_pipeline():
    banned = re.compile(r"numpy_function|py_function|from_generator")
    rivals = {PACKAGE / "benchmarking" / "rivals.py"}  # the one module that shows how slow the others are
    found = [show(module) for module in MODULES if module not in rivals and banned.search(module.read_text(encoding="utf-8"))]

    assert found == []


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup


def test_every_package_ships():
    listed = set(read_setup()["options"]["packages"].split())
    found = {".".join(file.parent.relative_to(ROOT).parts) for file in MODULES if file.name == "__init__.py"}

    assert listed == found | {"xtts_pipeline.presets"}


def test_every_module_lies_in_a_package():
    assert all((module.parent / "__init__.py").is_file() for module in MODULES)


def test_every_import_is_declared():
    setup = read_setup()
    requirements = setup["options"]["install_requires"] + "".join(setup["options.extras_require"].values())
    declared = {re.match(r"[\w-]+", line.strip()).group().lower() for line in requirements.splitlines() if line.strip()}
    # Import names that differ from the name on the package index.
    distributions = {
        "espeakng_loader": "espeakng-loader",
        "google": "protobuf",
        "google_crc32c": "google-crc32c",
        "phonemizer": "phonemizer-fork",
        "pynvml": "nvidia-ml-py",
        "yaml": "pyyaml",
    }
    imported = {name.split(".")[0] for module in MODULES for name in imported_names(module)}
    outside = imported - set(sys.stdlib_module_names) - {"xtts_pipeline"}

    assert {distributions.get(name, name) for name in outside} <= declared


def test_every_requirement_is_pinned():
    setup = read_setup()
    requirements = setup["options"]["install_requires"] + "".join(setup["options.extras_require"].values())
    needed = {re.match(r"[\w-]+", line.strip()).group().lower() for line in requirements.splitlines() if line.strip()}
    pins = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line}

    assert needed - {"xtts-pipeline"} <= pins


def test_help_imports_no_tensorflow():
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from xtts_pipeline.cli import cli\n"
        "result = CliRunner().invoke(cli, ['--help'])\n"
        "assert 'preprocess' in result.output, result.output\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'pydantic'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "[]"

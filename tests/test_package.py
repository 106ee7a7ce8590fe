"""Rules that hold for the whole tree: who may import whom, how long a file is, and what ships."""

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "xtts_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))

# The parts of the package from top to bottom. A module imports from its own part and from parts below it.
# A module belongs to the longest of these names that begins its own.
LAYERS = (
    "__main__",
    "cli",
    "serving",
    "reports",
    "perf",
    "evaluation",
    "inference",
    "training",
    "training.checkpoints",
    "data",
    "vocoder",
    "model",
    "quality",
    "cache.copy",
    "cache.compose",
    "cache.verify",
    "cache.build",
    "cache.format",
    "corpus",
    "text",
    "plots",
    "audio",
    "config",
    "system",
    "errors",
)
MAX_FILES = 14


def module_name(module: Path) -> str:
    return ".".join(module.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def layer_of(name: str) -> str | None:
    """Return the layer of a dotted name below `xtts_pipeline.`; None for a package that only holds layers."""
    return max((layer for layer in LAYERS if f"{name}.".startswith(f"{layer}.")), key=len, default=None)


def imported_names(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import hides which part it reaches"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_layers(module: Path) -> set[str]:
    """Return the layers that a module imports, wherever in it the import stands."""
    names = (
        name.removeprefix("xtts_pipeline.") for name in imported_names(module) if name.startswith("xtts_pipeline.")
    )
    return {layer for name in names if (layer := layer_of(name)) is not None}


def show(module: Path) -> str:
    return str(module.relative_to(ROOT))


def test_every_module_has_a_layer():
    packages = {"__init__", "cache"}
    assert [name for module in MODULES if layer_of(name := module_name(module)) is None and name not in packages] == []


@pytest.mark.parametrize("module", MODULES, ids=show)
def test_imports_run_downward_only(module: Path):
    layer = layer_of(module_name(module))
    below = set(LAYERS[LAYERS.index(layer) :] if layer else ())

    assert imported_layers(module) <= below


def test_the_layers_of_the_architecture_are_in_the_order_of_imports():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w./]+)` \|", text, re.MULTILINE)
    names = [row.removesuffix("/").removesuffix(".py").replace("/", ".") for row in rows]

    assert names == list(LAYERS)


def route_of_an_utterance() -> list[tuple[Path, list[str]]]:
    """Return the module of each call in the page's route, and the names within it."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    route = text.partition("## The route of one utterance")[2].partition("\n## ")[0]
    calls = []
    for name in re.findall(r"^ {4} *([\w.]+)", route, re.MULTILINE):
        parts = name.split(".")
        files = ((end, PACKAGE.joinpath(*parts[:end]).with_suffix(".py")) for end in range(len(parts), 0, -1))
        end, module = next((end, file) for end, file in files if file.is_file())
        calls.append((module, parts[end:]))
    return calls


def test_the_calls_in_the_route_of_an_utterance_exist():
    for module, names in route_of_an_utterance():
        body: list[ast.stmt] = ast.parse(module.read_text(encoding="utf-8")).body
        for name in names:
            found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name]
            assert found, f"{name} is not in {show(module)}"
            body = found[0].body


def test_the_route_of_an_utterance_enters_no_module_twice():
    modules = [module for module, _ in route_of_an_utterance()]

    assert len(modules) > 20
    assert len(modules) == len(set(modules))


@pytest.mark.parametrize("folder", sorted({module.parent for module in MODULES}), ids=show)
def test_a_folder_holds_few_files(folder: Path):
    assert len([file for file in folder.glob("*.py") if file.name != "__init__.py"]) <= MAX_FILES


# Preprocessing imports these in every worker process, where TensorFlow would cost seconds and memory.
WITHOUT_TENSORFLOW = {"quality", "corpus", "text", "audio", "cache.format", "cache.build", "config", "errors"}


@pytest.mark.parametrize(
    "module", [module for module in MODULES if layer_of(module_name(module)) in WITHOUT_TENSORFLOW], ids=show
)
def test_preprocessing_imports_no_tensorflow(module: Path):
    roots = {name.split(".")[0] for name in imported_names(module)}

    assert not roots & {"tensorflow", "keras"}


def test_no_class_name_stands_twice():
    """One name, one concept: private classes and those of other programs aside."""
    places: dict[str, list[str]] = {}
    for module in MODULES:
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(show(module))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_imports_inside_functions_are_few():
    """Only the gate before TensorFlow and optional extras justify one; each says why in a comment."""
    late = [
        f"{show(module)}:{node.lineno}"
        for module in MODULES
        for function in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert len(late) < 15, late


@pytest.mark.parametrize(
    "module",
    [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))],
    ids=show,
)
def test_no_file_is_over_450_lines(module: Path):
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 450


def names_used(module: Path) -> Iterator[str]:
    """Yield the dotted name of every name and attribute in the code; comments and strings do not count."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute | ast.Name):
            yield ast.unparse(node)


@pytest.mark.parametrize("folder", ["model", "training", "vocoder"])
def test_no_shape_is_read_at_run_time(folder: str):
    # tf.shape makes a dynamic operation of what the signature already fixes.
    assert [show(module) for module in (PACKAGE / folder).rglob("*.py") if "tf.shape" in names_used(module)] == []


def test_no_python_runs_inside_the_input_pipeline():
    banned = {"numpy_function", "py_function", "py_func", "from_generator"}
    baselines = PACKAGE / "perf" / "benchmark" / "baselines.py"  # measures the cost of Python in tf.data
    found = [
        show(module)
        for module in MODULES
        if module != baselines and any(name.split(".")[-1] in banned for name in names_used(module))
    ]

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
        "prometheus_client": "prometheus-client",
        "pynvml": "nvidia-ml-py",
        "unicode_rbnf": "unicode-rbnf",
        "yaml": "pyyaml",
    }
    imported = {name.split(".")[0] for module in MODULES for name in imported_names(module)}
    outside = imported - set(sys.stdlib_module_names) - {"xtts_pipeline"}

    assert {distributions.get(name, name) for name in outside} <= declared


def test_every_requirement_is_pinned():
    setup = read_setup()
    requirements = setup["options"]["install_requires"] + "".join(setup["options.extras_require"].values())
    needed = {re.match(r"[\w-]+", line.strip()).group().lower() for line in requirements.splitlines() if line.strip()}
    pins = {
        line.split("==")[0]
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }

    assert needed - {"xtts-pipeline"} <= pins

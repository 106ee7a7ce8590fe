"""What the benchmarks import from the package and from each other is there: most run for too long to be tests."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
OF_THE_PROJECT = {"xtts_pipeline", "tests", *(path.stem for path in BENCHMARKS)}


def exists(module: str, name: str) -> bool:
    """Return whether a module has this name, as an attribute or as a module below it."""
    found = importlib.import_module(module)
    below = pkgutil.iter_modules(getattr(found, "__path__", []))
    return hasattr(found, name) or name in {each.name for each in below}


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_imports_names_that_exist(path: Path) -> None:
    missing = [
        f"{node.lineno}: {node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in OF_THE_PROJECT
        for alias in node.names
        if not exists(str(node.module), alias.name)
    ]
    assert missing == []

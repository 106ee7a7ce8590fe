import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xtts_pipeline.system import installation
from xtts_pipeline.system.installation import CLONE, install_command

PACKAGE = Path(installation.__file__).parents[1]


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ({"url": "file:///a%20b/clone", "dir_info": {"editable": True}}, 'pip install -e "/a b/clone[gpu]"'),
        ({"url": "file:///a%20b/clone", "dir_info": {}}, 'pip install "/a b/clone[gpu]"'),
        ({"url": Path.cwd().as_uri(), "dir_info": {"editable": True}}, 'pip install -e ".[gpu]"'),
        (
            {"url": "https://host.example/xtts.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
            'pip install "xtts-pipeline[gpu] @ git+https://host.example/xtts.git"',
        ),
        ({"url": Path(__file__).as_uri(), "archive_info": {}}, f'pip install "{__file__}[gpu]"'),
        ({"url": "file:///gone/xtts.whl", "archive_info": {}}, 'pip install "xtts-pipeline[gpu]"'),
        (None, 'pip install "xtts-pipeline[gpu]"'),
    ],
    ids=["editable", "clone", "in the clone", "repository", "wheel", "wheel that is gone", "index"],
)
def test_an_extra_is_installed_from_where_the_package_came(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, Any] | None, command: str
) -> None:
    text = None if source is None else json.dumps(source)
    monkeypatch.setattr(installation, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert install_command("gpu") == command


def test_a_clone_that_was_not_installed_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(installation, "distribution", missing)
    monkeypatch.chdir(tmp_path)
    assert install_command("phonemes") == f'pip install -e "{CLONE}[phonemes]"'
    monkeypatch.chdir(CLONE)
    assert install_command("phonemes") == 'pip install -e ".[phonemes]"'


def test_no_other_module_names_the_distribution() -> None:
    modules = [module for module in PACKAGE.rglob("*.py") if module.name != "installation.py"]
    assert [module for module in modules if "xtts-pipeline[" in module.read_text(encoding="utf-8")] == []

"""How this package was installed, and with it the command that adds one of its extras."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from xtts_pipeline.errors import ConfigError

DISTRIBUTION = "xtts-pipeline"
CLONE = Path(__file__).parents[2]


def install_command(extra: str) -> str:
    """Return the pip command that adds an extra to this installation.

    It takes the package from where it came: its clone, its wheel while that is there, its repository or the index.
    """
    source = _source()
    url = str(source.get("url", ""))
    path = Path(unquote(urlsplit(url).path))
    if url.startswith("file:") and ("dir_info" in source or path.exists()):
        option = "-e " if source.get("dir_info", {}).get("editable") else ""
        return f'pip install {option}"{"." if path == Path.cwd() else path}[{extra}]"'
    repository = f" @ {source['vcs_info']['vcs']}+{url}" if "vcs_info" in source else ""
    return f'pip install "{DISTRIBUTION}[{extra}]{repository}"'


def require_extra(extra: str, modules: Sequence[str], needed_by: str) -> None:
    """Raise ConfigError that names what needs an extra and its pip command, unless its modules can be imported."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigError(f"{needed_by}: found no package {' and no '.join(missing)}; run {install_command(extra)}")


def _source() -> dict[str, Any]:
    """Return where pip took the package from (PEP 610); empty for a package of the index."""
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        # The package is used from its clone and was never installed.
        text = json.dumps({"url": CLONE.as_uri(), "dir_info": {"editable": True}})
    source: dict[str, Any] = json.loads(text or "{}")
    return source

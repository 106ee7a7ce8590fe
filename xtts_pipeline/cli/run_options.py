"""Options that name a run, a voice or a vocoder, and those that change settings."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xtts_pipeline.cli.completion import complete_preset, complete_setting
from xtts_pipeline.cli.options import CACHE_FOLDER, FOLDER, LocalPath, Seconds
from xtts_pipeline.errors import CacheError, CheckpointError
from xtts_pipeline.inference.voice_folder import verify_voice
from xtts_pipeline.system.storage import is_stored
from xtts_pipeline.system.terminal import echo_line, shell_word
from xtts_pipeline.text.fallback import TextChanges, describe_changes
from xtts_pipeline.training.checkpoints.run_folder import (
    GRIFFIN_LIM,
    checkpoint_folders,
    find_checkpoint,
    is_voice,
    read_cache_path,
)
from xtts_pipeline.training.checkpoints.state import can_clone
from xtts_pipeline.training.distributed.cluster import WAIT_WORKERS_SECONDS

if TYPE_CHECKING:
    from xtts_pipeline.training.checkpoints.files import Checkpoint

F = TypeVar("F", bound=Callable[..., Any])


def print_text_changes(changes: TextChanges) -> None:
    """Print one warning on stderr that names the characters that were replaced or dropped, if there are any."""
    if changes:
        echo_line(f"warning: characters that the run lacks: {describe_changes(changes)}")


def cache_of_run(run: Path | None, *, reads_stores: bool = False) -> Path:
    """Return the cache that a run was trained on; `cache` without a run, or for a run that does not name its cache.

    Raises CacheError if the cache is not on this machine; with `reads_stores`, it may lie in a store.
    """
    cache = None if run is None else read_cache_path(run)
    if cache is not None and not (reads_stores if is_stored(cache) else cache.is_dir()):
        raise CacheError(f"{run}: its cache {cache} is not on this machine; name a copy with --cache")
    return cache or Path("cache")


def warn_of_one_voice(run: Path, checkpoint: "Checkpoint", references: Sequence[Path]) -> None:
    """Say on stderr that a run of one speaker cannot clone the voice of references."""
    # A model that takes no references ends with an error instead.
    model = checkpoint.config.model
    if references and model.voice_latents and not can_clone(model, checkpoint.cache):
        problem = "was trained on one speaker and cannot clone a voice: --reference hardly changes its speech"
        echo_line(f"warning: {run} {problem}; train on a corpus of several speakers")


class RunPath(LocalPath):
    """The folder of a run, or of one of its checkpoints: it is looked for before TensorFlow is imported.

    alternative: what an error says that may be named instead.
    """

    alternative = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises CheckpointError that names the runs below or beside it if it is no run."""
        path = super().convert(value, param, ctx)
        try:
            find_checkpoint(path)
        except CheckpointError as error:
            raise type(error)(f"{error}{self.alternative}") from None
        return path


class VoicePath(LocalPath):
    """A voice folder, whose files are compared with its manifest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises CheckpointError if it is no voice, DamagedVoiceError if a file of it changed."""
        path = super().convert(value, param, ctx)
        if checkpoint_folders(path) and not is_voice(path):
            raise CheckpointError(
                f"--voice {path}: is a run, expected a voice folder; give it as --run {shell_word(path)}"
            )
        verify_voice(path)
        return path


class VocoderPath(RunPath):
    """The folder of a vocoder's run or of one of its checkpoints, or the word `griffin-lim`."""

    alternative = f"; or name {GRIFFIN_LIM}, which needs no run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path or the word. Raises CheckpointError if it is neither."""
        return value if value == GRIFFIN_LIM else super().convert(value, param, ctx)


# For a command that may take the cache of a run.
run_cache_option = click.option(
    "--cache", type=CACHE_FOLDER, help="Folder of the cache.  [default: that of the run, else cache]"
)
run_option = click.option("--run", type=RunPath(), required=True, help="Folder of the run, or one of its checkpoints.")
# For a command that makes sound with a run.
vocoder_option = click.option(
    "--vocoder",
    type=VocoderPath(),
    metavar="RUN",
    help=f"Run of `xtts train-vocoder`, or {GRIFFIN_LIM}.  [default: that of use-vocoder, else {GRIFFIN_LIM}]",
)
reference_option = click.option(
    "--reference", "references", type=FOLDER, multiple=True, help="Sound file of the voice to speak with; repeatable."
)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    shell_complete=complete_setting(),
    help="Override one setting; repeatable, overrides every file.",
)
# For a command that speaks with a run.
synthesis_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="synthesis.KEY=VALUE",
    shell_complete=complete_setting("synthesis."),
    help="Override one synthesis setting of the run; repeatable.",
)
# For a command whose work other processes share.
wait_workers_option = click.option(
    "--wait-workers",
    type=Seconds(1.0),
    default=WAIT_WORKERS_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The longest wait for workers that do not answer.",
)


def config_options(function: F) -> F:
    """Add `--config` and `--set`."""
    return click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="FILE|PRESET",
        shell_complete=complete_preset,
        help="YAML file or preset name (see `xtts config presets`); repeatable, a later one overrides an earlier one.",
    )(set_option(function))

"""`xtts train --data`: a corpus in the place of a cache."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from xtts_pipeline.cache.build.plan import read_corpora
from xtts_pipeline.cache.format.manifest import REJECTED_NAME
from xtts_pipeline.config.load import load_config
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.survey import Survey, check_settings, survey_corpus
from xtts_pipeline.system.atomic_files import atomic_write
from xtts_pipeline.system.sealed_json import canonical_json

if TYPE_CHECKING:
    from xtts_pipeline.data.online_source import NativeSource


@dataclass(frozen=True)
class CorpusOptions:
    """What `--data`, `--layout` and `--val-data` say."""

    data: Path
    layout: str
    val_data: Path | None


def survey_data(
    options: CorpusOptions, configs: Sequence[str], overrides: Sequence[str], previous: Config | None
) -> Survey:
    """Read and judge every row of the corpus, and say on stderr what is kept; `previous` are the settings of a run that goes on.

    Raises ConfigError or CorpusError if the corpus cannot be read with TensorFlow operations alone, or not in the same way as a cache.
    """
    config = load_config(configs, overrides, {} if previous is None else previous.model_dump(mode="json"))
    check_settings(config)
    index = read_corpora(options.data, options.val_data, options.layout, config)
    with tqdm(
        total=len(index.rows), unit="clip", desc="read", disable=not sys.stderr.isatty(), file=sys.stderr, smoothing=0
    ) as bar:
        survey = survey_corpus(index, config, bar.update)
    click.echo(_survey_text(survey), err=True)
    return survey


def _survey_text(survey: Survey) -> str:
    counts, reasons = survey.manifest.counts, survey.manifest.rejected_by_reason
    listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    found = f"{survey.manifest.layout}: read {counts.read} = kept {counts.kept} + rejected {counts.rejected}"
    return f"{found} ({listed}); the run's {REJECTED_NAME} says of each why" if listed else found


def native_source(root: Path, survey: Survey, config: Config) -> "NativeSource":
    """Return what the loop reads. Raises CorpusError if TensorFlow's decoder does not read a clip."""
    from xtts_pipeline.data.online import NativeDatasets
    from xtts_pipeline.data.online_source import NativeSource

    return NativeSource(root, survey.manifest, NativeDatasets(survey, config, root))


def write_rejections(run: Path, survey: Survey) -> None:
    """Write the rejected rows beside the run, as a cache lists them. Raises OSError if the disk refuses."""
    with atomic_write(run / REJECTED_NAME) as file:
        file.writelines(f"{canonical_json(rejection.to_json())}\n".encode() for rejection in survey.rejections)

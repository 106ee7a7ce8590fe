"""The model card of a voice folder: Markdown below metadata that Hugging Face reads.

Imports no TensorFlow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from xtts_pipeline import __version__
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.inference.voice_folder import VoiceTerms
from xtts_pipeline.system.installation import DISTRIBUTION
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.strict_json import first_problem
from xtts_pipeline.system.terminal import counted, shell_word
from xtts_pipeline.training.checkpoints.state import SavedState, can_clone

REPORT_NAME = "report.json"
_MOST_REPORT_BYTES = 16 << 20
_MOST_SPEAKERS = 20
# The identifiers that Hugging Face lists and that serve for weights; it takes others as `other` with a name.
_HUB_LICENSES = """
afl-3.0 agpl-3.0 apache-2.0 artistic-2.0 bsd-2-clause bsd-3-clause bsd-3-clause-clear bsl-1.0 cc-by-2.0 cc-by-2.5
cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0
cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 ecl-2.0 epl-1.0 epl-2.0 eupl-1.1
eupl-1.2 gpl-2.0 gpl-3.0 isc lgpl-2.1 lgpl-3.0 mit mpl-2.0 ms-pl ncsa odbl ofl-1.1 openrail osl-3.0 pddl postgresql
unlicense wtfpl zlib
"""


_LENIENT = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Figure(BaseModel):
    model_config = _LENIENT

    median: float
    mean: float
    worst: float


class EvaluationFigures(BaseModel):
    """The part of an evaluation's report.json that a card shows. Griffin-Lim has no weights."""

    model_config = _LENIENT

    step: int
    fingerprint: str
    weights_sha256: str
    vocoder_weights_sha256: str | None
    references: list[str]
    overrides: list[str]
    split: str
    truth: str
    utterances: int
    stop_misses: int
    phoneme_error_rates: dict[str, float]
    judges: dict[str, dict[str, float | None]]
    figures: dict[str, _Figure]


@dataclass(frozen=True)
class SampleSentence:
    """A spoken sentence: its path in the voice folder, its language, its speaker and its text."""

    path: str
    language: str
    speaker: str
    text: str


def read_evaluation(
    folder: Path, step: int, fingerprint: str, weights: str, vocoder_weights: str | None
) -> EvaluationFigures:
    """Return the figures of an evaluation of the checkpoint of this step, cache and checksum with this vocoder.

    `vocoder_weights` is the checksum of the vocoder, None for Griffin-Lim. Raises CheckpointError.
    """
    path = folder / REPORT_NAME
    try:
        figures = EvaluationFigures.model_validate_json(read_regular_file(path, _MOST_REPORT_BYTES))
    except OSError as error:
        expected = "expected a folder that `xtts evaluate` wrote"
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); {expected}") from None
    except ValidationError as error:
        found = f"{path}: no report of `xtts evaluate` ({first_problem(error)})"
        raise CheckpointError(f"{found}; evaluate the exported checkpoint") from None
    evaluated = _parts(figures.step, figures.fingerprint, figures.weights_sha256, figures.vocoder_weights_sha256)
    exported = _parts(step, fingerprint, weights, vocoder_weights)
    for found, expected in zip(evaluated, exported, strict=True):
        if found != expected:
            remedy = "give xtts evaluate the --run and --vocoder of this export"
            raise CheckpointError(f"{path}: found {found}, expected {expected}; {remedy}")
    return figures


def _parts(step: int, fingerprint: str, weights: str, vocoder_weights: str | None) -> tuple[str, ...]:
    """Return what two evaluations must have in common, in words."""
    vocoder = "Griffin-Lim" if vocoder_weights is None else f"a vocoder with weights {vocoder_weights[:12]}"
    return f"step {step}", f"cache {fingerprint[:12]}", f"weights {weights[:12]}", vocoder


def model_card(
    name: str,
    terms: VoiceTerms,
    state: SavedState,
    vocoder: SavedState | None,
    samples: Sequence[SampleSentence],
    evaluation: EvaluationFigures | None,
) -> str:
    """Return the README.md of a voice. `state` and `vocoder` are those of its two checkpoints."""
    metadata = yaml.safe_dump(_metadata(terms, state), allow_unicode=True, sort_keys=False, width=10_000)
    config, cache = state.config, state.cache
    speakers = ", ".join(cache.speakers[:_MOST_SPEAKERS]) + (", ..." if len(cache.speakers) > _MOST_SPEAKERS else "")
    clones = can_clone(config.model, cache)
    phonemes = "[phonemes]" if config.text.tokens == "phonemes" else ""
    python = [
        "```python",
        "from xtts_pipeline.inference.synthesizer import Synthesizer",
        "",
        'spoken = Synthesizer.load(".").synthesize("Good morning.")',
        "spoken.wave, spoken.sample_rate",
        "```",
    ]
    rights = [
        f"- License of the voice: {terms.license}",
        f"- License and consent of the recordings: {terms.data_license}",
        *(f"- Data set: {dataset}" for dataset in terms.datasets),
    ]
    sections = [
        f"# {name}",
        f"A text-to-speech voice of {DISTRIBUTION} {__version__}.",
        _table(
            {
                "languages": ", ".join(cache.languages),
                "speakers": f"{len(cache.speakers)}: {speakers}",
                "sample rate": f"{config.audio.sample_rate} Hz",
                "tokens": config.text.tokens,
                "clones a voice from a reference": "yes" if clones else "no",
                "vocoder": "Griffin-Lim" if vocoder is None else f"trained, step {vocoder.step}",
            }
        ),
        "## Use",
        f"Install {DISTRIBUTION} {__version__} in a clone of its repository:",
        f'    pip install -c constraints.txt ".{phonemes}"',
        f'or from its wheel, by `pip install "NAME.whl{phonemes}"`. Then, in the folder of this voice:',
        '    xtts synthesize --voice . --text "Good morning." --output speech.wav',
        *_other_voices(cache, clones=clones),
        "\n".join(python),
        "## License and data",
        "\n".join(rights),
        *_samples(samples),
        "## Training",
        _table(_training(state, vocoder)),
        "[config.yaml](config.yaml) has every setting.",
        *_figures(evaluation),
    ]
    return f"---\n{metadata}---\n\n" + "\n\n".join(sections) + "\n"


def _other_voices(cache: CacheIdentity, *, clones: bool) -> list[str]:
    options = [f"`--speaker {shell_word(cache.speakers[-1])}` speaks as another speaker"] * (len(cache.speakers) > 1)
    options += ["`--reference FILE` with the voice of a recording"] * clones
    return [", ".join(options) + "."] if options else []


def _metadata(terms: VoiceTerms, state: SavedState) -> dict[str, Any]:
    known = terms.license.lower()
    other = {"license": "other", "license_name": terms.license}
    return {
        "pipeline_tag": "text-to-speech",
        "library_name": DISTRIBUTION,
        "language": sorted({primary_language(language) for language in state.cache.languages}),
        **({"license": known} if known in _HUB_LICENSES.split() else other),
        **({"datasets": list(terms.datasets)} if terms.datasets else {}),
        "tags": ["text-to-speech", "speech-synthesis", "tensorflow", "xtts"],
    }


def _training(state: SavedState, vocoder: SavedState | None) -> dict[str, object]:
    training = state.config.training
    rows: dict[str, object] = {
        "steps": state.step,
        "batch size": training.batch_size,
        "learning rate": f"{training.learning_rate:g}, {training.schedule}",
        "precision": training.product_type,
        "seed": training.seed,
        "EMA decay": training.ema_decay,
        "cache fingerprint": f"`{state.cache.fingerprint}`",
    }
    if vocoder is not None:
        rows["vocoder, steps"] = vocoder.step
        rows["vocoder, cache fingerprint"] = f"`{vocoder.cache.fingerprint}`"
    return rows


def _samples(samples: Sequence[SampleSentence]) -> list[str]:
    if not samples:
        return []
    lines = [
        f"- {sample.language}, {sample.speaker}: [{Path(sample.path).name}]({sample.path}): {sample.text}"
        for sample in samples
    ]
    return ["## Samples", "\n".join(lines)]


def _figures(evaluation: EvaluationFigures | None) -> list[str]:
    if evaluation is None:
        return ["## Figures", "None were given to the export."]
    spoken = f"{counted(evaluation.utterances, 'utterance')} of the split `{evaluation.split}`"
    stopped = f"{evaluation.utterances - evaluation.stop_misses} ended by themselves"
    settings = f", with {', '.join(evaluation.overrides)}" if evaluation.overrides else ""
    if evaluation.references:
        settings += f", in the voice of {counted(len(evaluation.references), 'reference')}"
    rows = [
        f"| {name} | {figure.median:g} | {figure.mean:g} | {figure.worst:g} |"
        for name, figure in evaluation.figures.items()
    ]
    further: dict[str, object] = {
        f"phoneme error rate, {name}": rate for name, rate in evaluation.phoneme_error_rates.items()
    }
    for sound, judged in evaluation.judges.items():
        further |= {f"{name}, {sound}": value for name, value in judged.items() if value is not None}
    return [
        "## Figures",
        f"By `xtts evaluate` on {spoken}{settings}, compared with {evaluation.truth.replace('_', ' ')}: {stopped}.",
        "\n".join(["| figure | median | mean | worst |", "|---|---|---|---|", *rows]),
        *([_table(further)] if further else []),
    ]


def _table(rows: Mapping[str, object]) -> str:
    cells = ((name, str(value).replace("|", "\\|")) for name, value in rows.items())
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in cells)])

"""`xtts evaluate`: speak a split's texts with a run, and write metrics, sounds, pictures and a page to listen to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.groups import DocumentedCommand
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    Choice,
    dated_folder,
    jobs_option,
    json_option,
    print_report,
    whole_folder,
)
from xtts_pipeline.cli.progress import progress_bar
from xtts_pipeline.cli.run_options import (
    cache_of_run,
    print_text_changes,
    reference_option,
    run_cache_option,
    run_option,
    synthesis_option,
    vocoder_option,
    warn_of_one_voice,
)
from xtts_pipeline.config.schema import AudioConfig, show_value
from xtts_pipeline.errors import CorpusError, output_errors
from xtts_pipeline.evaluation.ground_truth import DATA_REMEDY, split_entries
from xtts_pipeline.evaluation.intelligibility import PhonemeComparison, Recogniser, pool_comparisons
from xtts_pipeline.evaluation.judges import JudgedSound, Judges, mean_judgements
from xtts_pipeline.evaluation.metrics import MetricSummary, summarize
from xtts_pipeline.evaluation.utterance import EvaluatedUtterance, loaded, pooled_real_time_factor
from xtts_pipeline.inference.export.model_card import REPORT_NAME
from xtts_pipeline.inference.vocoders import choose_vocoder
from xtts_pipeline.reports.evaluation import page
from xtts_pipeline.reports.page import PAGE_NAME
from xtts_pipeline.system.storage import check_apart, own_name
from xtts_pipeline.system.terminal import counted, duration_text, echo_line, join_lines
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.training.checkpoints.run_folder import GRIFFIN_LIM

# By the keys in JSON.
TRUTHS = {"corpus": "the corpus", "cache": "the waves of the cache", "copy_synthesis": "copy synthesis"}
SOUNDS = {"true": "recordings", "copy": "copy synthesis", "copy_griffin_lim": "Griffin-Lim", "spoken": "speech"}
RATES = {
    "to_truth": "PER to truth",
    "to_copy": "PER to copy",
    "of_copy": "PER of copy",
    "of_copy_griffin_lim": "PER G.-Lim",
}
# Columns of the table of judges, with their decimals.
JUDGES = {
    "dnsmos_p808": ("P.808", 2),
    "dnsmos_overall": ("overall", 2),
    "pesq_wideband": ("PESQ-WB", 2),
    "stoi": ("STOI", 3),
    "speaker_similarity": ("similarity", 3),
}
ROWS_NAME = "utterances.jsonl"


@dataclass(frozen=True)
class EvaluationReport:
    """The metrics of a split, and what was evaluated."""

    run: Path
    step: int
    cache: Path
    fingerprint: str
    weights_sha256: str
    vocoder_weights_sha256: str | None
    split: str
    truth: str
    references: tuple[Path, ...]
    vocoder: Path | None
    overrides: tuple[str, ...]
    output: Path
    utterances: tuple[EvaluatedUtterance, ...]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs, as report.json holds it."""
        return {
            "run": str(self.run),
            "step": self.step,
            "cache": str(self.cache),
            "fingerprint": self.fingerprint,
            "weights_sha256": self.weights_sha256,
            "vocoder_weights_sha256": self.vocoder_weights_sha256,
            "split": self.split,
            "truth": self.truth,
            "references": [str(path) for path in self.references],
            "vocoder": GRIFFIN_LIM if self.vocoder is None else str(self.vocoder),
            "overrides": list(self.overrides),
            "output": str(self.output),
            "utterances": len(self.utterances),
            "stop_misses": self.stop_misses,
            "real_time_factor": round(self.real_time_factor, 4),
            "phoneme_error_rates": {name: round(errors.rate, 4) for name, errors in self.pooled_errors.items()},
            "judges": {label: judgement.to_json() for label, judgement in self.mean_judgements.items()},
            "figures": {
                summary.metric.name: {
                    "median": round(summary.median, 4),
                    "mean": round(summary.mean, 4),
                    "worst": round(summary.worst, 4),
                    "worst_id": self.utterances[summary.worst_at].entry.id,
                    "utterances": summary.utterances,
                }
                for summary in self.summaries
            },
        }

    def to_text(self) -> str:
        """Return the report for people."""
        count = len(self.utterances)
        voice = f", in the voice of {', '.join(map(str, self.references))}" if self.references else ""
        voice += f", with {', '.join(self.overrides)}" if self.overrides else ""
        title = f"{self.run} at step {self.step}, {self.cache} split {self.split}"
        lines = [
            f"{title}: {counted(count, 'utterance')}{voice}, compared with {TRUTHS[self.truth]}",
            *["pitch, spectrum and similarity are compared with the clips' own speakers"] * bool(self.references),
            "",
            f"{'':<30}{'median':>9}{'mean':>9}{'worst':>9}  worst in",
        ]
        for summary in self.summaries:
            shown = summary.metric
            values = (f"{value:>9.{shown.decimals}f}" for value in (summary.median, summary.mean, summary.worst))
            lines.append(f"{shown.label:<30}{''.join(values)}  {self.utterances[summary.worst_at].entry.id}")
        spoken = duration_text(self.spoken_seconds, 1)
        lines += [
            *self._judge_lines(),
            "",
            f"stop           {count - self.stop_misses} of {count} by themselves",
            f"speed          {self.real_time_factor:.3f} s of work for a second of speech, over {spoken}",
        ]
        for name, errors in self.pooled_errors.items():
            lines.append(f"{RATES[name]:<15}{errors.rate:.3f} over {errors.length} phonemes")
        return join_lines([*lines, f"page           {self.output / PAGE_NAME}"])

    def _judge_lines(self) -> list[str]:
        """Return the table of the judges' means by sound, without the columns of judges that were not there."""
        judged = self.mean_judgements
        shown = [name for name in JUDGES if any(vars(judgement)[name] is not None for judgement in judged.values())]
        if not shown:
            return []
        lines = ["", f"{'judges, mean':<15}{''.join(f'{JUDGES[name][0]:>12}' for name in shown)}"]
        for label in (label for label in SOUNDS if label in judged):
            figures = ((vars(judged[label])[name], JUDGES[name][1]) for name in shown)
            cells = (f"{'-' if value is None else f'{value:.{decimals}f}':>12}" for value, decimals in figures)
            lines.append(f"{SOUNDS[label]:<15}{''.join(cells)}")
        return lines

    @property
    def summaries(self) -> list[MetricSummary]:
        """The figures over all utterances."""
        return summarize([utterance.metrics for utterance in self.utterances])

    @property
    def stop_misses(self) -> int:
        """How many utterances were cut by the length cap."""
        return sum(not utterance.has_stopped for utterance in self.utterances)

    @property
    def spoken_seconds(self) -> float:
        """All seconds of speech."""
        return sum(utterance.spoken_seconds for utterance in self.utterances)

    @property
    def real_time_factor(self) -> float:
        """All seconds of synthesis over all seconds of speech."""
        return pooled_real_time_factor(self.utterances)

    @property
    def pooled_errors(self) -> PhonemeComparison:
        """The phoneme errors of the whole split, of what was measured."""
        return pool_comparisons([row.phonemes for row in self.utterances if row.phonemes is not None])

    @property
    def mean_judgements(self) -> dict[str, JudgedSound]:
        """The means of the judges' figures by sound."""
        return mean_judgements([row.judgements for row in self.utterances])


@click.command(cls=DocumentedCommand, example="xtts evaluate --run runs/first --limit 20")
@run_option
@run_cache_option
@click.option(
    "--split", type=Choice(SPLITS), default="val", show_default=True, help="Split whose utterances are spoken."
)
@click.option(
    "--data",
    type=FOLDER,
    help="Folder of the corpus: compare with its recordings, not with the cache's waves or copy synthesis.",
)
@click.option(
    "--output", type=FOLDER, help="Folder for sounds, pictures and page, new or empty.  [default: evaluation/DATE-TIME]"
)
@click.option("--limit", type=COUNT, help="Speak only this many utterances, the first of the split.")
@reference_option
@vocoder_option
@synthesis_option
@click.option(
    "--phoneme-error-rate", is_flag=True, help="Measure phoneme error rates too, which needs the extra `eval`."
)
@click.option(
    "--judges",
    is_flag=True,
    help="Judge recordings, copy synthesis and speech by DNSMOS, STOI and, where installed, PESQ and speaker "
    "similarity, which needs the extra `eval`.",
)
@jobs_option("Number of processes that compare speech with the truth.")
@json_option
@click.pass_obj
def evaluate(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Measure how close a run's speech is to the recordings.

    The run speaks the texts of a split. Sounds, pictures, figures and a page are written into a new folder.
    """
    print_report(evaluate_run(echo=debug, **options), as_json)


def evaluate_run(
    *,
    run: Path,
    cache: Path | None,
    split: str,
    data: Path | None,
    output: Path | None,
    limit: int | None,
    references: Sequence[Path],
    vocoder: Path | str | None,
    overrides: Sequence[str],
    phoneme_error_rate: bool,
    judges: bool,
    jobs: int,
    echo: bool,
) -> EvaluationReport:
    """Synthesize a split's texts, compare with the ground truth, and write sounds, pictures, metrics and a page.

    Without `cache`, the split is that of the run's own cache. `data` and `references` are those of `evaluate_split`,
    `vocoder` and `overrides` those of `Synthesizer.load`.
    Raises CacheError if the run was trained on another kind of cache, ConfigError without the extra that
    `phoneme_error_rate` and `judges` need.
    """
    # Loaded at once: a missing extra is no reason to wait for TensorFlow.
    if phoneme_error_rate:
        loaded(Recogniser)
    if judges and (missing := loaded(Judges).missing):
        # resemblyzer needs webrtcvad, which imports a module that later versions of setuptools lack.
        names = " ".join(missing)
        packages = names + ' "setuptools<81"' * ("resemblyzer" in missing)
        echo_line(f"warning: --judges without {names}: not installed; pip install {packages} adds the figures")
    cache = cache or cache_of_run(run)
    manifest = load_manifest(cache)
    entries = split_entries(cache, manifest, split, limit)
    folder = output or dated_folder("evaluation")
    check_apart(folder, cache)
    if data is not None and not data.exists():  # before minutes of speaking
        raise CorpusError(f"{data}: no such folder; {DATA_REMEDY}")
    chosen = choose_vocoder(run, vocoder)
    with tensorflow("xtts_pipeline.evaluation.split", echo=echo) as (_, splits):
        synthesizer = splits.Synthesizer.load(run, overrides, vocoder=vocoder)
        checkpoint = synthesizer.checkpoint
        splits.check_cache_fits(cache, manifest, checkpoint)
        warn_of_one_voice(run, checkpoint, references)
        with whole_folder(folder) as partial:
            with progress_bar(len(entries), "utterance") as bar:
                utterances = splits.evaluate_split(
                    synthesizer,
                    cache,
                    manifest,
                    entries,
                    partial,
                    data=data,
                    references=references,
                    recogniser=Recogniser if phoneme_error_rate else None,
                    judges=Judges if judges else None,
                    jobs=jobs,
                    progress=bar.update,
                )
            print_text_changes(sum((utterance.text_changes for utterance in utterances), TextChanges()))
            report = EvaluationReport(
                run=run,
                step=checkpoint.step,
                cache=cache,
                fingerprint=manifest.fingerprint,
                weights_sha256=checkpoint.weights_sha256,
                vocoder_weights_sha256=getattr(synthesizer.vocoder, "weights_sha256", None),
                split=split,
                truth="corpus" if data is not None else "cache" if manifest.waves else "copy_synthesis",
                references=tuple(references),
                vocoder=chosen,
                overrides=tuple(overrides),
                output=folder,
                utterances=utterances,
            )
            _write_report(report, manifest.audio, partial)
    return report


def _write_report(report: EvaluationReport, audio: AudioConfig, folder: Path) -> None:
    title = f"Evaluation of {own_name(report.run)} at step {report.step}"
    contents = {
        ROWS_NAME: "".join(f"{show_value(utterance.to_json())}\n" for utterance in report.utterances),
        PAGE_NAME: page(title, report.to_text(), report.utterances, audio),
        REPORT_NAME: f"{show_value(report.to_json())}\n",
    }
    with output_errors(report.output, "choose another --output"):
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")

"""`xtts evaluate`: a run and a cache's split in; figures, sounds, pictures and a page to listen on out."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import tqdm

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.cli.gate import tensorflow
from xtts_pipeline.cli.options import (
    COUNT,
    FOLDER,
    cache_option,
    create_empty_folder,
    json_option,
    print_report,
    reference_option,
    run_option,
    synthesis_option,
)
from xtts_pipeline.errors import OutputError
from xtts_pipeline.evaluation.figures import Figures, Heard, Sound, Summary, measure, summarize
from xtts_pipeline.evaluation.inputs import check_cache_fits, read_true_mels, read_true_wave, split_entries
from xtts_pipeline.evaluation.intelligibility import PhonemeErrors, Recogniser, count_errors, pool_errors
from xtts_pipeline.plots import save_speech_picture
from xtts_pipeline.reports.evaluation import Row, page

if TYPE_CHECKING:
    from xtts_pipeline.inference.synthesizer import SpokenText, Synthesizer

REPORT_NAME, PAGE_NAME, ROWS_NAME = "report.json", "index.html", "utterances.jsonl"


@dataclass(frozen=True)
class Evaluated:
    """One utterance: what the cache says of it, how it was spoken, and its files in the output folder."""

    entry: UtteranceEntry
    figures: Figures
    heard: Heard | None
    has_stopped: bool
    synthesis_seconds: float
    spoken_seconds: float
    true_seconds: float
    sounds: tuple[tuple[str, str], ...]
    pictures: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the utterance's line of utterances.jsonl."""
        entry = self.entry
        return {
            "id": entry.id,
            "text": entry.raw_text,
            "speaker": entry.speaker,
            "language": entry.language,
            "has_stopped": self.has_stopped,
            "synthesis_seconds": round(self.synthesis_seconds, 4),
            "spoken_seconds": round(self.spoken_seconds, 4),
            "true_seconds": round(self.true_seconds, 4),
            **_rounded(vars(self.figures)),
            "sounds": dict(self.sounds),
            "pictures": list(self.pictures),
        }


@dataclass(frozen=True)
class EvaluationReport:
    """A split's figures."""

    run: Path
    step: int
    cache: Path
    fingerprint: str
    split: str
    has_true_waves: bool
    references: tuple[Path, ...]
    overrides: tuple[str, ...]
    output: Path
    utterances: tuple[Evaluated, ...]

    def to_json(self) -> dict[str, object]:
        """Return the report for programs, as report.json holds it."""
        return {
            "run": str(self.run),
            "step": self.step,
            "cache": str(self.cache),
            "fingerprint": self.fingerprint,
            "split": self.split,
            "truth": "corpus" if self.has_true_waves else "copy_synthesis",
            "references": [str(path) for path in self.references],
            "overrides": list(self.overrides),
            "output": str(self.output),
            "utterances": len(self.utterances),
            "stop_misses": self.stop_misses,
            "real_time_factor": round(self.real_time_factor, 4),
            "phoneme_error_rates": {name: round(errors.rate, 4) for name, errors in self.pooled_errors.items()},
            "figures": {
                summary.measure.name: {
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
        truth = "the corpus" if self.has_true_waves else "copy synthesis"
        voice = f", in the voice of {', '.join(map(str, self.references))}" if self.references else ""
        voice += f", with {', '.join(self.overrides)}" if self.overrides else ""
        lines = [
            f"{self.run} at step {self.step}, {self.cache} split {self.split}: {count} utterances{voice}, held against {truth}",
            "",
            f"{'':<30}{'median':>9}{'mean':>9}{'worst':>9}  worst in",
        ]
        for summary in self.summaries:
            shown = summary.measure
            values = (f"{value:>9.{shown.decimals}f}" for value in (summary.median, summary.mean, summary.worst))
            lines.append(f"{shown.label:<30}{''.join(values)}  {self.utterances[summary.worst_at].entry.id}")
        spoken_seconds = sum(utterance.spoken_seconds for utterance in self.utterances)
        lines += [
            "",
            f"stop           {count - self.stop_misses} of {count} by themselves",
            f"speed          {self.real_time_factor:.3f} s of work for a second of speech, over {spoken_seconds:.1f} s",
        ]
        for label, name in (("PER to truth", "to_truth"), ("PER to copy", "to_copy"), ("PER of copy", "of_copy")):
            if name in self.pooled_errors:
                errors = self.pooled_errors[name]
                lines.append(f"{label:<15}{errors.rate:.3f} over {errors.length} phonemes")
        return "\n".join([*lines, f"page           {self.output / PAGE_NAME}"])

    @property
    def summaries(self) -> list[Summary]:
        """The figures over all utterances."""
        return summarize([utterance.figures for utterance in self.utterances])

    @property
    def stop_misses(self) -> int:
        """How many utterances were cut by the length cap."""
        return sum(not utterance.has_stopped for utterance in self.utterances)

    @property
    def real_time_factor(self) -> float:
        """All seconds of synthesis over all seconds of speech."""
        return sum(u.synthesis_seconds for u in self.utterances) / max(
            sum(u.spoken_seconds for u in self.utterances), 1e-9
        )

    @property
    def pooled_errors(self) -> dict[str, PhonemeErrors]:
        """The phoneme errors of the whole split, of what was measured."""
        heard = [utterance.heard for utterance in self.utterances if utterance.heard is not None]
        pooled = {}
        for name in ("to_truth", "to_copy", "of_copy"):
            errors = [errors for row in heard if (errors := vars(row)[name]) is not None]
            if errors:
                pooled[name] = pool_errors(errors)
        return pooled


@click.command()
@run_option
@cache_option
@click.option(
    "--split", type=click.Choice(SPLITS), default="val", show_default=True, help="Split whose utterances are spoken."
)
@click.option(
    "--data", type=FOLDER, help="Folder of the corpus: compare with its recordings instead of copy synthesis."
)
@click.option(
    "--output", type=FOLDER, help="Folder for sounds, pictures and page, new or empty.  [default: evaluation/DATE-TIME]"
)
@click.option("--limit", type=COUNT, help="Speak only this many utterances, the first of the split.")
@reference_option
@synthesis_option
@click.option(
    "--phoneme-error-rate", is_flag=True, help="Measure phoneme error rates too, which needs the extra `eval`."
)
@json_option
@click.pass_obj
def evaluate(debug: bool, /, as_json: bool, **options: Any) -> None:
    """Speak the texts of a split and measure how close the speech is to the recordings.

    Sounds, pictures, figures and a page to listen on are written into a new folder.
    """
    print_report(evaluate_run(echo=debug, **options), as_json)


def evaluate_run(
    *,
    run: Path,
    cache: Path,
    split: str,
    data: Path | None,
    output: Path | None,
    limit: int | None,
    references: Sequence[Path],
    overrides: Sequence[str],
    phoneme_error_rate: bool,
    echo: bool,
) -> EvaluationReport:
    """Speak a split's texts, compare with the true mels, and write sounds, pictures, figures and a page into a new folder.

    references: sound files whose voice speaks every text, in place of the cache's speakers.
    overrides: settings such as `synthesis.sharpness=1.5`, in place of the run's.
    data: the corpus; pitch and phonemes are compared with its recordings, otherwise with the true mels through the vocoder.
    Raises CacheError if the run was trained on another kind of cache, ConfigError if `phoneme_error_rate` needs what is not
    installed.
    """
    recogniser = Recogniser() if phoneme_error_rate else None
    manifest = load_manifest(cache)
    entries = split_entries(cache, manifest, split, limit)
    folder = output or Path("evaluation") / time.strftime("%Y%m%d-%H%M%S")
    with tensorflow("xtts_pipeline.inference.synthesizer", echo=echo) as (_, inference):
        synthesizer: Synthesizer = inference.Synthesizer.load(run, overrides)
        check_cache_fits(cache, manifest, synthesizer.checkpoint)
        create_empty_folder(folder)
        # The first call compiles, which would count as slow speech.
        _speak(synthesizer, entries[0], references)
        judge = _Judge(synthesizer, manifest, data, folder, recogniser, references)
        is_quiet = not sys.stderr.isatty()
        pairs = tqdm.tqdm(
            read_true_mels(cache, manifest, entries), total=len(entries), unit="utterance", disable=is_quiet
        )
        utterances = tuple(judge.evaluate(number, entry, mel) for number, (entry, mel) in enumerate(pairs))
    report = EvaluationReport(
        run=run,
        step=synthesizer.checkpoint.step,
        cache=cache,
        fingerprint=manifest.fingerprint,
        split=split,
        has_true_waves=data is not None,
        references=tuple(references),
        overrides=tuple(overrides),
        output=folder,
        utterances=utterances,
    )
    _write_report(report)
    return report


class _Judge:
    """Speaks, compares and writes one utterance at a time."""

    def __init__(
        self,
        synthesizer: "Synthesizer",
        manifest: Manifest,
        data: Path | None,
        folder: Path,
        recogniser: Recogniser | None,
        references: Sequence[Path],
    ) -> None:
        self._synthesizer, self._manifest = synthesizer, manifest
        self._data, self._folder, self._recogniser = data, folder, recogniser
        self._references = references

    def evaluate(self, number: int, entry: UtteranceEntry, mel: np.ndarray) -> Evaluated:
        """Return one utterance's figures, its sounds and pictures written."""
        audio = self._manifest.audio
        before = time.perf_counter()
        spoken = _speak(self._synthesizer, entry, self._references)
        synthesis_seconds = time.perf_counter() - before
        waves = {"spoken": spoken.wave}
        if self._data is not None:
            waves["true"] = read_true_wave(self._data, entry, mel, self._manifest)
        if self._data is None or self._recogniser is not None:
            waves["copy"] = self._synthesizer.vocode(mel)
        truth = waves["true"] if "true" in waves else waves["copy"]
        heard = None if self._recogniser is None else _hear(self._recogniser, waves, audio.sample_rate)
        symbols = self._synthesizer.symbols(spoken.tokens)
        return Evaluated(
            entry=entry,
            figures=measure(
                Sound(mel, truth),
                Sound(spoken.mel, spoken.wave),
                spoken.attention,
                symbols,
                synthesis_seconds,
                audio,
                heard,
            ),
            heard=heard,
            has_stopped=spoken.has_stopped,
            synthesis_seconds=synthesis_seconds,
            spoken_seconds=spoken.seconds,
            true_seconds=len(mel) * audio.hop_samples / audio.sample_rate,
            sounds=self._write_sounds(number, waves),
            pictures=self._write_pictures(number, entry, mel, spoken, symbols),
        )

    def _write_sounds(self, number: int, waves: dict[str, np.ndarray]) -> tuple[tuple[str, str], ...]:
        # Numbered, not named by id: an id is the corpus's word.
        files = tuple((label, f"{number:04d}-{label}.wav") for label in waves)
        for label, name in files:
            write_wave(self._folder / name, waves[label], self._manifest.audio.sample_rate)
        return files

    def _write_pictures(
        self, number: int, entry: UtteranceEntry, mel: np.ndarray, spoken: "SpokenText", symbols: Sequence[str]
    ) -> tuple[str, ...]:
        audio = self._manifest.audio
        names = (f"{number:04d}-spoken.png", f"{number:04d}-true.png")
        title = f"{entry.id}: {entry.raw_text}"
        save_speech_picture(
            self._folder / names[0], spoken.mel, spoken.seconds, title, spoken.attention, symbols, spoken.has_stopped
        )
        save_speech_picture(
            self._folder / names[1], mel, len(mel) * audio.hop_samples / audio.sample_rate, f"{title} (true)"
        )
        return names


def _speak(synthesizer: "Synthesizer", entry: UtteranceEntry, references: Sequence[Path]) -> "SpokenText":
    # The raw text: `text` may be phonemes already, which no synthesizer takes.
    # A reference takes the speaker's place.
    return synthesizer.synthesize(entry.raw_text, None if references else entry.speaker, entry.language, references)


def _hear(recogniser: Recogniser, waves: dict[str, np.ndarray], sample_rate: int) -> Heard:
    """Return the phoneme errors of `spoken` and `copy`, to `true` where there is one."""
    heard = {label: recogniser.hear(wave, sample_rate) for label, wave in waves.items()}
    to_copy = count_errors(heard["spoken"], heard["copy"])
    if "true" not in heard:
        return Heard(None, to_copy, None)
    return Heard(count_errors(heard["spoken"], heard["true"]), to_copy, count_errors(heard["copy"], heard["true"]))


def _write_report(report: EvaluationReport) -> None:
    rows = [
        Row(u.entry.id, u.entry.raw_text, u.has_stopped, u.figures, u.sounds, u.pictures) for u in report.utterances
    ]
    title = f"{report.run} at step {report.step}: {report.cache} {report.split}"
    contents = {
        ROWS_NAME: "".join(f"{_json(utterance.to_json())}\n" for utterance in report.utterances),
        PAGE_NAME: page(title, report.to_text(), rows),
        REPORT_NAME: f"{_json(report.to_json())}\n",
    }
    try:
        for name, content in contents.items():
            (report.output / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{report.output}: cannot be written ({error.strerror}); free space or choose another --output"
        ) from None


def _json(content: dict[str, object]) -> str:
    return json.dumps(content, ensure_ascii=False)


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}

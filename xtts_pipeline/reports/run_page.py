"""Write the page about a run: losses, durations, speed, and the sentences that it spoke at each evaluation."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig, Config
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.plots import mel_seconds
from xtts_pipeline.reports.charts import lines
from xtts_pipeline.reports.event_files import LoggedBytes, read_events
from xtts_pipeline.reports.page import (
    SOUNDS_FOLDER,
    Playable,
    card,
    cards,
    fold,
    heading,
    mel_plot,
    mel_uri,
    page_file,
    tile,
    tiles,
    toolbar,
    write_page,
)
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.storage import own_name
from xtts_pipeline.system.strict_json import Natural, first_problem
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.training.checkpoints.run_folder import METRICS_NAME, TENSORBOARD_FOLDER
from xtts_pipeline.training.checkpoints.state import NetworkKind, read_run_state
from xtts_pipeline.training.checkpoints.summary import read_summary
from xtts_pipeline.training.monitoring.warnings import MAX_WAIT_SHARE

# The parts of the page, and the words in the names of their figures; losses are all others.
PARTS = {
    "Losses": (),
    "Alignment and durations": ("alignment_fit", "duration_ratio", "stop_rate"),
    "Speed": ("step_ms", "share", "per_second"),
    "Optimiser": ("learning_rate", "gradient_norm", "skipped"),
}
# Labels of what a run writes of a sentence: its recording, its text.
TRUE, TEXT = "true", "text"
# Millions of reports.
_MAX_METRICS_BYTES = 1 << 30


class _Line(BaseModel):
    """A line of metrics.jsonl: figures by name, null where they were not finite."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat | None]
    step: Natural
    split: str


@dataclass(frozen=True)
class RunContent:
    """What the page shows. `reports` are the lines of metrics.jsonl, `media` what the run wrote for TensorBoard."""

    run: Path
    steps: int
    config: Config
    network: NetworkKind
    versions: Mapping[str, str]
    reports: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any] | None
    warnings: Sequence[str]
    media: Sequence[LoggedBytes]


def read_run(run: Path) -> RunContent:
    """Read a run's folder; it may still be trained.

    Raises CheckpointError if it has no checkpoint or no metrics, or if a line of the metrics is damaged.
    """
    state, reports = read_run_state(run), _read_reports(run / METRICS_NAME)
    summary = read_summary(run)
    warnings = summary.get("warnings", []) if summary else state.run.warnings if state.run else ()
    return RunContent(
        run=run,
        steps=state.step,
        config=state.config,
        network=state.network,
        versions={"xtts_pipeline": state.xtts_pipeline, "tensorflow": state.tensorflow},
        reports=reports,
        summary=summary,
        warnings=warnings,
        media=read_events(run / TENSORBOARD_FOLDER / "media"),
    )


def _read_reports(path: Path) -> list[dict[str, Any]]:
    try:
        content = read_regular_file(path, _MAX_METRICS_BYTES)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); name a run's folder") from None
    reports = []
    # The last line of a running training may be incomplete.
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            # Escaped bytes are no JSON, so a line that is not UTF-8 is refused as well.
            reports.append(_Line.model_validate_json(line.decode(errors="backslashreplace")).model_dump())
        except ValidationError as error:
            raise CheckpointError(
                f"{path}:{number}: {first_problem(error)}, expected a report such as "
                '{"step": 1, "split": "train", "loss": 2.5}; remove the line'
            ) from None
    return reports


def write_run_page(content: RunContent, output: Path) -> Path:
    """Write the page into an empty folder, and the sounds beside it; return the page's file."""
    (output / SOUNDS_FOLDER).mkdir()
    title = f"Run {own_name(content.run)}"
    version = ", ".join(f"{name} {found}" for name, found in content.versions.items())
    settings = content.config.model_dump_json(indent=1)
    body = [
        heading(title, f"{content.run} · {content.steps:,} steps · {version}"),
        _tiles(content),
        _warnings(content),
        _charts(content),
        _sentences(content, output),
        fold("Settings", settings),
    ]
    if content.summary:
        body.append(fold("Summary", json.dumps(content.summary, indent=1)))
    return write_page(output, title, "".join(body), page_file("report.js"))


def _last(content: RunContent, split: str, name: str) -> float | None:
    return next((line[name] for line in reversed(content.reports) if line["split"] == split and name in line), None)


def _tiles(content: RunContent) -> str:
    summary = content.summary or {}
    shown = [tile("Steps", f"{content.steps:,}", "finished" if summary else "not finished")]
    losses = [
        (line["loss"], line["step"])
        for line in content.reports
        if line["split"] == "val" and line.get("loss") is not None
    ]
    if losses:
        best, step = min(losses)
        shown.append(tile("Lowest validation loss", f"{best:.4f}", f"at step {step:,}"))
    if (loss := _last(content, "train", "loss")) is not None:
        shown.append(tile("Training loss", f"{loss:.4f}", "the last report"))
    step_ms = summary.get("step_ms") or {}
    if (time := step_ms.get("p50", _last(content, "train", "step_ms"))) is not None:
        note = f"p95 {step_ms['p95']:,.0f} ms" if step_ms else "the last report"
        shown.append(tile("Step", f"{time:,.0f} ms", note))
    if (share := summary.get("data_wait_share", _last(content, "train", "data_wait_share"))) is not None:
        is_good = share <= MAX_WAIT_SHARE
        shown.append(
            tile("Waiting for data", f"{share:.1%}", f"at most {MAX_WAIT_SHARE:.0%}", "good" if is_good else "bad")
        )
    if (stops := _last(content, "speech", "stop_rate")) is not None:
        shown.append(tile("Sentences that stop", f"{stops:.0%}", "expected all", "good" if stops == 1 else "bad"))
    if (shapes := summary.get("unexpected_shapes")) is not None:
        shown.append(tile("Unexpected shapes", f"{shapes}", "each compiles again", "good" if not shapes else "bad"))
    if parameters := summary.get("parameters"):
        shown.append(tile("Parameters", f"{parameters / 1e6:.1f} M", "trained"))
    count = len(content.warnings)
    shown.append(tile("Warnings", f"{count}", "below" if count else "none", "mixed" if count else "good"))
    return tiles(shown)


def _warnings(content: RunContent) -> str:
    return fold(counted(len(content.warnings), "warning"), "\n".join(content.warnings)) if content.warnings else ""


def _charts(content: RunContent) -> str:
    """Return a chart of each figure of metrics.jsonl, with a line for each split that has it."""
    figures: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for line in content.reports:
        for name, value in line.items():
            if name not in ("step", "split") and value is not None:
                places, values = figures.setdefault(name, {}).setdefault(line["split"], ([], []))
                places.append(line["step"])
                values.append(value)
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for name, series in figures.items():
        part = next((part for part, words in PARTS.items() if any(word in name for word in words)), "Losses")
        parts[part].append(lines(name.replace("_", " "), series))
    return "".join(
        f'<h2 class="part">{part}</h2><div class="charts">{"".join(charts)}</div>'
        for part, charts in parts.items()
        if charts
    )


def _sentences(content: RunContent, output: Path) -> str:
    """Return a card of each sentence at each evaluation: the recording and the speech, on one scale and time axis."""
    spoken: dict[tuple[int, str], dict[str, bytes]] = {}
    truths: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    for event in content.media:
        sentence, _, label = event.tag.rpartition("/")
        if event.content.startswith(b"RIFF"):
            if label == TRUE:
                truths[sentence] = event.content
            else:
                spoken.setdefault((event.step, sentence), {})[label] = event.content
        elif label == TEXT:
            texts[sentence] = event.content.decode(errors="replace").strip()
    if not spoken:
        return ""
    parts = []
    steps = sorted({step for step, _ in spoken}, reverse=True)
    for (step, sentence), sounds in sorted(spoken.items(), key=lambda item: (-item[0][0], item[0][1])):
        heard = ({TRUE: truths[sentence]} if sentence in truths else {}) | sounds
        text = texts.get(sentence, sentence.replace("_", " "))
        parts.append(_sentence_card(sentence, text, step, heard, content.config.audio, output))
    filters = {f"step-{step}": f"step {step:,}" for step in steps}
    if content.network == "vocoder":
        source = "Copies are made by the vocoder from the mels of recordings."
    else:
        source = "Sounds are made from mels by Griffin-Lim."
    return (
        f'<h2 class="part">Sentences at each evaluation</h2><p>{source}</p>'
        + toolbar({"step": "step", "sentence": "sentence"}, filters)
        + cards(parts)
    )


def _sentence_card(
    sentence: str, text: str, step: int, sounds: Mapping[str, bytes], audio: AudioConfig, output: Path
) -> str:
    mels = {label: _mel_of(content, audio) for label, content in sounds.items()}
    longest = max(mel_seconds(mel, audio) for mel in mels.values())
    playables, plots = [], []
    for key, (label, content) in enumerate(sounds.items(), start=1):
        name = f"{sentence}-{label}" + ("" if label == TRUE else f"-{step}")
        file = f"{SOUNDS_FOLDER}/{''.join(letter if letter.isalnum() else '-' for letter in name)}.wav"
        (output / file).write_bytes(content)
        playables.append(Playable(label, file, label, str(key)))
        plots.append(
            mel_plot(mel_uri(mels[label], audio), label, mel_seconds(mels[label], audio), longest, audio, label)
        )
    number = "".join(letter for letter in sentence if letter.isdigit())
    sorts = {"step": float(step), "sentence": -float(number or 0)}
    return card(text, f"{sentence}, step {step:,}", [], playables, "".join(plots), sorts=sorts, flags=[f"step-{step}"])


def _mel_of(wav: bytes, audio: AudioConfig) -> Any:
    wave, _ = soundfile.read(io.BytesIO(wav), dtype="float32")
    return log_mel(wave, audio)

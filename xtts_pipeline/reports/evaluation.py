"""Write the HTML page of an evaluation: summary tiles, then a card an utterance, worst first."""

from collections.abc import Sequence

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.evaluation.metrics import METRICS, Metric, summarize
from xtts_pipeline.evaluation.utterance import EvaluatedUtterance, pooled_real_time_factor
from xtts_pipeline.inference.timings import timings_to_json
from xtts_pipeline.reports.page import (
    Playable,
    Span,
    Verdict,
    card,
    cards,
    fold,
    heading,
    help_line,
    mel_plot,
    render_page,
    tile,
    tiles,
    toolbar,
    values,
)

# The first of these that was measured orders the cards.
_ORDERED_BY = ("phoneme_error_rate", "phoneme_error_rate_to_copy", "mel_cepstral_distortion_db")
# In the order of their keys: the truth, the speech, then the rest.
_SOUNDS = {
    "true": "Recording",
    "spoken": "Speech",
    "copy": "Copy synthesis",
    "copy_griffin_lim": "Copy by Griffin-Lim",
}
_KEYS = "abcd"
_DID_NOT_STOP = "did not stop"


def page(title: str, overview: str, rows: Sequence[EvaluatedUtterance], audio: AudioConfig) -> str:
    """Return the HTML page: tiles, the overview in the terminal's layout, then the cards, worst first.

    The worst row has the largest phoneme error rate, or the largest distortion where no phonemes were recognised.
    """
    shown = [metric for metric in METRICS if any(metric.value_of(row.metrics) is not None for row in rows)]
    by_name = {metric.name: metric for metric in shown}
    first = next(by_name[name] for name in _ORDERED_BY if name in by_name)
    ordered = [first, *(metric for metric in shown if metric is not first)]
    sorts = {metric.name: f"{metric.label}, worst first" for metric in ordered} | {"split": "order of the split"}
    limited = {metric.name: f"{metric.label} not {metric.threshold}" for metric in shown if metric.threshold}
    filters = {"failure": "failures", "stop": _DID_NOT_STOP} | limited
    parts = [(row, _card(number, row, shown, audio)) for number, row in enumerate(rows)]
    parts.sort(key=lambda part: _badness(part[0], first), reverse=True)
    keys = {key: label for key, (_, _, label, _) in zip(_KEYS, _playables(rows[0]), strict=False)}
    body = [
        heading(title, overview.partition("\n")[0]),
        tiles(_tiles(rows, shown)),
        fold("All figures", overview),
        toolbar(sorts, filters),
        help_line(keys),
        cards([part for _, part in parts]),
    ]
    return render_page(title, "\n".join(body))


def _tiles(rows: Sequence[EvaluatedUtterance], shown: Sequence[Metric]) -> list[str]:
    count = len(rows)
    good, stopped = sum(not _failures(row, shown) for row in rows), sum(row.has_stopped for row in rows)
    parts = [
        tile("without a failure", f"{good} of {count}", "stopped, every figure as expected", _verdict(good, count)),
        tile("stopped by itself", f"{stopped} of {count}", "expected: all", _verdict(stopped, count)),
    ]
    for summary in summarize([row.metrics for row in rows]):
        metric, median = summary.metric, summary.metric.text_of(summary.median)
        kept = sum((value := metric.value_of(row.metrics)) is not None and metric.is_good(value) for row in rows)
        if metric.threshold:
            verdict = _verdict(kept, summary.utterances)
            verdict = "bad" if not metric.is_good(summary.median) else verdict
            note = f"expected {metric.threshold}; so are {kept} of {summary.utterances}"
            parts.append(tile(f"{metric.label}, median", median, note, verdict))
        elif metric.name in _ORDERED_BY:
            note = f"no threshold: compare runs on one cache; worst {metric.text_of(summary.worst)}"
            parts.append(tile(f"{metric.label}, median", median, note))
    speed = pooled_real_time_factor(rows)
    note = "expected below 1, on the machine that spoke"
    return [*parts, tile("real-time factor", f"{speed:.3f}", note, "good" if speed < 1 else "bad")]


def _verdict(good: int, count: int) -> Verdict:
    return "good" if good == count else "mixed" if 2 * good >= count else "bad"


def _failures(row: EvaluatedUtterance, shown: Sequence[Metric]) -> dict[str, str]:
    """Return what is wrong with an utterance, in words by the keys of the filter."""
    failures = {} if row.has_stopped else {"stop": _DID_NOT_STOP}
    for metric in shown:
        value = metric.value_of(row.metrics)
        if value is not None and not metric.is_good(value):
            failures[metric.name] = f"{metric.label} {metric.text_of(value)}, expected {metric.threshold}"
    return failures


def _card(number: int, row: EvaluatedUtterance, shown: Sequence[Metric], audio: AudioConfig) -> str:
    failures = _failures(row, shown)
    figures = []
    for metric in shown:
        value = metric.value_of(row.metrics)
        figures.append((metric.label, "-" if value is None else metric.text_of(value), metric.name in failures))
    measured = {metric.name: _badness(row, metric) for metric in shown if metric.value_of(row.metrics) is not None}
    detail = f"{row.entry.id} · {row.entry.speaker} · {row.true_seconds:.2f} s, spoken in {row.spoken_seconds:.2f} s"
    return card(
        row.entry.raw_text,
        detail,
        list(failures.values()),
        _playables(row),
        _pictures(row, audio) + values(figures),
        sorts=measured | {"split": -number},
        flags=[*failures, *(["failure"] if failures else [])],
    )


def _playables(row: EvaluatedUtterance) -> list[Playable]:
    names = row.sounds
    # Without a recording, copy synthesis is the truth.
    order = _SOUNDS if "true" in names else ("copy", *_SOUNDS)
    present = [label for label in dict.fromkeys(order) if label in names]
    return [Playable(label, names[label], _SOUNDS[label], key) for label, key in zip(present, _KEYS, strict=False)]


def _pictures(row: EvaluatedUtterance, audio: AudioConfig) -> str:
    """Return both mels, and the words and tokens of the speech below its own."""
    names, timings = row.pictures, timings_to_json(row.symbols, row.durations, audio.frame_seconds)
    words = [Span(word["word"], word["begin"], word["end"]) for word in timings["words"]]
    tokens = [Span(token["symbol"], token["begin"], token["end"]) for token in timings["tokens"]]
    seconds = float(sum(row.durations)) * audio.frame_seconds
    axis = max(row.true_seconds, seconds)
    truth = "true" if "true" in row.sounds else "copy"
    spoken = f"Spoken mel, {row.spoken_seconds:.2f} s"
    return mel_plot(
        names["true"], f"True mel, {row.true_seconds:.2f} s", row.true_seconds, axis, audio, truth
    ) + mel_plot(names["spoken"], spoken, seconds, axis, audio, "spoken", [words, tokens])


def _badness(row: EvaluatedUtterance, metric: Metric) -> float:
    value = metric.value_of(row.metrics)
    return float("-inf") if value is None else metric.badness(value)

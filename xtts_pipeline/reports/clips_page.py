"""Write the page about the clips of a corpus or a cache: what they are like, and which are strange."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.config.schema import AudioConfig, Bucket, LimitsConfig
from xtts_pipeline.corpus.utterance import Rejection, examples_by_reason
from xtts_pipeline.errors import Reason
from xtts_pipeline.plots import mel_seconds
from xtts_pipeline.quality.clips import CachedClips, CorpusClips, MeasuredClip
from xtts_pipeline.quality.duplicates import DuplicateGroup
from xtts_pipeline.quality.strangeness import SUSPECT_SCORE, Strangeness
from xtts_pipeline.quality.symbols import SymbolCount
from xtts_pipeline.reports.charts import bars, density, histogram
from xtts_pipeline.reports.page import (
    SOUNDS_FOLDER,
    Playable,
    card,
    cards,
    heading,
    mel_plot,
    mel_uri,
    page_file,
    tile,
    tiles,
    toolbar,
    values,
    write_page,
)

STRANGEST = 50
# Groups whose clips have cards, and groups in the table.
GROUPS_SHOWN, GROUPS_LISTED = 50, 500
# The most columns of a picture: twice what a card is wide.
MOST_COLUMNS = 480
GROUP_NAMES = {"sound": "the same sound", "text": "the same text", "near text": "nearly the same text"}


@dataclass(frozen=True)
class ClipsContent:
    """What the page shows. `symbols` are those of the texts; `limits` and `buckets` those in force."""

    title: str
    clips: Sequence[MeasuredClip]
    rejections: Sequence[Rejection]
    strangeness: Sequence[Strangeness]
    duplicates: Sequence[DuplicateGroup]
    symbols: Sequence[SymbolCount]
    limits: LimitsConfig
    buckets: Sequence[Bucket]

    @property
    def suspects(self) -> set[int]:
        """The numbers of the clips that are suspect by any measure."""
        return {int(number) for found in self.strangeness for number in np.flatnonzero(found.scores >= SUSPECT_SCORE)}

    @property
    def rejected_by_reason(self) -> list[tuple[Reason, int]]:
        """How many rows were left out for each reason, the most frequent first."""
        return Counter(rejection.reason for rejection in self.rejections).most_common()

    def count_repeated(self, kind: str) -> int:
        """Return the number of clips that are like an earlier one, by the kind of their groups."""
        return sum(len(group.clips) - 1 for group in self.duplicates if group.kind == kind)


def write_clips_page(content: ClipsContent, source: CachedClips | CorpusClips, output: Path) -> Path:
    """Write the page into an empty folder, and the sounds of its cards beside it; return the page's file.

    Raises OutputError if a sound cannot be written.
    """
    shown = _shown(content)
    (output / SOUNDS_FOLDER).mkdir()
    files, pictures = {}, {}
    numbers = {content.clips[number].id: number for number in shown}
    for id, sound in source.sounds(list(numbers)):
        number = numbers[id]
        pictures[number] = _picture(sound.mel, source.audio)
        if sound.wave is not None:
            files[number] = f"{SOUNDS_FOLDER}/{number:06d}.flac"
            write_wave(output / files[number], sound.wave, source.audio.sample_rate)
    body = "".join(
        [
            heading(content.title, _overview(content)),
            _tiles(content),
            _measures(content),
            _cards(content, shown, pictures, files, source.audio),
            _duplicates(content),
            _lengths(content),
            _sounds(content),
            _texts(content),
            _left_out(content),
            _selection(),
        ]
    )
    return write_page(output, content.title, body, page_file("report.js"))


def _shown(content: ClipsContent) -> dict[int, list[str]]:
    """Return the clips that have cards, in the order of their highest score, with the keys that show them."""
    keys: dict[int, list[str]] = {}
    for found in content.strangeness:
        for number in found.strangest(STRANGEST):
            keys.setdefault(number, []).append(found.measure.name)
    highest = {number: max(float(found.scores[number]) for found in content.strangeness) for number in keys}
    ordered = {number: keys[number] for number in sorted(keys, key=lambda number: -highest[number])}
    for group in content.duplicates[:GROUPS_SHOWN]:
        for number in group.clips:
            ordered.setdefault(number, []).append("duplicate")
    return ordered


def _picture(mel: np.ndarray, audio: AudioConfig) -> tuple[str, float]:
    """Return a mel's picture as a URI, and its seconds."""
    frames = -(-len(mel) // MOST_COLUMNS)
    padded = np.pad(mel, ((0, -len(mel) % frames), (0, 0)), mode="edge")
    means = padded.reshape(-1, frames, mel.shape[1]).mean(axis=1)
    return mel_uri(means, audio), mel_seconds(mel, audio)


def _overview(content: ClipsContent) -> str:
    return (
        f"{len(content.clips):,} clips measured. A score counts robust standard deviations from the clips like it; "
        f"from {SUSPECT_SCORE:g} on a clip is suspect. Listen, select what to leave out, and save the ids."
    )


def _tiles(content: ClipsContent) -> str:
    seconds = sum(clip.sound.seconds for clip in content.clips)
    speakers = len({clip.speaker for clip in content.clips})
    voices = "1 speaker" if speakers == 1 else f"{speakers:,} speakers"
    repeated = content.count_repeated("sound")
    rare = sum(symbol.mark == "rare" for symbol in content.symbols)
    most = ", ".join(f"{count:,} {reason}" for reason, count in content.rejected_by_reason[:2])
    shown = [
        tile("Clips", f"{len(content.clips):,}", f"{seconds / 3600:.2f} hours, {voices}"),
        tile("Suspect", f"{len(content.suspects):,}", f"{len(content.suspects) / len(content.clips):.1%} of the clips"),
        tile("Repeated sounds", f"{repeated:,}", "expected none", "bad" if repeated else "good"),
        tile("Repeated texts", f"{content.count_repeated('text'):,}", "with another sound"),
        tile("Left out", f"{len(content.rejections):,}", most or "every row can be used", "mixed" if most else "good"),
        tile("Symbols", f"{len(content.symbols):,}", f"{rare} rare", "mixed" if rare else ""),
    ]
    return tiles(shown)


def _measures(content: ClipsContent) -> str:
    if not content.strangeness:
        return "<p>Too few clips to compare them with one another.</p>"
    charts = []
    for found in content.strangeness:
        measure = found.measure
        suspects = int((found.scores >= SUSPECT_SCORE).sum())
        button = f'<p><button type="button" data-show="{measure.name}">Show the strangest</button></p>'
        explanation = f"<p>{escape(measure.explanation)}</p>{button}"
        charts.append(
            histogram(measure.title, found.values, measure.unit, note=f"{suspects:,} suspect", after=explanation)
        )
    return f'<h2 class="part">Measures of each clip</h2><div class="charts">{"".join(charts)}</div>'


def _cards(
    content: ClipsContent,
    shown: Mapping[int, Sequence[str]],
    pictures: Mapping[int, tuple[str, float]],
    files: Mapping[int, str],
    audio: AudioConfig,
) -> str:
    titles = {found.measure.name: found.measure.title for found in content.strangeness}
    sorts = {"highest": "highest score"} | titles | {"duplicate": "duplicates"}
    filters = {name: f"strangest: {title}" for name, title in titles.items()}
    filters |= {"duplicate": "duplicates", "selected": "selected"}
    parts = []
    # Of several groups of a clip, the first counts: the same sound comes before a similar text.
    groups = {number: place for place, group in reversed([*enumerate(content.duplicates)]) for number in group.clips}
    for number, keys in shown.items():
        clip, scores = content.clips[number], _scores(content, number)
        rows = [
            (found.measure.title, with_unit(found, number), score >= SUSPECT_SCORE)
            for found, score in zip(content.strangeness, scores, strict=True)
            if np.isfinite(found.values[number])
        ]
        flagged = [
            f"{found.measure.title} {with_unit(found, number)}"
            for found, score in zip(content.strangeness, scores, strict=True)
            if score >= SUSPECT_SCORE
        ]
        if number in groups:
            flagged.append(_likeness(content, content.duplicates[groups[number]], number))
        picture, seconds = pictures[number]
        sounds = [Playable("clip", files[number], "Play", "1")] if number in files else []
        order = {name: score for name, score in zip(titles, scores, strict=True) if name in keys}
        order["highest"] = max(scores, default=0.0)
        if "duplicate" in keys:
            order["duplicate"] = -groups[number]
        figures = f"{values(rows)}{_pick(clip.id, 'Leave out')}"
        detail = f"{clip.id} · {clip.speaker} · {clip.sound.seconds:.2f} s"
        plot = mel_plot(picture, "mel", seconds, seconds, audio, "clip")
        parts.append(
            card(clip.raw_text, detail, flagged, sounds, f"{plot}<div>{figures}</div>", sorts=order, flags=keys)
        )
    intro = (
        f'<h2 class="part" id="clips">Strange clips</h2><p>The {STRANGEST} strangest by each measure, and duplicates. '
        '<button type="button" id="pick-shown">Select all shown</button></p>'
    )
    return intro + toolbar(sorts, filters) + cards(parts)


def _scores(content: ClipsContent, number: int) -> list[float]:
    return [float(np.nan_to_num(found.scores[number])) for found in content.strangeness]


def with_unit(found: Strangeness, number: int) -> str:
    """Return a clip's value and score by a measure."""
    unit = "×" if found.measure.unit == "x" else f" {found.measure.unit}"
    return f"{found.values[number]:.{found.measure.decimals}f}{unit} (score {found.scores[number]:.1f})"


def _likeness(content: ClipsContent, group: DuplicateGroup, number: int) -> str:
    other = next(content.clips[clip] for clip in group.clips if clip != number)
    differs = ", but another text" if group.kind == "sound" and other.text != content.clips[number].text else ""
    return f"{GROUP_NAMES[group.kind]} as {other.id}{differs}"


def _pick(id: str, label: str) -> str:
    return f'<label class="pick"><input type="checkbox" data-id="{escape(id)}"> {escape(label)}</label>'


def _duplicates(content: ClipsContent) -> str:
    if not content.duplicates:
        return ""
    rows = []
    for group in content.duplicates[:GROUPS_LISTED]:
        members = [content.clips[number] for number in group.clips]
        texts = list(dict.fromkeys(clip.raw_text for clip in members))
        picks = " ".join(_pick(clip.id, clip.id) for clip in members)
        repeat = ' class="repeat"' if group.kind == "sound" else ""
        said = "<br>".join(escape(text) for text in texts[:3])
        figure = f'<td class="figure">{group.likeness:.1%}</td>'
        rows.append(
            f'<tr{repeat}><td>{GROUP_NAMES[group.kind]}</td>{figure}<td>{picks}</td><td dir="auto">{said}</td></tr>'
        )
    more = len(content.duplicates) - GROUPS_LISTED
    note = f"<p>{more:,} more groups are not shown.</p>" if more > 0 else ""
    head = "<tr><th>What</th><th>Likeness</th><th>Clips</th><th>Text</th></tr>"
    button = '<p><button type="button" id="repeats">Select repeated sounds but the first</button></p>'
    return (
        f'<h2 class="part" id="duplicates">Duplicates</h2>{note}<div class="panel">{button}{_table(head, rows)}</div>'
    )


def _table(head: str, rows: Sequence[str]) -> str:
    return (
        f'<div class="tablebox" tabindex="0"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _lengths(content: ClipsContent) -> str:
    clips, limits = content.clips, content.limits
    seconds = np.array([clip.sound.seconds for clip in clips])
    frames, tokens = np.array([clip.sound.frames for clip in clips]), np.array([clip.tokens for clip in clips])
    boxes = content.buckets or [(limits.max_text_length, limits.max_mel_frames)]
    fits = np.mean((tokens <= limits.max_text_length) & (frames <= limits.max_mel_frames))
    names = ", ".join(f"{text} x {length}" for text, length in boxes)
    charts = [
        histogram(
            "Seconds",
            seconds,
            "s",
            limits={"min_seconds": limits.min_seconds, "max_seconds": limits.max_seconds},
        ),
        histogram("Mel frames", frames, "frames", limits={"max_mel_frames": limits.max_mel_frames}),
        histogram("Text length", tokens, "tokens", limits={"max_text_length": limits.max_text_length}),
        histogram("Speed", tokens / np.maximum(seconds, 1e-3), "tokens/s"),
        density(
            "Text length against mel frames",
            tokens,
            frames,
            ("tokens", "frames"),
            boxes,
            f"boxes: {'data.buckets' if content.buckets else 'limits'} {names}; the limits keep {fits:.2%}",
        ),
    ]
    return f'<h2 class="part">Lengths and limits</h2><div class="charts">{"".join(charts)}</div>'


def _sounds(content: ClipsContent) -> str:
    sounds = [clip.sound for clip in content.clips]
    charts = [
        histogram("Silence before the speech", np.array([sound.leading_silence for sound in sounds]), "s"),
        histogram("Silence after the speech", np.array([sound.trailing_silence for sound in sounds]), "s"),
        histogram("Longest pause", np.array([sound.longest_pause for sound in sounds]), "s"),
    ]
    clipping = [sound.clipping for sound in sounds if sound.clipping is not None]
    if clipping:
        charts.append(histogram("Peak", np.array([found.peak_db for found in clipping]), "dBFS"))
    hours: defaultdict[str, float] = defaultdict(float)
    for clip in content.clips:
        hours[clip.speaker] += clip.sound.seconds / 3600
    few = dict(sorted(hours.items(), key=lambda item: -item[1])[:30])
    charts.append(bars("Hours by speaker", few, "h", f"the first 30 of {len(hours):,}" if len(hours) > 30 else ""))
    return f'<h2 class="part">Sound and speakers</h2><div class="charts">{"".join(charts)}</div>'


def _texts(content: ClipsContent) -> str:
    rows = [
        f'<tr><td>{escape(repr(symbol.symbol))}</td><td>U+{ord(symbol.symbol):04X}</td><td class="figure">'
        f'{symbol.count:,}</td><td class="rare">{symbol.mark}</td><td>{escape(symbol.example)}</td></tr>'
        for symbol in content.symbols
    ]
    head = "<tr><th>Symbol</th><th>Code</th><th>Count</th><th>Mark</th><th>Example</th></tr>"
    return f'<h2 class="part">Symbols of the texts</h2><div class="panel">{_table(head, rows)}</div>'


def _left_out(content: ClipsContent) -> str:
    if not content.rejections:
        return ""
    examples = examples_by_reason(content.rejections)
    rows = [
        f'<tr><td>{escape(reason)}</td><td class="figure">{count:,}</td><td>{escape(examples[reason]["id"])}</td>'
        f"<td>{escape(examples[reason]['detail'])}</td></tr>"
        for reason, count in content.rejected_by_reason
    ]
    head = "<tr><th>Reason</th><th>Rows</th><th>Example</th><th>Detail</th></tr>"
    return f'<h2 class="part">Left out</h2><div class="panel">{_table(head, rows)}</div>'


def _selection() -> str:
    return (
        '<div class="panel selection" role="region" aria-label="Selection" hidden>'
        '<output id="picked" aria-live="polite"></output>'
        '<button type="button" id="clear">Clear</button><button type="button" id="copy">Copy ids</button>'
        '<a id="save" download="exclude.txt" href="data:text/plain,">Save exclude.txt</a></div>'
    )

"""The parts that all HTML pages share: the shell, tiles, cards, sounds, and pictures with their axes.

Every text is escaped here. A page loads nothing from a network.
"""

import math
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

import numpy as np

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.plots import encode_mel, hertz_ticks
from xtts_pipeline.system.atomic_files import write_output

Verdict = Literal["good", "mixed", "bad", ""]
_VERDICTS = {"good": "✓ good", "mixed": "◐ mixed", "bad": "✗ bad"}
_MOST_TIMES = 6
# A page is one file with the folder of its sounds beside it.
PAGE_NAME, SOUNDS_FOLDER = "index.html", "sounds"


class Playable(NamedTuple):
    """A sound of a card. `name` also names the pictures that show it; `key` plays it in the chosen card."""

    name: str
    file: str
    label: str
    key: str


class Span(NamedTuple):
    """A word or a token below a picture, in seconds."""

    label: str
    begin: float
    end: float


def render_page(title: str, body: str, script: str = "") -> str:
    """Return a whole page of one file. `body` is HTML; `script` runs after the shared one."""
    parts = {name: page_file(f"page.{name}") for name in ("html", "css", "js")}
    return Template(parts["html"]).substitute(
        title=escape(title), style=parts["css"], body=body, script=parts["js"] + script
    )


def write_page(output: Path, title: str, body: str, script: str = "") -> Path:
    """Write a page of `render_page` into a folder; return its file."""
    page = output / PAGE_NAME
    write_output(page, render_page(title, body, script).encode())
    return page


def page_file(name: str) -> str:
    """Return the text of a file of this package."""
    return files("xtts_pipeline.reports").joinpath(name).read_text(encoding="utf-8")


def heading(title: str, detail: str) -> str:
    """Return the title of a page and a line about it."""
    return f"<header><h1>{escape(title)}</h1><p>{escape(detail)}</p></header>"


def tile(label: str, value: str, note: str, verdict: Verdict = "") -> str:
    """Return a summary tile: a figure, whether it is good, and the threshold that says so."""
    said = f"<b>{_VERDICTS[verdict]}</b> " if verdict else ""
    figure = f"<span>{escape(label)}</span><strong>{escape(value)}</strong><small>{said}{escape(note)}</small>"
    return f'<li class="panel tile {verdict}">{figure}</li>'


def tiles(parts: Sequence[str]) -> str:
    """Return the grid of the tiles."""
    return f'<ul class="tiles">{"".join(parts)}</ul>'


def fold(summary: str, text: str) -> str:
    """Return a text that opens by a click, as it would stand in a terminal."""
    pre = f'<pre tabindex="0">{escape(text)}</pre>'
    return f'<details class="panel"><summary>{escape(summary)}</summary>{pre}</details>'


def toolbar(sorts: Mapping[str, str], filters: Mapping[str, str]) -> str:
    """Return the search, the order and the filter of the cards: labels by keys. The first filter has a key of its own.

    The keys are those of `card`.
    """
    fields = [
        '<label>Search <input id="search" type="search" autocomplete="off"></label>',
        f'<label>Sort by <select id="sort">{_options(sorts)}</select></label>',
        '<button id="reverse" type="button" aria-pressed="false">Reverse</button>',
        f'<label>Show <select id="filter">{_options({"": "all"} | dict(filters))}</select></label>',
        '<output id="count" aria-live="polite"></output>',
    ]
    return f'<form class="panel toolbar" role="search" onsubmit="return false">{"".join(fields)}</form>'


def _options(labels: Mapping[str, str]) -> str:
    return "".join(f'<option value="{escape(key)}">{escape(label)}</option>' for key, label in labels.items())


def help_line(keys: Mapping[str, str]) -> str:
    """Return the line of keys: those of every page, then those of the sounds by their labels."""
    shared = {"j": "next card", "k": "previous card", "space": "play or stop"}
    every = shared | dict(keys) | {"f": "filter", "/": "search", "esc": "leave a field"}
    shown = " · ".join(f"<kbd>{escape(key)}</kbd> {escape(action)}" for key, action in every.items())
    return f'<p class="help">Keys: {shown}. Click a picture to play from there.</p>'


def card(
    title: str,
    detail: str,
    badges: Sequence[str],
    sounds: Sequence[Playable],
    pictures: str,
    *,
    sorts: Mapping[str, float],
    flags: Collection[str],
) -> str:
    """Return a card. `sorts` are the values by the toolbar's keys, larger first; a card without a value stays last.

    `flags` are the keys of the toolbar's filters that show it. `pictures` is HTML.
    """
    # JavaScript reads no "inf".
    values = "".join(f' data-sort-{key}="{min(value, 1e300):.6g}"' for key, value in sorts.items())
    marks = "".join(f'<span class="badge">{escape(text)}</span>' for text in badges)
    header = f'<header><h2 dir="auto">{escape(title)}</h2><p>{escape(detail)}</p></header>'
    return (
        f'<article class="panel card" tabindex="-1" data-flags="{escape(" ".join(flags))}"{values}>{header}'
        + (f'<div class="badges">{marks}</div>' if badges else "")
        + f'<div class="sounds">{"".join(map(_button, sounds))}</div><div class="pictures">{pictures}</div></article>'
    )


def _button(sound: Playable) -> str:
    data = f'data-src="{escape(sound.file)}" data-sound="{escape(sound.name)}" data-key="{escape(sound.key)}"'
    key = f"<kbd>{escape(sound.key)}</kbd>" if sound.key else ""
    return f'<button type="button" aria-pressed="false" {data}>{escape(sound.label)} {key}</button>'


def cards(parts: Sequence[str]) -> str:
    """Return the list of the cards."""
    return f'<section class="cards" aria-label="Sentences">{"".join(parts)}</section>'


def values(rows: Sequence[tuple[str, str, bool]]) -> str:
    """Return a table of labels and values; True marks one that is bad."""
    parts = []
    for label, value, is_bad in rows:
        kind = ' class="bad"' if is_bad else ""
        parts.append(f"<div{kind}><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>")
    return f'<dl class="values">{"".join(parts)}</dl>'


def mel_uri(mel: np.ndarray, audio: AudioConfig) -> str:
    """Return the picture of `plots.encode_mel` as a URI, for `mel_plot`."""
    return f"data:image/png;base64,{b64encode(encode_mel(mel, audio)).decode()}"


def mel_plot(
    source: str,
    caption: str,
    seconds: float,
    axis_seconds: float,
    audio: AudioConfig,
    sound: str = "",
    lanes: Sequence[Sequence[Span]] = (),
) -> str:
    """Return the picture of `plots.encode_mel` with Hz and seconds at its axes. `source` is a file or a data URI.

    The picture covers `seconds` of an axis of `axis_seconds`. Each lane is a row of words or tokens below it.
    """
    rows = [(label, (place + 0.5) / audio.mel_bins) for label, place in hertz_ticks(audio)]
    labels = "".join(f'<span style="bottom:{100 * share:.2f}%">{escape(label)}</span>' for label, share in rows)
    times = "".join(
        f'<span style="left:{100 * time / axis_seconds:.2f}%">{label}</span>' for time, label in _times(axis_seconds)
    )
    below = "".join(f'<div class="lane">{"".join(_span(span, axis_seconds) for span in lane)}</div>' for lane in lanes)
    width = 100 * seconds / axis_seconds
    image = f'<img loading="lazy" alt="{escape(caption)}" src="{escape(source)}" style="width:{width:.2f}%">'
    return (
        f'<figure class="plot" data-sound="{escape(sound)}" data-seconds="{axis_seconds:.3f}">'
        f"<figcaption>{escape(caption)}</figcaption>"
        f'<div class="rows" aria-hidden="true">{labels}</div><div class="area">{image}</div>'
        f'{below}<div class="times" aria-hidden="true">{times}</div></figure>'
    )


def _span(span: Span, axis_seconds: float) -> str:
    place = f"left:{100 * span.begin / axis_seconds:.2f}%;width:{100 * (span.end - span.begin) / axis_seconds:.2f}%"
    data = f'data-begin="{span.begin:.3f}" data-end="{span.end:.3f}"'
    title = f"{span.label}: {span.begin:.2f} to {span.end:.2f} s"
    return f'<span style="{place}" {data} title="{escape(title)}">{escape(span.label)}</span>'


def _times(seconds: float) -> list[tuple[float, str]]:
    """Return round times from 0 on, and the end of the axis with its unit."""
    rough = seconds / _MOST_TIMES
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    # Without a round time that the end's label would cover.
    count = math.ceil((seconds - 0.6 * step) / step)
    return [(number * step, f"{number * step:g}") for number in range(count)] + [(seconds, f"{seconds:.2f} s")]

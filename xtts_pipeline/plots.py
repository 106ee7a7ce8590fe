"""Draw mels, histograms and bars as PNG, SVG or PDF files, and mels as small PNGs for pages.

All mels have one colour scale: from the floor of the audio settings to MEL_CEILING. Computes none of the values. Loads
matplotlib when the first figure is made; the small PNGs need none.
"""

import io
import math
import struct
import textwrap
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xtts_pipeline.audio.filterbank import hz_to_bin
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import output_errors
from xtts_pipeline.system.atomic_files import write_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The first is also that of a file without a suffix.
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
# Natural log magnitude. Speech at full scale stays below.
MEL_CEILING = 2.0
_TICKS_HZ = (250, 500, 1000, 2000, 4000, 8000)
# The least share of the height between two ticks, so that no label covers another.
_TICK_SHARE = 0.07
# The colour map magma by Smith and van der Walt (2015) at equal distances, in sRGB.
MAGMA = (
    "000004 0b0924 20114b 3b0f70 57157e 721f81 8c2981 a8327d c43c75 de4968 f1605d fa7f5e fe9f6d febf84 fddea0 fcfdbf"
)
DOTS_PER_INCH = 100
WIDTH_INCHES = (7.0, 14.0)
INCHES_PER_SECOND = 2.5
PANEL_INCHES, COMPARED_PANEL_INCHES = 4.8, 3.6
TOKENS_INCHES = 0.9
MOST_SYMBOLS_NAMED = 120
TITLE_CHARACTERS_PER_INCH = 9
MOST_BINS = 60
# The tick of a space would have an invisible label.
SPACE_MARK = "␣"
CUT_MARK = "(cut, no stop)"


def encode_mel(mel: np.ndarray, audio: AudioConfig) -> bytes:
    """Return a PNG of a mel [T, mel_bins], one pixel a frame and bin, in 256 colours of the scale of all mels."""
    low, high = _mel_limits(audio)
    values = np.clip((mel - low) / (high - low), 0.0, 1.0)
    pixels = (255 * np.nan_to_num(values)).astype(np.uint8).T[::-1]
    height, width = pixels.shape
    # Each line begins with its filter: 0, none.
    lines = np.pad(pixels, ((0, 0), (1, 0))).tobytes()
    anchors = np.array([list(bytes.fromhex(colour)) for colour in MAGMA.split()])
    places = np.linspace(0, len(anchors) - 1, 256)
    palette = np.stack([np.interp(places, range(len(anchors)), channel) for channel in anchors.T], axis=1)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": palette.round().astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(lines),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks.items()
    )


def hertz_ticks(audio: AudioConfig) -> list[tuple[str, float]]:
    """Return round frequencies, such as `2k`, with their mel bins, as many as can be read at the side of a mel."""
    ticks: list[tuple[str, float]] = []
    for hertz in _TICKS_HZ:
        place = hz_to_bin(hertz, audio)
        is_free = not ticks or place - ticks[-1][1] >= _TICK_SHARE * audio.mel_bins
        if 0 <= place < audio.mel_bins and is_free:
            ticks.append((f"{hertz // 1000}k" if hertz >= 1000 else f"{hertz}", place))
    return ticks


def _mel_limits(audio: AudioConfig) -> tuple[float, float]:
    return math.log(audio.floor), MEL_CEILING


def mel_seconds(mel: np.ndarray, audio: AudioConfig) -> float:
    """Return the duration of a mel [T, mel_bins]."""
    return len(mel) * audio.hop_samples / audio.sample_rate


def save_speech_picture(
    path: Path,
    mel: np.ndarray,
    audio: AudioConfig,
    title: str,
    durations: np.ndarray | None = None,
    symbols: Sequence[str] = (),
    has_stopped: bool = True,
) -> None:
    """Write a picture of a mel [T, mel_bins] and, below it, of its tokens if their `durations` in frames are given.

    Without `has_stopped` the title says that the speech was cut. Raises OutputError if the file cannot be written.
    """
    seconds = mel_seconds(mel, audio)
    width = _width_inches(seconds)
    title = title if has_stopped else f"{title} {CUT_MARK}"
    title = textwrap.fill(title, int(width * TITLE_CHARACTERS_PER_INCH))
    save_figure(_speech_figure(width, {title: mel}, audio, durations, symbols), path)


def encode_comparison(
    true_mel: np.ndarray,
    mel: np.ndarray,
    audio: AudioConfig,
    label: str = "spoken",
    durations: np.ndarray | None = None,
    symbols: Sequence[str] = (),
) -> bytes:
    """Return a PNG of the true mel [T, mel_bins], of another one, titled `label`, and of that one's tokens if given."""
    width = _width_inches(max(mel_seconds(each, audio) for each in (true_mel, mel)))
    file = io.BytesIO()
    figure = _speech_figure(width, {"true": true_mel, label: mel}, audio, durations, symbols)
    figure.savefig(file, dpi=DOTS_PER_INCH, format="png")
    return file.getvalue()


def _speech_figure(
    width: float,
    mels: Mapping[str, np.ndarray],
    audio: AudioConfig,
    durations: np.ndarray | None,
    symbols: Sequence[str],
) -> "Figure":
    """Return a picture of mels by title on one axis of time, and of the tokens of the last one below it."""
    heights = [PANEL_INCHES if len(mels) == 1 else COMPARED_PANEL_INCHES] * len(mels)
    if durations is not None:
        heights.append(TOKENS_INCHES)
    figure = new_figure(width, sum(heights))
    panels = figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for panel, (title, mel) in zip(panels, mels.items(), strict=False):
        _draw_mel(figure, panel, mel, audio, title)
        panel.label_outer()
    if durations is not None:
        _draw_tokens(panels[-1], durations * audio.hop_samples / audio.sample_rate, symbols)
    panels[0].set_xlim(0.0, max(mel_seconds(mel, audio) for mel in mels.values()))
    return figure


def _draw_tokens(axes: "Axes", seconds: np.ndarray, symbols: Sequence[str]) -> None:
    """Draw the end of each token, and its symbol in its middle if all of them can be read."""
    ends = np.cumsum(seconds)
    axes.vlines(ends, 0.0, 1.0, color="silver", linewidth=0.5)
    axes.set(ylabel="tokens", yticks=[], ylim=(0.0, 1.0), xlabel="seconds")
    if len(symbols) <= MOST_SYMBOLS_NAMED:
        for number, (end, length, symbol) in enumerate(zip(ends, seconds, symbols, strict=True)):
            if len(symbol) > 1:
                # A name such as `<begin>` would cover its neighbours.
                continue
            name = SPACE_MARK if symbol == " " else symbol
            # In three rows, since short tokens are narrower than their symbols.
            height = (0.8, 0.5, 0.2)[number % 3]
            axes.text(end - length / 2, height, name, fontsize=9, ha="center", va="center", parse_math=False)


def save_histograms(
    path: Path,
    title: str,
    measures: Mapping[str, np.ndarray],
    marks: Mapping[str, Mapping[str, float]],
    limits: Mapping[str, Mapping[str, float]],
) -> None:
    """Write one histogram a measure, with a line at each of its marks, such as `{"seconds": {"p50": 6.1}}`.

    `limits` has the same form: a measure's limits are drawn solid, those off the axis are in the legend only.
    Raises OutputError if the file cannot be written.
    """
    figure = new_figure(8.0, 0.4 + 2.8 * len(measures))
    figure.suptitle(title, parse_math=False)
    panels = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, measures.items(), strict=True):
        axes.hist(values, bins=_bin_edges(values), color="tab:blue", edgecolor="white", linewidth=0.5)
        left, right = axes.get_xlim()
        for (mark, at), style in zip(marks[name].items(), ("--", ":"), strict=False):
            axes.axvline(at, color="tab:red", linestyle=style, label=f"{mark} = {_short(at)}")
        for limit, at in limits.get(name, {}).items():
            # A limit far away would leave no room for the clips.
            is_near = left - (right - left) / 2 <= at <= right + (right - left) / 2
            axes.axvline(at, color="black", label=f"{limit} = {_short(at)}" + ("" if is_near else ", off the axis"))
            if is_near:
                left, right = min(left, at), max(right, at)
        axes.set_xlim(left, right)
        axes.set(xlabel=name.replace("_", " "), ylabel="clips")
        axes.locator_params(axis="y", nbins=5, integer=True)
        if np.issubdtype(values.dtype, np.integer):
            axes.locator_params(axis="x", integer=True)
        # Above the frame, so that it covers no bar and no line.
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    save_figure(figure, path)


def _bin_edges(values: np.ndarray) -> np.ndarray:
    """Return the edges of the bins; integers lie in the middle of bins of whole numbers."""
    bins = min(MOST_BINS, 2 * math.ceil(math.sqrt(len(values))))
    if not np.issubdtype(values.dtype, np.integer):
        return np.histogram_bin_edges(values, bins)
    low, high = int(values.min()), int(values.max())
    step = math.ceil((high - low + 1) / bins)
    return np.arange(low - 0.5, high + step, step)


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def save_bars(path: Path, title: str, label: str, values: Mapping[str, float], marked: Collection[str]) -> None:
    """Write one horizontal bar a name with its value, on an axis called `label`; `marked` names stand out.

    Raises OutputError if the file cannot be written.
    """
    figure = new_figure(8.0, 1.4 + 0.45 * len(values))
    axes = figure.subplots()
    colours = ["tab:blue" if name in marked else "silver" for name in values]
    bars = axes.barh(list(values), list(values.values()), color=colours)
    axes.bar_label(bars, [f"{value:,.0f}" for value in values.values()], padding=4)
    for tick, name in zip(axes.get_yticklabels(), values, strict=True):
        tick.set_fontweight("bold" if name in marked else "normal")
    # The first name on top, and room for the number of the longest bar.
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=label)
    save_figure(figure, path)


def _draw_mel(figure: "Figure", axes: "Axes", mel: np.ndarray, audio: AudioConfig, title: str) -> None:
    ticks = hertz_ticks(audio)
    axes.set(xlabel="seconds", ylabel="Hz")
    # Dollar signs in a text are no formula.
    axes.set_title(title, parse_math=False)
    low, high = _mel_limits(audio)
    image = axes.imshow(
        mel.T,
        "magma",
        aspect="auto",
        interpolation="nearest",
        vmin=low,
        vmax=high,
        origin="lower",
        extent=(0.0, mel_seconds(mel, audio), -0.5, mel.shape[1] - 0.5),
    )
    axes.set_yticks([place for _, place in ticks], [label for label, _ in ticks])
    figure.colorbar(image, ax=axes, label="natural log magnitude")


def _width_inches(seconds: float) -> float:
    return min(max(WIDTH_INCHES[0], seconds * INCHES_PER_SECOND), WIDTH_INCHES[1])


def new_figure(width_inches: float, height_inches: float) -> "Figure":
    """Return an empty figure."""
    # Here alone: the import takes half a second, and most runs of the modules that can draw draw nothing.
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the suffix and make its folder. Raises OutputError if it cannot be written."""
    suffix = path.suffix.lower() if path.suffix.lower() in PICTURE_SUFFIXES else PICTURE_SUFFIXES[0]
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DOTS_PER_INCH, format=suffix[1:])
    with output_errors(path, "choose another path"):
        write_output(path, picture.getvalue())

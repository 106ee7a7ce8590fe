"""Draw mels, attention, histograms and bars as PNG, SVG or PDF files.

Computes none of the values. Loads matplotlib when the first figure is made.
"""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xtts_pipeline.errors import output_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# The first is also that of a file without a suffix.
PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 100
WIDTH_INCHES = (7.0, 14.0)
INCHES_PER_SECOND = 2.5
PANEL_INCHES, COMPARED_PANEL_INCHES = 4.8, 3.6
INCHES_PER_SYMBOL = 0.18
MOST_SYMBOLS_NAMED = 80
TITLE_CHARACTERS_PER_INCH = 9
MOST_BINS = 60
# The tick of a space would have an invisible label.
SPACE_MARK = "␣"
CUT_MARK = "(cut, no stop)"


def save_speech_picture(
    path: Path,
    mel: np.ndarray,
    seconds: float,
    title: str,
    attention: np.ndarray | None = None,
    symbols: Sequence[str] = (),
    has_stopped: bool = True,
) -> None:
    """Write a picture of a mel [T, mel_bins] and, below it, of its attention [F, S] to the symbols if it is given.

    The attention's colours end at its own maximum, named by the colour bar. Without `has_stopped` the title says that
    the speech was cut. Raises OutputError if the file cannot be written.
    """
    width = _width_inches(seconds)
    heights = [PANEL_INCHES]
    if attention is not None:
        heights.append(_attention_inches(symbols))
    figure = new_figure(width, sum(heights))
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    title = title if has_stopped else f"{title} {CUT_MARK}"
    _draw_mel(figure, panels[0], mel, seconds, textwrap.fill(title, int(width * TITLE_CHARACTERS_PER_INCH)))
    if attention is not None:
        _draw_attention(figure, panels[1], attention, symbols, seconds)
    save_figure(figure, path)


def encode_comparison(
    true_mel: np.ndarray,
    mel: np.ndarray,
    frame_seconds: float,
    label: str = "spoken",
    attention: np.ndarray | None = None,
    symbols: Sequence[str] = (),
) -> bytes:
    """Return a PNG of the true mel [T, mel_bins], another in the same colours, and its attention [F, S] if it is given.

    `label` is the title of the other mel.
    """
    seconds = frame_seconds * max(len(true_mel), len(mel))
    heights = [COMPARED_PANEL_INCHES, COMPARED_PANEL_INCHES]
    if attention is not None:
        heights.append(_attention_inches(symbols))
    figure = new_figure(_width_inches(seconds), sum(heights))
    panels = figure.subplots(len(heights), 1, height_ratios=heights)
    limits = (float(true_mel.min()), float(true_mel.max()))
    _draw_mel(figure, panels[0], true_mel, frame_seconds * len(true_mel), "true", limits)
    _draw_mel(figure, panels[1], mel, frame_seconds * len(mel), label, limits)
    if attention is not None:
        _draw_attention(figure, panels[2], attention, symbols, frame_seconds * len(mel))
    for panel in panels:
        panel.set_xlim(0.0, seconds)
    file = io.BytesIO()
    figure.savefig(file, dpi=DOTS_PER_INCH, format="png")
    return file.getvalue()


def save_histograms(path: Path, measures: Mapping[str, np.ndarray], marks: Mapping[str, Mapping[str, float]]) -> None:
    """Write one histogram a measure, with a line at each of its marks, such as `{"seconds": {"p50": 6.1}}`.

    Raises OutputError if the file cannot be written.
    """
    figure = new_figure(8.0, 2.8 * len(measures))
    panels = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    for axes, (name, values) in zip(panels, measures.items(), strict=True):
        axes.hist(
            values,
            bins=min(MOST_BINS, 2 * math.ceil(math.sqrt(len(values)))),
            color="tab:blue",
            edgecolor="white",
            linewidth=0.5,
        )
        for (mark, at), style in zip(marks[name].items(), ("-", "--", ":"), strict=False):
            axes.axvline(at, color="tab:red", linestyle=style, label=f"{mark} = {at:.2f}")
        axes.set(xlabel=name.replace("_", " "), ylabel="clips")
        axes.locator_params(axis="y", nbins=5, integer=True)
        if np.issubdtype(values.dtype, np.integer):
            axes.locator_params(axis="x", integer=True)
        # Above the frame, so that it covers no bar and no line.
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(marks[name]), frameon=False)
    save_figure(figure, path)


def save_bars(path: Path, title: str, label: str, values: Mapping[str, float]) -> None:
    """Write one horizontal bar a name with its value, on an axis called `label`.

    Raises OutputError if the file cannot be written.
    """
    figure = new_figure(8.0, 1.2 + 0.45 * len(values))
    axes = figure.subplots()
    bars = axes.barh(list(values), list(values.values()), color="tab:blue")
    axes.bar_label(bars, [f"{value:,.0f}" for value in values.values()], padding=4)
    # The first name on top, and room for the number of the longest bar.
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=label)
    save_figure(figure, path)


def _draw_mel(
    figure: "Figure",
    axes: "Axes",
    mel: np.ndarray,
    seconds: float,
    title: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> None:
    axes.set(xlabel="seconds", ylabel=f"mel bin, 0 to {mel.shape[1] - 1}")
    # Dollar signs in a text are no formula.
    axes.set_title(title, parse_math=False)
    figure.colorbar(_draw_map(axes, mel, seconds, limits, "magma"), ax=axes, label="natural log magnitude")


def _draw_map(
    axes: "Axes", values: np.ndarray, seconds: float, limits: tuple[float | None, float | None], cmap: str | None = None
) -> "AxesImage":
    """Draw values [times, rows] over `seconds`, the first row at the bottom."""
    extent = (0.0, seconds, -0.5, values.shape[1] - 0.5)
    low, high = limits
    return axes.imshow(
        values.T, cmap, aspect="auto", interpolation="nearest", vmin=low, vmax=high, origin="lower", extent=extent
    )


def _width_inches(seconds: float) -> float:
    return min(max(WIDTH_INCHES[0], seconds * INCHES_PER_SECOND), WIDTH_INCHES[1])


def _attention_inches(symbols: Sequence[str]) -> float:
    return max(PANEL_INCHES, INCHES_PER_SYMBOL * min(len(symbols), MOST_SYMBOLS_NAMED))


def _draw_attention(
    figure: "Figure", axes: "Axes", attention: np.ndarray, symbols: Sequence[str], seconds: float
) -> None:
    largest = float(attention.max())
    image = _draw_map(axes, attention, seconds, (0.0, largest))
    axes.set(title="attention to the text", xlabel="seconds", ylabel="token")
    if len(symbols) <= MOST_SYMBOLS_NAMED:
        names = [SPACE_MARK if symbol == " " else symbol for symbol in symbols]
        axes.set_yticks(range(len(names)), names, fontsize=10, verticalalignment="center_baseline", parse_math=False)
    figure.colorbar(image, ax=axes, label=f"weight, up to this map's maximum {largest:.2g}")


def new_figure(width_inches: float, height_inches: float) -> "Figure":
    """Return an empty figure."""
    # Here alone: the import takes half a second, and most runs of the modules that can draw draw nothing.
    from matplotlib.figure import Figure

    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format of the suffix and make its folder. Raises OutputError if it cannot be written."""
    suffix = path.suffix.lower() if path.suffix.lower() in PICTURE_SUFFIXES else PICTURE_SUFFIXES[0]
    with output_errors(path, "expected a place for a picture; choose another path"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=DOTS_PER_INCH, format=suffix[1:])

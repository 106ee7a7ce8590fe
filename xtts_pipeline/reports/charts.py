"""Draw charts as SVG that a page styles: histograms, densities, bars and lines. Needs no library and no script."""

import json
import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 30
BINS, CELLS = 40, (48, 32)
# The ends of an axis leave out this share of the values, in percent; the outermost bars hold them.
TAIL_PERCENT = 0.25
# A limit this far beyond the axis, in lengths of it, is named but not drawn.
MOST_EXTENSION = 0.35
LOG_RATIO = 10.0


class _Axes:
    """Maps values to places in the chart."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        size: tuple[int, int] = (WIDTH, HEIGHT),
        *,
        log: bool = False,
        is_whole: bool = False,
    ) -> None:
        self.width, self.height = size
        # Steps are counted: 60.2 is none.
        self.least_tick_x = 1.0 if is_whole else 0.0
        self.low_x, self.high_x = x
        self.log = log
        self.low_y, self.high_y = (math.log10(y[0]), math.log10(y[1])) if log else y

    def x(self, value: float) -> float:
        return LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (self.width - LEFT - RIGHT)

    def y(self, value: float) -> float:
        level = math.log10(value) if self.log else value
        return self.height - BOTTOM - (level - self.low_y) / (self.high_y - self.low_y) * (self.height - TOP - BOTTOM)

    def frame(self, x_label: str) -> str:
        """Return the grid, the ticks and the label of the horizontal axis."""
        parts = []
        rows = _log_ticks(self.low_y, self.high_y) if self.log else _ticks(self.low_y, self.high_y, 4)
        for value in rows:
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
        for value in _ticks(self.low_x, self.high_x, 5, self.least_tick_x):
            x = self.x(value)
            # Room for the label at the end of the axis.
            if x < self.width - RIGHT - 6 * len(x_label) - 20:
                place = f'x="{x:.1f}" y="{self.height - BOTTOM + 16}"'
                parts.append(f'<text {place} text-anchor="middle">{_short(value)}</text>')
        place = f'x="{self.width - RIGHT}" y="{self.height - BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="end" class="unit">{escape(x_label)}</text>')
        return "".join(parts)


def histogram(
    title: str,
    values: np.ndarray,
    unit: str,
    *,
    limits: Mapping[str, float] | None = None,
    note: str = "",
    after: str = "",
) -> str:
    """Return a histogram. `limits` are drawn with the share of the values beyond each; `min_` ones lose what is below.

    `after` is HTML below the chart.
    """
    values = values[np.isfinite(values)]
    limits = limits or {}
    low, high = (float(end) for end in np.percentile(values, (TAIL_PERCENT, 100 - TAIL_PERCENT)))
    is_whole = bool((values == np.round(values)).all())
    span = max(high - low, 1.0 if is_whole else 1e-6)
    near = [limit for limit in limits.values() if low - MOST_EXTENSION * span <= limit <= high + MOST_EXTENSION * span]
    low, high = min([low - 0.02 * span, *near]), max([high + 0.02 * span, *near])
    low = max(low, 0.0) if values.min() >= 0 else low
    edges = np.linspace(low, high, BINS + 1)
    counts, _ = np.histogram(np.clip(values, low, high), edges)
    axes = _Axes((low, high), (0.0, float(counts.max()) * 1.05))
    # Enough digits to tell the ends of a bar apart.
    digits = max(3, 1 + math.floor(math.log10(max(-low, high))) - math.floor(math.log10((high - low) / BINS)))
    bars = []
    for begin, end, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count:
            y = min(axes.y(float(count)), axes.height - BOTTOM - 1.5)
            x, width = axes.x(float(begin)), axes.x(float(end)) - axes.x(float(begin)) - 0.8
            name = f"{_short(float(begin), digits)} to {_short(float(end), digits)} {unit}: {_clips(int(count))}"
            bars.append(
                f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{axes.height - BOTTOM - y:.1f}"><title>{escape(name)}</title></rect>'
            )
    losses = []
    for name, limit in limits.items():
        lost = float((values < limit).mean() if name.startswith("min_") else (values > limit).mean())
        losses.append(f"{name} {_short(limit)} loses {lost:.2%}")
        if limit in near:
            x = axes.x(limit)
            bars.append(f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{axes.height - BOTTOM}"/>')
    described = "; ".join([*losses, note] if note else losses)
    return _figure(title, described, axes.frame(unit) + "".join(bars), axes, after)


def density(
    title: str,
    x: np.ndarray,
    y: np.ndarray,
    labels: tuple[str, str],
    boxes: Sequence[tuple[float, float]],
    note: str = "",
) -> str:
    """Return how many clips lie at each place; each box, drawn from the origin, holds all values up to its corner."""
    corners = np.array(boxes, np.float64).reshape(-1, 2)
    x_end = max(float(np.percentile(x, 100 - TAIL_PERCENT)) * 1.02, *[*corners[:, 0], 0.0])
    y_end = max(float(np.percentile(y, 100 - TAIL_PERCENT)) * 1.02, *[*corners[:, 1], 0.0])
    axes = _Axes((0.0, x_end), (0.0, y_end), (520, 320))
    counts, x_edges, y_edges = np.histogram2d(
        np.clip(x, 0, x_end), np.clip(y, 0, y_end), CELLS, ((0, x_end), (0, y_end))
    )
    parts = []
    for column, row in np.argwhere(counts):
        begin, end = axes.x(x_edges[column]), axes.x(x_edges[column + 1])
        top, bottom = axes.y(y_edges[row + 1]), axes.y(y_edges[row])
        opacity = 0.12 + 0.88 * math.sqrt(counts[column, row] / counts.max())
        name = f"about {x_edges[column]:.0f} {labels[0]}, {y_edges[row]:.0f} {labels[1]}: "
        parts.append(
            f'<rect class="bar" opacity="{opacity:.2f}" x="{begin:.1f}" y="{top:.1f}" width="{end - begin:.1f}" '
            f'height="{bottom - top:.1f}"><title>{escape(name)}{_clips(int(counts[column, row]))}</title></rect>'
        )
    for right, top in boxes:
        left, height = axes.x(0.0), axes.y(0.0) - axes.y(top)
        parts.append(
            f'<rect class="box" x="{left:.1f}" y="{axes.y(top):.1f}" width="{axes.x(right) - left:.1f}" '
            f'height="{height:.1f}"><title>{escape(f"{right:g} {labels[0]}, {top:g} {labels[1]}")}</title></rect>'
        )
    return _figure(title, note, axes.frame(labels[0]) + "".join(parts), axes, kind="wide")


def bars(title: str, rows: Mapping[str, float], unit: str, note: str = "") -> str:
    """Return a horizontal bar for each row, as HTML."""
    most = max(rows.values(), default=0.0) or 1.0
    lines = "".join(
        f'<dt>{escape(name)}</dt><dd><i style="width:{70 * value / most:.1f}%"></i> {_short(value)} {escape(unit)}</dd>'
        for name, value in rows.items()
    )
    return f'<figure class="panel chart">{_caption(title, note)}<dl class="bars">{lines}</dl></figure>'


def lines(title: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x_label: str = "step") -> str:
    """Return a line for each series of places and values; a script shows the values at the pointer.

    The axis is logarithmic if the values are positive and far apart.
    """
    clean = {
        name: [(x, y) for x, y in zip(*points, strict=True) if math.isfinite(y)] for name, points in series.items()
    }
    clean = {name: points for name, points in clean.items() if points}
    places = [x for points in clean.values() for x, _ in points]
    levels = [y for points in clean.values() for _, y in points]
    low, high = min(levels), max(levels)
    log = low > 0 and high / low > LOG_RATIO
    margin = 0.05 * (high - low or abs(high) or 1.0)
    ends = (low / 1.1, high * 1.1) if log else (0.0 if 0 <= low < 0.5 * high else low - margin, high + margin)
    is_whole = all(float(x).is_integer() for x in places)
    axes = _Axes((min(places), max(*places, min(places) + 1)), ends, log=log, is_whole=is_whole)
    parts, names = [], []
    for number, (name, points) in enumerate(clean.items()):
        route = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="line s{number}" points="{route}"/>')
        if len(points) <= 12:
            parts += [f'<circle class="s{number}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="3"/>' for x, y in points]
        names.append(f'<span class="key s{number}">{escape(name)} <b>{_short(points[-1][1])}</b></span>')
    data = {
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "low": axes.low_x,
        "high": axes.high_x,
        "label": x_label,
        "series": {name: [[x, _short(y)] for x, y in points] for name, points in clean.items()},
    }
    after = f'<p class="keys">{"".join(names)}</p>'
    note = "logarithmic" if log else ""
    return _figure(title, note, axes.frame(x_label) + "".join(parts), axes, after, data=json.dumps(data))


def _figure(title: str, note: str, content: str, axes: _Axes, after: str = "", kind: str = "", data: str = "") -> str:
    points = f' data-points="{escape(data)}"' if data else ""
    return (
        f'<figure class="panel chart {kind}"{points}>{_caption(title, note)}'
        f'<svg viewBox="0 0 {axes.width} {axes.height}" role="img" aria-label="{escape(f"{title}. {note}")}">{content}'
        f"</svg>{after}</figure>"
    )


def _caption(title: str, note: str) -> str:
    return f"<figcaption><b>{escape(title)}</b> <span>{escape(note)}</span></figcaption>"


def _ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """Return round values between two ends, at least `least` apart."""
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = max(least, next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999))
    return [
        round(number * step, 10) for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(low), math.ceil(high) + 1)
    factors = (1, 2, 5) if len(decades) < 4 else (1,)
    return [
        factor * 10.0**decade for decade in decades for factor in factors if low <= math.log10(factor) + decade <= high
    ]


def _short(value: float, digits: int = 3) -> str:
    """Return a number in about as many significant digits; thousands are whole."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")
    if abs(value) >= 1000 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def _clips(count: int) -> str:
    return f"{count:,} clip" if count == 1 else f"{count:,} clips"

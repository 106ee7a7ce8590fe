"""Write the HTML page of an evaluation: one row an utterance, worst first. The page loads nothing from a network."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xtts_pipeline.evaluation.metrics import METRICS, Metric

if TYPE_CHECKING:
    from xtts_pipeline.evaluation.split import EvaluatedUtterance

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto }
table { border-collapse: collapse }
th, td { border-bottom: 1px solid #ddd; padding: .4em .6em; text-align: left; vertical-align: top }
th { background: #fff; position: sticky; top: 0 }
th button { font: inherit; font-weight: bold; border: 0; background: none; padding: 0; cursor: pointer }
th button { text-align: left }
th[aria-sort] button::after { content: " \\25BC" }
td.figure { text-align: right; font-variant-numeric: tabular-nums }
td.text { min-width: 16em; max-width: 28em }
audio { width: 15em; display: block }
img { width: 15em }
.bad { color: #b00020; font-weight: bold }
"""

# Rows without the metric stay at the end. `page` sorts the rows first, so the page reads well without scripts.
_SCRIPT = """
document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const column = button.parentElement.cellIndex, body = document.querySelector("tbody");
  const badness = row => Number(row.cells[column].dataset.badness ?? -Infinity);
  [...body.rows].sort((a, b) => badness(b) - badness(a) || 0).forEach(row => body.append(row));
  document.querySelectorAll("th[aria-sort]").forEach(head => head.removeAttribute("aria-sort"));
  button.parentElement.setAttribute("aria-sort", "descending");
}));
"""


def page(title: str, overview: str, rows: Sequence["EvaluatedUtterance"]) -> str:
    """Return the HTML page: the overview in the terminal's layout, then the rows, worst first.

    The worst row has the largest phoneme error rate, or the largest distortion where no phonemes were recognised.
    """
    shown = [metric for metric in METRICS if any(metric.value_of(row.metrics) is not None for row in rows)]
    by_name = {metric.name: metric for metric in shown}
    names = ("phoneme_error_rate", "phoneme_error_rate_to_copy", "mel_cepstral_distortion_db")
    first = next(by_name[name] for name in names if name in by_name)
    ordered = sorted(rows, key=lambda row: _badness(row, first), reverse=True)
    heads = ["<th>utterance</th>", "<th>listen</th>", "<th>look</th>"]
    for metric in shown:
        sort = ' aria-sort="descending"' if metric is first else ""
        heads.append(f'<th{sort}><button type="button">{html.escape(metric.label)}</button></th>')
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1>{html.escape(title)}</h1>\n<pre>{html.escape(overview)}</pre>",
            "<p>Worst first; click the name of a metric to sort by it.</p>",
            f"<table>\n<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>",
            *(_row(row, shown) for row in ordered),
            f"</tbody>\n</table>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


def _row(row: "EvaluatedUtterance", shown: Sequence[Metric]) -> str:
    ending = "" if row.has_stopped else '<br><span class="bad">did not stop</span>'
    sounds = "".join(
        f'{html.escape(label)}<audio controls preload="none" src="{html.escape(file)}"></audio>'
        for label, file in row.sounds
    )
    pictures = "".join(
        f'<a href="{html.escape(file)}"><img loading="lazy" alt="mel and attention" src="{html.escape(file)}"></a>'
        for file in row.pictures
    )
    text = f'<span dir="auto">{html.escape(row.entry.raw_text)}</span>'
    cells = [
        f'<td class="text"><b>{html.escape(row.entry.id)}</b>{ending}<br>{text}</td>',
        f"<td>{sounds}</td>",
        f"<td>{pictures}</td>",
    ]
    for metric in shown:
        value = metric.value_of(row.metrics)
        badness = "" if value is None else f' data-badness="{metric.badness(value):.6g}"'
        shown_value = "-" if value is None else f"{value:.{metric.decimals}f}"
        cells.append(f'<td class="figure"{badness}>{shown_value}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _badness(row: "EvaluatedUtterance", metric: Metric) -> float:
    value = metric.value_of(row.metrics)
    return float("-inf") if value is None else metric.badness(value)

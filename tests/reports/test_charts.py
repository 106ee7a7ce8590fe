"""Charts say what they draw, and nothing of the data becomes HTML."""

import json
import re
from html import unescape

import numpy as np
import pytest

from xtts_pipeline.reports.charts import bars, density, histogram, lines

HOSTILE = """</title><script>alert("x")</script>'&<b onclick='x'>"""


def test_no_text_becomes_html():
    values = np.arange(10.0)
    charts = [
        histogram(HOSTILE, values, HOSTILE, limits={HOSTILE: 5.0}, note=HOSTILE),
        density(HOSTILE, values, values, (HOSTILE, HOSTILE), [(5, 5)], HOSTILE),
        bars(HOSTILE, {HOSTILE: 1.0}, HOSTILE, HOSTILE),
        lines(HOSTILE, {HOSTILE: ([1, 2], [3.0, 4.0])}, HOSTILE),
    ]

    assert not re.search(r"<(script|b onclick)", "".join(charts))


def test_a_limit_names_the_share_that_it_loses_and_is_drawn_only_near_the_values():
    chart = histogram(
        "Seconds", np.arange(1.0, 101.0), "s", limits={"min_seconds": 3.0, "max_seconds": 90.0, "far": 900.0}
    )

    assert "min_seconds 3 loses 2.00%; max_seconds 90 loses 10.00%; far 900 loses 0.00%" in chart
    assert chart.count('class="limit"') == 2


def test_the_bars_of_a_histogram_hold_every_value_those_far_away_too():
    values = np.concatenate([np.random.default_rng(0).normal(0, 1, 5000), [1e4]])

    counts = re.findall(r"([\d,]+) clips?</title>", histogram("x", values, "s"))

    assert sum(int(count.replace(",", "")) for count in counts) == 5001


@pytest.mark.parametrize("values", [np.zeros(5), np.full(3, 7.0), np.array([2, 2, 3])])
def test_values_that_hardly_differ_have_a_histogram(values: np.ndarray):
    assert "<rect" in histogram("x", values, "s")


def test_values_far_apart_have_a_logarithmic_axis_and_gaps_are_left_out():
    chart = lines("loss", {"train": ([1, 2, 3], [100.0, float("nan"), 0.1]), "val": ([3], [0.2])})
    data = json.loads(unescape(re.search(r'data-points="([^"]+)"', chart)[1]))

    assert "logarithmic" in chart
    assert data["series"] == {"train": [[1, "100"], [3, "0.1"]], "val": [[3, "0.2"]]}


def test_a_single_evaluation_has_whole_steps_on_its_axis():
    chart = lines("stop rate", {"speech": ([60], [1.0])})

    assert re.findall(r'text-anchor="middle">([^<]+)<', chart)[0] == "60"
    assert "60.2" not in chart


def test_the_ends_of_a_bar_differ():
    chart = histogram("speed", np.linspace(0.9, 1.14, 200), "x")

    ranges = re.findall(r"<title>(\S+) to (\S+) x", chart)
    assert len(set(ranges)) == 40
    assert all(begin != end for begin, end in ranges)

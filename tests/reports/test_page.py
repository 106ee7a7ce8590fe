"""The parts that all pages share: nothing of the data becomes HTML, and pictures have their axes."""

import re

import pytest

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.reports.page import (
    Playable,
    Span,
    card,
    cards,
    fold,
    heading,
    mel_plot,
    render_page,
    tile,
    tiles,
    toolbar,
    values,
)

HOSTILE = """</title></pre><script>alert("x")</script>'&amp;<b onclick='x'>"""


def test_no_text_becomes_html():
    plot = mel_plot(HOSTILE, HOSTILE, 1.0, 1.0, AudioConfig(), HOSTILE, lanes=[[Span(HOSTILE, 0.0, 1.0)]])
    sound = Playable(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    parts = [
        heading(HOSTILE, HOSTILE),
        tiles([tile(HOSTILE, HOSTILE, HOSTILE)]),
        fold(HOSTILE, HOSTILE),
        toolbar({HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}),
        cards([card(HOSTILE, HOSTILE, [HOSTILE], [sound], plot, sorts={}, flags=[HOSTILE])]),
        values([(HOSTILE, HOSTILE, True)]),
    ]
    text = render_page(HOSTILE, "".join(parts))

    assert text.count("<script>") == 1
    assert "<b onclick" not in text
    assert "http" not in text


@pytest.mark.parametrize(
    ("seconds", "times"), [(0.8, ["0", "0.2", "0.4", "0.6", "0.80 s"]), (11.0, ["0", "2", "4", "6", "8", "11.00 s"])]
)
def test_the_time_axis_has_round_times_and_its_end(seconds: float, times: list[str]):
    below = mel_plot("x.png", "true", seconds, seconds, AudioConfig()).partition('class="times"')[2]

    assert re.findall(r">([^<>]+)</span>", below) == times


def test_the_shorter_of_two_mels_covers_its_share_of_the_common_axis():
    assert 'style="width:25.00%"' in mel_plot("x.png", "true", 1.0, 4.0, AudioConfig())

"""The page on which a person listens."""

from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

from tests.evaluation.test_metrics import EVEN
from xtts_pipeline.reports.evaluation import page

HOSTILE = '</pre><script>alert("x")</script>&amp;\'"<b>'


class Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def make_row(id: str, distortion: float, **changes: object) -> SimpleNamespace:
    figures = replace(EVEN, mel_cepstral_distortion_db=distortion, **changes)
    return SimpleNamespace(
        entry=SimpleNamespace(id=id, raw_text=f"text of {id}"),
        has_stopped=True,
        metrics=figures,
        sounds=(("spoken", f"{id}.wav"), ("true", f"{id}-true.wav")),
        pictures=(f"{id}.png",),
    )


def test_rows_stand_worst_first_with_their_sounds_and_pictures():
    reader = read(page("title", "overview", [make_row("good", 3.0), make_row("bad", 9.0)]))

    assert [attributes["src"] for tag, attributes in reader.tags if tag == "audio"] == [
        "bad.wav",
        "bad-true.wav",
        "good.wav",
        "good-true.wav",
    ]
    assert [attributes["src"] for tag, attributes in reader.tags if tag == "img"] == ["bad.png", "good.png"]


def test_phoneme_errors_decide_the_order_where_they_were_measured():
    rows = [make_row("first", 3.0, phoneme_error_rate=0.5), make_row("second", 9.0, phoneme_error_rate=0.1)]

    text = page("title", "overview", rows)

    assert text.index("text of first") < text.index("text of second")


def test_no_text_of_the_corpus_becomes_markup():
    row = make_row("x", 3.0)
    row.entry = SimpleNamespace(id=HOSTILE, raw_text=HOSTILE)

    reader = read(page(HOSTILE, HOSTILE, [row]))

    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert reader.words.count(HOSTILE) == 5  # the title twice, the overview, the id, the text


def test_the_page_asks_nothing_of_a_network():
    text = page("title", "overview", [make_row("x", 3.0)])

    assert "http" not in text
    assert "//" not in text.split("<script>")[0]


def test_a_figure_that_is_missing_is_a_dash_that_sorts_last():
    reader = read(page("title", "overview", [make_row("x", 3.0), make_row("y", 4.0, pitch_error_cents=50.0)]))

    assert "-" in reader.words
    assert ("td", {"class": "figure"}) in reader.tags  # no data-badness, which the script takes for the least


def test_an_utterance_that_did_not_stop_says_so():
    cut = make_row("x", 3.0)
    cut.has_stopped = False

    assert "did not stop" in page("title", "overview", [cut])
    assert "did not stop" not in page("title", "overview", [make_row("x", 3.0)])

"""The page on which a person listens."""

from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.browser import assert_fits_and_is_accessible, open_page, play_all
from tests.evaluation.test_metrics import EVEN
from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.plots import encode_mel
from xtts_pipeline.reports.evaluation import page

AUDIO = AudioConfig()

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
        entry=SimpleNamespace(id=id, raw_text=f"text of {id}", speaker="anna"),
        has_stopped=True,
        metrics=figures,
        sounds={"spoken": f"{id}.wav", "true": f"{id}-true.wav"},
        pictures={"true": f"{id}-true.png", "spoken": f"{id}.png"},
        symbols=("<begin>", *"ab", " ", *"cd.", "<end>"),
        durations=np.full(8, 10.0, np.float32),
        synthesis_seconds=0.5,
        spoken_seconds=0.93,
        true_seconds=1.0,
    )


def page_of(*rows: SimpleNamespace, title: str = "title", overview: str = "overview") -> str:
    return page(title, overview, rows, AUDIO)


def values_of(reader: Reader, name: str) -> list[str | None]:
    return [attributes[name] for _, attributes in reader.tags if name in attributes]


def test_cards_stand_worst_first_with_their_sounds_and_pictures():
    reader = read(page_of(make_row("good", 3.0), make_row("bad", 9.0)))

    assert values_of(reader, "data-src") == ["bad-true.wav", "bad.wav", "good-true.wav", "good.wav"]
    assert [attributes["src"] for tag, attributes in reader.tags if tag == "img"] == [
        *("bad-true.png", "bad.png"),
        *("good-true.png", "good.png"),
    ]


def test_phoneme_errors_decide_the_order_where_they_were_measured():
    rows = [make_row("first", 3.0, phoneme_error_rate=0.5), make_row("second", 9.0, phoneme_error_rate=0.1)]

    text = page_of(*rows)

    assert text.index("text of first") < text.index("text of second")


def test_no_text_of_the_corpus_becomes_markup():
    row = make_row("x", 3.0)
    row.entry = SimpleNamespace(id=HOSTILE, raw_text=HOSTILE, speaker=HOSTILE)

    reader = read(page_of(row, title=HOSTILE, overview=HOSTILE))

    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert sum(HOSTILE in words for words in reader.words) == 6  # the title and the overview twice, the id, the text


def test_a_figure_that_is_missing_is_a_dash_that_sorts_last():
    reader = read(page_of(make_row("x", 3.0), make_row("y", 4.0, pitch_error_cents=50.0)))

    assert "-" in reader.words
    assert values_of(reader, "data-sort-pitch_error_cents") == ["50"]


def test_the_failures_of_an_utterance_are_named_with_the_threshold_and_filtered_by():
    cut, slow = make_row("cut", 3.0), make_row("slow", 2.0, duration_ratio=1.5)
    cut.has_stopped = False

    reader = read(page_of(cut, slow, make_row("fine", 1.0)))

    assert "did not stop" in reader.words
    assert "duration ratio 1.500, expected 0.8 to 1.25" in reader.words
    assert values_of(reader, "data-flags") == ["stop failure", "duration_ratio failure", ""]
    tiles = [attributes["class"] for tag, attributes in reader.tags if tag == "li"]
    assert tiles[:2] == ["panel tile bad", "panel tile mixed"]  # 1 of 3 without a failure, 2 of 3 stopped
    assert "1 of 3" in reader.words


def test_without_a_recording_copy_synthesis_is_the_truth():
    row = make_row("x", 3.0)
    row.sounds = {"spoken": "x.wav", "copy": "x-copy.wav"}

    reader = read(page_of(row))

    assert list(zip(values_of(reader, "data-key"), values_of(reader, "data-src"), strict=True)) == [
        ("a", "x-copy.wav"),
        ("b", "x.wav"),
    ]


def test_words_and_tokens_stand_below_the_spoken_mel():
    reader = read(page_of(make_row("x", 3.0)))

    spans = [attributes["title"] for _, attributes in reader.tags if "data-begin" in attributes]
    # 8 tokens of 10 frames of 0.0116 s each.
    assert spans[:2] == ["ab: 0.12 to 0.35 s", "cd: 0.46 to 0.70 s"]
    assert len(spans) == 2 + 8


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of three utterances, one of which was cut."""
    folder = tmp_path_factory.mktemp("evaluation")
    rows = [make_row("good", 3.0), make_row("cut", 9.0), make_row("middle", 5.0)]
    rows[1].has_stopped = False
    rows[2].entry.raw_text = "Unbroken" * 40
    mel = np.linspace(-11.0, 1.0, 80 * 80, dtype=np.float32).reshape(80, 80)
    for row in rows:
        for name in row.sounds.values():
            write_wave(folder / name, 0.1 * np.sin(np.arange(22_050) / 20).astype(np.float32), 22_050)
        for name in row.pictures.values():
            (folder / name).write_bytes(encode_mel(mel, AUDIO))
    overview = "a line of the overview that is wider than a telephone " * 4
    (folder / "index.html").write_text(page_of(*rows, overview=f"overview\n\n{overview}"), encoding="utf-8")
    return (folder / "index.html").as_uri()


def test_the_page_fits_and_is_accessible(browser: Browser, url: str):
    assert_fits_and_is_accessible(browser, url)


def test_all_sounds_play_one_at_a_time(browser: Browser, url: str):
    with open_page(browser, url) as shown:
        assert play_all(shown) == [
            *("cut-true.wav", "cut.wav"),
            *("middle-true.wav", "middle.wav"),
            *("good-true.wav", "good.wav"),
        ]
        assert shown.locator('[aria-pressed="true"][data-src]').count() == 1
        # The cursor runs over the picture of the sound, and ends with it.
        shown.wait_for_function("document.querySelectorAll('.cursor').length === 1")
        shown.wait_for_function("document.querySelectorAll('.cursor').length === 0")


def test_the_keyboard_chooses_plays_compares_and_filters(browser: Browser, url: str):
    with open_page(browser, url) as shown:

        def current() -> str:
            return shown.locator(".card.current h2").inner_text()

        def pressed() -> list[str]:
            buttons = shown.locator('[data-src][aria-pressed="true"]')
            return [str(button.get_attribute("data-src")) for button in buttons.all()]

        for key, expected in (("j", "text of cut"), ("ArrowDown", "Unbroken"), ("k", "text of cut")):
            shown.keyboard.press(key)
            assert current().startswith(expected)
        for key, sounds in ((" ", ["cut-true.wav"]), ("b", ["cut.wav"]), ("a", ["cut-true.wav"]), (" ", [])):
            shown.keyboard.press(key)
            assert pressed() == sounds
        shown.keyboard.press("f")
        assert shown.locator(".card:visible").count() == 1
        assert shown.locator("#count").inner_text() == "1 of 3 shown"
        shown.keyboard.press("f")
        shown.keyboard.press("/")
        shown.keyboard.type("TEXT good")
        assert shown.locator(".card:visible h2").all_text_contents() == ["text of good"]
        shown.keyboard.press("Escape")
        shown.keyboard.press("j")
        assert current() == "text of good"


def test_cards_are_sorted_both_ways(browser: Browser, url: str):
    with open_page(browser, url) as shown:
        ids = shown.locator(".card header p")
        for sort, order in (("split", ["good", "cut", "middle"]), ("mel_cepstral_distortion_db", None)):
            shown.select_option("#sort", sort)
            # Not the inner text, which a card outside the screen lacks until it is drawn.
            texts = [text.split()[0] for text in ids.all_text_contents()]
            assert texts == (order or ["cut", "middle", "good"])
        shown.click("#reverse")
        assert [text.split()[0] for text in ids.all_text_contents()] == ["good", "middle", "cut"]

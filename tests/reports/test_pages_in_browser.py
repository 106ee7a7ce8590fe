"""The pages of `xtts report` in a browser: they fit, play, sort, and give the selected ids to preprocess."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser

from tests.browser import assert_fits_and_is_accessible, open_page, play_all
from tests.calling import xtts
from tests.quality.planted import make_planted_corpus
from tests.reports.test_run_page import write_run
from xtts_pipeline.corpus.ids import read_ids
from xtts_pipeline.reports.run_page import read_run, write_run_page


@pytest.fixture(scope="module")
def clips_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("page")
    make_planted_corpus(root / "corpus", clips=24, of_each=1)
    result = xtts("report", "--data", root / "corpus", "--output", root / "report", "--jobs", 1)
    assert result.exit_code == 0, result.output
    return (root / "report" / "index.html").as_uri()


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("run")
    output = root / "report"
    output.mkdir()
    return write_run_page(read_run(write_run(root / "run")), output).as_uri()


def test_the_pages_fit_every_screen_and_are_accessible(browser: Browser, clips_page: str, run_page: str):
    assert_fits_and_is_accessible(browser, clips_page)
    assert_fits_and_is_accessible(browser, run_page)


def test_the_sounds_of_a_run_play(browser: Browser, run_page: str):
    with open_page(browser, run_page) as page:
        assert play_all(page) == ["sounds/sentence-1-true.wav", "sounds/sentence-1-spoken-5.wav"]


def test_a_measure_shows_its_strangest_clips_first_and_they_play(browser: Browser, clips_page: str):
    with open_page(browser, clips_page) as page:
        page.click('[data-show="clipping"]')

        scores = page.evaluate("shown().map((card) => Number(card.dataset.sortClipping))")
        assert scores == sorted(scores, reverse=True)
        assert scores[0] > 10
        page.locator(".card:visible [data-src]").first.click()
        page.wait_for_function("player.currentTime > 0")


def test_the_selected_ids_are_saved_as_preprocess_reads_them(browser: Browser, clips_page: str, tmp_path: Path):
    with open_page(browser, clips_page) as page:
        assert page.locator(".selection").is_hidden()
        page.click("#repeats")
        repeated = page.locator("tr.repeat [data-id]").nth(1).get_attribute("data-id")
        page.click('[data-show="clipping"]')
        card = page.locator(".card:visible").first
        card.locator("[data-id]").check()
        worst = card.locator("[data-id]").get_attribute("data-id")
        with page.expect_download() as download:
            page.click("#save")
        download.value.save_as(tmp_path / "exclude.txt")
        link = page.locator("#save").get_attribute("href")

    assert read_ids(tmp_path / "exclude.txt") == {repeated, worst}
    assert unquote(link.partition(",")[2]).splitlines() == sorted([repeated, worst])


@pytest.mark.parametrize("copied", [True, False])
def test_the_selected_ids_are_copied_on_a_page_without_https_too(browser: Browser, clips_page: str, copied: bool):
    with open_page(browser, clips_page) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        marked = "area.value.slice(area.selectionStart, area.selectionEnd)"
        note = f"const area = document.querySelector('textarea'); window.said = {marked}"
        page.evaluate(f"document.execCommand = () => {{ {note}; return {str(copied).lower()}; }}")
        page.click("#repeats")
        page.click("#copy")
        selected = page.evaluate("[...selected].sort().join('\\n')")

        assert page.evaluate("said") == selected != ""
        number = len(selected.splitlines())
        expected = f"{number} ids copied." if copied else "Not copied: use Save exclude.txt."
        assert page.locator("#picked").inner_text() == expected


def test_a_line_shows_its_values_at_the_pointer(browser: Browser, run_page: str):
    with open_page(browser, run_page) as page:
        chart = page.locator("[data-points]").first
        box = chart.locator("svg").bounding_box()
        page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.5 * box["height"])

        assert chart.locator("figcaption span").inner_text() == "step 1"
        assert chart.locator(".key b").first.inner_text() == "9.5"

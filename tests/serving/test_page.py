"""The page of the server in a browser: it speaks, shows the mel, and can be used by everyone."""

import re

from playwright.sync_api import Browser, expect

from tests.browser import PATIENCE_MS, assert_fits_and_is_accessible, open_page
from tests.serving.running import Running

PICTURE = "document.getElementById('mel').toDataURL()"


def test_the_page_fits_and_is_accessible(browser: Browser, server: Running):
    assert_fits_and_is_accessible(browser, server.url)


def test_a_text_is_spoken_and_its_mel_is_shown(browser: Browser, server: Running):
    with open_page(browser, server.url) as page:
        page.locator("#voice option").first.wait_for(state="attached")
        empty = page.evaluate(PICTURE)
        page.fill("#text", "abc")
        page.keyboard.press("Tab")
        with page.expect_response("**/v1/audio/speech") as response:
            page.click("#speak")
        assert response.value.status == 200
        # The last state: the length of the speech, and the time that it took.
        ended = re.compile(r"^First sound after \d+ ms; [\d.]+ s in [\d.]+ s$")
        expect(page.locator("#status")).to_have_text(ended, timeout=PATIENCE_MS)
        assert page.evaluate(PICTURE) != empty
        assert page.locator("#status").get_attribute("class") == ""
        assert "abc" in page.locator("#curl").inner_text()

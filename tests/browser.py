"""Pages in headless Chromium, and what holds for every page: no error, no network, no scroll to the side, axe clean."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

# A telephone in the dark, a screen in the light.
VIEWS = ((390, "dark"), (1440, "light"))
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
# A busy machine decodes a sound late.
PATIENCE_MS = 120_000


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Open Chromium, or skip the test where there is none."""
    with sync_playwright() as playwright:
        found = (shutil.which(name) for name in CHROMIUMS)
        path = next((name for name in found if name), playwright.chromium.executable_path)
        if not Path(path).exists():
            pytest.skip(f"found no {', '.join(CHROMIUMS)} and none of Playwright; install Chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def open_page(browser: Browser, url: str, *, width: int = 1440, scheme: str = "light") -> Iterator[Page]:
    """Open a page and, when the block ends, expect no error in it and no request but to its own place."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE_MS)
    errors, requests = [], []
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(url)
    yield page
    page.close()
    assert errors == [], errors
    own = urlsplit(url)[:2]
    away = [request for request in requests if urlsplit(request)[:2] != own and not request.startswith("data:")]
    assert away == [], away


def assert_fits_and_is_accessible(browser: Browser, url: str) -> None:
    """Expect no scroll to the side, and no serious finding of axe-core, in each view."""
    for width, scheme in VIEWS:
        with open_page(browser, url, width=width, scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert findings(page) == []


def findings(page: Page) -> list[str]:
    """Return the serious and critical findings of axe-core."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {[node['html'] for node in each['nodes']][:3]}"
        for each in found
        if each["impact"] in {"serious", "critical"}
    ]


def play_all(page: Page) -> list[str]:
    """Click each sound of a page of `reports`, wait until it plays, and return the files in this order."""
    # A sound that a busy machine interrupts begins to play a second time.
    page.evaluate("""() => {
        window.played = new Set();
        player.addEventListener("playing", () => playing && played.add(playing.dataset.src));
    }""")
    buttons = page.locator("[data-src]")
    for number in range(buttons.count()):
        buttons.nth(number).click()
        page.wait_for_function(f"played.size === {number + 1}")
    played: list[str] = page.evaluate("[...played]")
    return played

"""Make the pictures of README and docs from the demo: its corpus, its cache and its run.

    python benchmarks/pictures.py --demo demo --output docs/images

The demo is run first if its folder holds no finished run. Pages are photographed in Chromium. No picture may be
over 150 kB.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from xtts_pipeline.training.checkpoints.run_folder import read_cache_path

MOST_BYTES = 150_000
SCREEN = {"width": 1200, "height": 1100}
SENTENCES = 4


def xtts(*arguments: object) -> None:
    """Run a command, shown as one would type it."""
    shown = [str(argument) for argument in arguments]
    print("$ xtts", *shown, flush=True)
    subprocess.run([sys.executable, "-m", "xtts_pipeline", *shown], check=True)


def photograph(pages: dict[str, Path], output: Path) -> None:
    """Write the top of each page as NAME.webp."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, page in pages.items():
            shown = browser.new_page(viewport=SCREEN)
            shown.goto(page.resolve().as_uri(), wait_until="networkidle")
            photo = page.with_suffix(".png")
            shown.screenshot(path=photo)
            Image.open(photo).save(output / f"{name}.webp", quality=80, method=6)
        browser.close()


def finished_run(demo: Path) -> Path | None:
    """Return the first run of the demo's own sentences that was not interrupted, or None."""
    runs = sorted(summary.parent for summary in (demo / "runs").glob("*/summary.json"))
    cache = (demo / "cache").absolute()
    return next((run for run in runs if read_cache_path(run) == cache), None)


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=Path("demo"))
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    corpus, cache = given.demo / "corpus", given.demo / "cache"
    if finished_run(given.demo) is None:
        xtts("demo", "--output", given.demo)
    run = finished_run(given.demo)
    first = json.loads((cache / "utterances.jsonl").read_text(encoding="utf-8").splitlines()[0])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        speech = ("--output", work / "speech.wav", "--plot", given.output / "speech.png")
        xtts("synthesize", "--run", run, "--text", first["raw_text"], *speech)
        evaluation, report = work / "evaluation", work / "report"
        options = ("--split", "train", "--limit", SENTENCES, "--output", evaluation)
        xtts("evaluate", "--run", run, "--cache", cache, "--data", corpus, *options)
        xtts("report", "--data", corpus, "--output", report)
        photograph({"evaluation": evaluation / "index.html", "report": report / "index.html"}, given.output)
    for picture in sorted(given.output.iterdir()):
        print(f"{picture}: {picture.stat().st_size} bytes")
        if picture.stat().st_size > MOST_BYTES:
            sys.exit(f"{picture}: {picture.stat().st_size} bytes, expected at most {MOST_BYTES}")


if __name__ == "__main__":
    main()

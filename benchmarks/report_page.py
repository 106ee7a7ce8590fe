"""Measure `xtts report` on a cache of many clips, and how fast Chromium opens its page.

    python benchmarks/report_page.py --cache cache --clips 13100 --work /tmp/report

The clips of --cache are repeated under other ids until there are --clips of them, so each is a duplicate too: the page
lists more than that of a real corpus.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import xxhash
from playwright.sync_api import sync_playwright

from xtts_pipeline.cache.compose import SourceCache, compose_cache
from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.listings import UTTERANCES, read_utterances
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    REJECTED_NAME,
    UTTERANCES_NAME,
    FileEntry,
    load_manifest,
    manifest_bytes,
)
from xtts_pipeline.cache.format.schema import without_padding
from xtts_pipeline.cache.format.shards import WAVE_PREFIX
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.system.sealed_json import canonical_json


def copy_under_other_ids(cache: Path, target: Path, prefix: str) -> SourceCache:
    """Copy a cache; each id gets the prefix."""
    target.mkdir()
    manifest, shards = load_manifest(cache), []
    for shard in manifest.shards:
        spec = manifest.spec_of_shard[shard.name]
        with (target / shard.name).open("xb") as file:
            writer = RecordWriter(file)
            for payload in read_records(cache / shard.name):
                example = without_padding(decode_example(payload, spec))
                writer.write(encode_example(replace(example, id=prefix + example.id), spec))
        shards.append(replace(shard, bytes=writer.bytes, checksum=writer.checksum))
        if manifest.waves:
            (target / f"{WAVE_PREFIX}{shard.name}").symlink_to((cache / f"{WAVE_PREFIX}{shard.name}").resolve())
    lines = [UTTERANCES.to_json(replace(row, id=prefix + row.id)) for row in read_utterances(cache)]
    listing = "".join(f"{canonical_json(line)}\n" for line in lines).encode()
    (target / UTTERANCES_NAME).write_bytes(listing)
    shutil.copyfile(cache / REJECTED_NAME, target / REJECTED_NAME)
    entry = FileEntry(len(listing), xxhash.xxh3_128_hexdigest(listing))
    renamed = replace(manifest, shards=tuple(shards), files={**manifest.files, UTTERANCES_NAME: entry})
    (target / MANIFEST_NAME).write_bytes(manifest_bytes(renamed))
    return SourceCache(target, renamed)


def repeat_cache(cache: Path, clips: int, work: Path) -> Path:
    """Write a cache of so many clips, or return the one that was written before from the same cache."""
    of_cache = xxhash.xxh3_64_hexdigest((cache / MANIFEST_NAME).read_bytes())
    target = work / f"cache-{clips}-of-{of_cache}"
    if target.is_dir():
        return target
    count = load_manifest(cache).counts.kept
    copies = [copy_under_other_ids(cache, work / f"copy{k}", f"copy{k}/") for k in range(-(-clips // count))]
    rows = [row.id for copy in copies for row in read_utterances(copy.folder)]
    chosen = set(rows[:clips])

    compose_cache(copies, target, chosen, lambda _: None)
    for copy in copies:
        shutil.rmtree(copy.folder)
    return target


def open_page(page: Path) -> tuple[float, float]:
    """Return the seconds until Chromium has loaded and painted a page, and the processor time of its process."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1440, "height": 900})
        session = shown.context.new_cdp_session(shown)
        session.send("Performance.enable")
        started = time.perf_counter()
        shown.goto(page.resolve().as_uri(), wait_until="load")
        shown.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds = time.perf_counter() - started
        metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
        browser.close()
    return round(seconds, 2), round(metrics["ProcessTime"], 2)


def main() -> None:
    """Make the cache and the page, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=13_100)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    cache = repeat_cache(given.cache, given.clips, given.work)
    output = given.work / "report"
    shutil.rmtree(output, ignore_errors=True)
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "xtts_pipeline", "report", "--cache", cache, "--output", output]
    subprocess.run([str(word) for word in command], check=True)
    seconds, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    page = output / "index.html"
    opened = [open_page(page) for _ in range(3)]
    figures = {
        "clips": given.clips,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "page_megabytes": round(page.stat().st_size / 1e6, 1),
        "open_seconds": [clock for clock, _ in opened],
        "open_cpu_seconds": [processor for _, processor in opened],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

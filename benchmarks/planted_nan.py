"""Plant a clip with NaN in its mel in a copy of a cache, and test that training goes on unharmed.

    python benchmarks/planted_nan.py --cache cache --config tiny --steps 400

One record of the training split becomes NaN, with valid checksums, so that only its numbers are wrong. `xtts train`
runs on that copy with the first of three seeds, and on the sound cache once per seed, for the same number of steps:
use a few epochs, or the clip may never come. Three figures are compared: the mean training loss of the last fifth of
the steps, the last validation loss and the best one.

The exit code is 0 if the run completed, if every skipped update names this clip alone in skipped.jsonl, and if each
figure is within two standard deviations of the mean over the seeds. More steps or --seeds give a better deviation.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from seeded_runs import Ended, compare, figures, is_within, parse_arguments, run_beside_seeds

from xtts_pipeline.cache.build.receipts import RECEIPTS_FOLDER
from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, ShardEntry, bucket_specs, load_manifest, manifest_bytes
from xtts_pipeline.cache.format.schema import Example, RecordSpec
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records

LAST_SHARE = 0.8


def plant(cache: Path, clip: str | None = None) -> str:
    """Make the mel of one training clip NaN, renew the checksums, and return the clip's id; default: the first clip.

    Raises SystemExit if the training split has no such clip.
    """
    manifest = load_manifest(cache)
    for number, shard in enumerate(manifest.shards):
        path, spec = cache / shard.name, bucket_specs(manifest)[shard.bucket or 0]
        payloads = list(read_records(path)) if shard.split == "train" else []
        ids = [str(decode_example(payload, spec)["id"]) for payload in payloads]
        if not ids or clip not in (None, *ids):
            continue
        chosen = 0 if clip is None else ids.index(clip)
        payloads[chosen] = _not_finite(payloads[chosen], spec)
        shards = list(manifest.shards)
        shards[number] = _rewrite(path, payloads, shard)
        (cache / MANIFEST_NAME).write_bytes(manifest_bytes(replace(manifest, shards=tuple(shards))))
        # The receipts describe the old shard; training does not need them.
        shutil.rmtree(cache / RECEIPTS_FOLDER, ignore_errors=True)
        return ids[chosen]
    raise SystemExit(f"{cache}: the training split has no clip {'at all' if clip is None else clip}")


def _not_finite(payload: bytes, spec: RecordSpec) -> bytes:
    """Return the record with NaN in every real frame."""
    values: dict[str, Any] = decode_example(payload, spec)
    tokens, frames = values["tokens"][: values["text_length"]], values["mel_length"]
    mel = np.full((frames, spec.mel_bins), np.nan, np.float16)
    return encode_example(Example(values["id"], tokens, mel, values["speaker"], values["language"]), spec)


def _rewrite(path: Path, payloads: Sequence[bytes], shard: ShardEntry) -> ShardEntry:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for payload in payloads:
            writer.write(payload)
    return replace(shard, bytes=writer.bytes, checksum=writer.checksum)


def judge(clip: str, planted: Ended, clean: Sequence[Ended], steps: int) -> dict[str, Any]:
    """Return the figures, what the planted run reports about the clip, and `ok`."""
    after = LAST_SHARE * steps
    compared = compare([figures(ended.reports, after) for ended in clean], figures(planted.reports, after))
    named = sum(line["not_finite"] == [clip] for line in planted.skipped)
    skipped = planted.summary["skipped_updates"]
    return {
        "clip": clip,
        "steps": planted.summary["steps"],
        "skipped_updates": skipped,
        "lines_in_skipped": len(planted.skipped),
        "lines_that_name_the_clip_alone": named,
        "warnings": planted.summary["warnings"],
        "rolled_back_at_step": planted.summary["rolled_back_at_step"],
        "skipped_updates_without_it": [ended.summary["skipped_updates"] for ended in clean],
        "figures": compared,
        "ok": planted.summary["steps"] == steps
        and 0 < skipped == len(planted.skipped) == named
        and is_within(compared),
    }


def main() -> None:
    """Plant, train and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument(
        "--clip", metavar="ID", help="the training clip to make NaN; default: the first of the first shard"
    )
    arguments = parse_arguments(parser)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(arguments.cache, Path(folder) / "cache"))
        clip = plant(copy, arguments.clip)
        planted, clean = run_beside_seeds(copy, arguments.cache, arguments)
    judged = judge(clip, planted, clean, arguments.steps)
    print(json.dumps(judged, indent=1))
    sys.exit(not judged["ok"])


if __name__ == "__main__":
    main()

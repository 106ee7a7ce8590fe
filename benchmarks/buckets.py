"""Train on a cache of one shape and on the same clips in buckets; compare speed and loss.

    python benchmarks/buckets.py --one-shape cache-1 --buckets cache-3 --config tiny --steps 400

`xtts train` runs on the first cache once for each of three seeds, and on the second cache with the first seed, for the
same number of steps. Each run is a process of its own, one after the other. Batches of both caches have the same number
of frames, padding included: steps cost the same, and buckets see more clips per step. Speeds are medians, those of one
shape over all its runs. Losses are over real frames, of the last 100 steps and of validation.

The exit code is 0 if every training step was traced and compiled once per shape, and if the loss of the last 100 steps
is within two standard deviations of the mean over the seeds. Three values give a rough deviation; use more --seeds.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seeded_runs import Ended, compare, figures, is_within, parse_arguments, run_beside_seeds

from xtts_pipeline.cache.format.manifest import Manifest, load_manifest

LAST_STEPS = 100


def check(one_shape: Manifest, buckets: Manifest) -> None:
    """Raise SystemExit unless the first cache has one shape, the second several, and both the same clips."""
    if one_shape.bucket_count != 1 or buckets.bucket_count < 2:
        raise SystemExit(
            f"one shape and several are expected, found {one_shape.bucket_count} and {buckets.bucket_count}"
        )
    kept = [[manifest.split_records(split) for split in ("train", "val")] for manifest in (one_shape, buckets)]
    if kept[0] != kept[1]:
        raise SystemExit(
            f"the caches hold {kept[0]} and {kept[1]} clips to train and to validate with; preprocess one corpus twice"
        )


def judge(seeds: Sequence[Ended], buckets: Ended, shapes: int, steps: int) -> dict[str, Any]:
    """Return the figures of both caches, their ratio, and `ok`."""
    after = steps - LAST_STEPS
    compared = compare([figures(ended.reports, after) for ended in seeds], figures(buckets.reports, after))
    found = buckets.summary["by_function"]["train_step"]
    slow, fast = (
        statistics.median(ended.summary["examples_per_second"] for ended in seeds),
        buckets.summary["examples_per_second"],
    )
    is_alike = is_within({"train_loss": compared["train_loss"]})
    return {
        "steps": steps,
        "examples_per_second": {"one shape": slow, "buckets": fast, "buckets/one shape": fast / slow},
        "step_ms_p50": {
            "one shape": statistics.median(ended.summary["step_ms"]["p50"] for ended in seeds),
            "buckets": buckets.summary["step_ms"]["p50"],
        },
        "train_step": found,
        "figures": compared,
        "ok": found == {"traces": shapes, "compilations": shapes} and is_alike,
    }


def main() -> None:
    """Train and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one-shape", type=Path, required=True, metavar="CACHE")
    parser.add_argument("--buckets", type=Path, required=True, metavar="CACHE")
    arguments = parse_arguments(parser)
    if arguments.steps <= LAST_STEPS:
        parser.error(f"--steps: over {LAST_STEPS} are needed, whose losses are compared")
    manifests = [load_manifest(cache) for cache in (arguments.one_shape, arguments.buckets)]
    check(*manifests)
    buckets, seeds = run_beside_seeds(arguments.buckets, arguments.one_shape, arguments)
    judged = judge(seeds, buckets, manifests[1].bucket_count, arguments.steps)
    print(json.dumps(judged, indent=1))
    sys.exit(not judged["ok"])


if __name__ == "__main__":
    main()

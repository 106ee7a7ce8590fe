"""Measure how long a run took until its speech could be understood.

    python benchmarks/time_to_quality.py --run runs/two-cores --cache cache --limit 60 --vocoder runs/vocoder

Synthesizes validation sentences with every checkpoint of a finished run and prints the phoneme error rate against their
recordings, with the time of the training steps up to that checkpoint. Train with `training.save_every` and
`training.keep_checkpoints` so that there are enough. Evaluations and checkpoints are not part of the time. Needs the
extra `eval` and a cache with stored waves.
"""

import argparse
import json
from pathlib import Path

from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.evaluation.ground_truth import read_ground_truth, split_entries
from xtts_pipeline.evaluation.intelligibility import Recogniser, count_errors, pool_errors
from xtts_pipeline.inference.synthesizer import Synthesizer
from xtts_pipeline.training.checkpoints.run_folder import checkpoint_folders

THRESHOLDS = (0.30, 0.25, 0.20)


def training_minutes(run: Path) -> dict[int, float]:
    """Return the minutes of training steps up to each step that was logged."""
    minutes, before, total = {0: 0.0}, 0, 0.0
    for line in (run / "metrics.jsonl").read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["split"] == "train" and entry["step"] > before:
            total += (entry["step"] - before) * entry["step_ms"] / 60_000
            before = entry["step"]
            minutes[before] = total
    return minutes


def main() -> None:
    """Judge each checkpoint and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--vocoder")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    asked = parser.parse_args()
    manifest = load_manifest(asked.cache)
    require_waves(asked.cache, manifest)
    entries = split_entries(asked.cache, manifest, asked.split, asked.limit)
    recogniser, rate = Recogniser(), manifest.audio.sample_rate
    recordings = [wave for _, _, wave in read_ground_truth(asked.cache, manifest, entries, None) if wave is not None]
    truth = [recogniser.transcribe(wave, rate) for wave in recordings]
    minutes, reached = training_minutes(asked.run), dict.fromkeys(THRESHOLDS, "not reached")
    for folder in checkpoint_folders(asked.run):
        synthesizer = Synthesizer.load(folder, asked.overrides, vocoder=asked.vocoder)
        spoken = synthesizer.synthesize_batch([entry.raw_text for entry in entries])
        heard = [recogniser.transcribe(speech.wave, rate) for speech in spoken]
        per = pool_errors([count_errors(*pair) for pair in zip(heard, truth, strict=True)]).rate
        step = synthesizer.checkpoint.step
        spent = max((value for logged, value in minutes.items() if logged <= step), default=0.0)
        print(f"step {step}: PER {per:.3f} after {spent:.1f} min", flush=True)
        for threshold in THRESHOLDS:
            if per < threshold and reached[threshold] == "not reached":
                reached[threshold] = f"{spent:.1f} min"
    print("; ".join(f"PER under {threshold:.2f}: {value}" for threshold, value in reached.items()))


if __name__ == "__main__":
    main()

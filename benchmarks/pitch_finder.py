"""Compare the pitch that training reads from mels with that of probabilistic YIN, by speaker.

    python benchmarks/pitch_finder.py --cache cache --clips 8

Needs a cache with stored waves. Prints, over blocks of frames that are voiced throughout, the share whose pitch is
within 6%, the shares that are an octave too high or too low, and the median error.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.evaluation.ground_truth import read_ground_truth, split_entries
from xtts_pipeline.evaluation.pitch import find_pitch
from xtts_pipeline.model.batch import to_network_scale
from xtts_pipeline.model.pitch import REFERENCE_HZ, PitchFinder

BLOCK_FRAMES = (4, 8)
TOLERANCE = 0.06


def compare_pitch(mel_TM: np.ndarray, true_hz: np.ndarray, finder: PitchFinder, block: int) -> Iterator[float]:
    """Yield the pitch of each voiced block of `block` frames, relative to the true one."""
    blocks = min(len(mel_TM), len(true_hz)) // block
    posterior_TS = np.repeat(np.eye(blocks, dtype=np.float32), block, axis=0)
    mel_BTM = to_network_scale(tf.constant(mel_TM[None, : blocks * block]))
    pitch = finder(mel_BTM, tf.constant(posterior_TS[None]))
    found_hz = REFERENCE_HZ * 2.0 ** pitch.octaves.numpy()[0]
    expected_hz = true_hz[: blocks * block].reshape(blocks, block).mean(axis=1)
    yield from (found_hz / expected_hz)[np.isfinite(expected_hz)]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--clips", type=int, default=8, help="of each speaker")
    asked = parser.parse_args()
    manifest = load_manifest(asked.cache)
    require_waves(asked.cache, manifest)
    finder, entries = PitchFinder(manifest.audio), split_entries(asked.cache, manifest, asked.split, None)
    for speaker in manifest.speakers:
        spoken = [entry for entry in entries if entry.speaker == speaker][: asked.clips]
        found: dict[int, list[float]] = {block: [] for block in BLOCK_FRAMES}
        for _, mel, wave in read_ground_truth(asked.cache, manifest, spoken, None):
            true_hz = find_pitch(np.asarray(wave), manifest.audio)
            for block in BLOCK_FRAMES:
                found[block] += compare_pitch(mel, true_hz, finder, block)
        for block, values in found.items():
            if not values:
                continue
            ratio = np.array(values)
            near, high, low = np.mean(np.abs(ratio - 1.0) < TOLERANCE), np.mean(ratio > 1.5), np.mean(ratio < 0.7)
            error = np.median(np.abs(ratio - 1.0))
            figures = f"within 6% {near:.3f}, an octave high {high:.3f}, low {low:.3f}, median error {error:.2%}"
            print(f"{speaker}: {len(values)} blocks of {block} frames, {figures}", flush=True)


if __name__ == "__main__":
    main()

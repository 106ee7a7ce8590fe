"""Write a cache again with predicted mels: everything else in it, the waves included, stays what it is.

Knows records and files, but no model: a function predicts the mels.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from xtts_pipeline.cache.build.folder import check_free_space
from xtts_pipeline.cache.format.example import decode_example, encode_example
from xtts_pipeline.cache.format.manifest import (
    MANIFEST_NAME,
    Manifest,
    MelOrigin,
    ShardEntry,
    fingerprint,
    is_file_of,
    manifest_bytes,
)
from xtts_pipeline.cache.format.problems import damaged_file
from xtts_pipeline.cache.format.schema import without_padding
from xtts_pipeline.cache.format.tfrecord import RecordWriter, read_records
from xtts_pipeline.errors import CheckpointError, output_errors
from xtts_pipeline.system.atomic_files import atomic_folder
from xtts_pipeline.system.storage import real_path

_OTHER_PLACE = "choose another --output"

# Returns the mel, float32 [mel_length, mel_bins], of each of some records of a bucket.
Predict = Callable[[int, Sequence[dict[str, Any]]], Sequence[np.ndarray]]


@dataclass
class MelComparison:
    """Predicted mels beside those of the recordings, of one split: sums over its clips."""

    clips: int = 0
    frames: int = 0
    difference: float = 0.0

    @property
    def mean_difference(self) -> float:
        """The mean absolute difference of a mel bin, in natural log."""
        return self.difference / max(self.frames, 1)

    def add(self, predicted: np.ndarray, recorded: np.ndarray) -> None:
        """Add a clip; both are [mel_length, mel_bins]."""
        self.clips += 1
        self.frames += len(recorded)
        self.difference += float(np.abs(predicted - recorded.astype(np.float32)).mean(axis=1, dtype=np.float64).sum())


def write_predicted_cache(
    source: Path,
    manifest: Manifest,
    target: Path,
    origin: MelOrigin,
    batch_rows: Sequence[int],
    predict: Predict,
    progress: Callable[[int], object],
) -> dict[str, MelComparison]:
    """Write the cache `source` to the new or empty folder `target` with mels of `predict`; return each split's error.

    The folder appears whole or not at all. Files that stay the same are hard links where the file system has them.
    `batch_rows` is the most records of each bucket that `predict` takes; `progress` receives the clips done.
    Raises CacheError if a file of the source is damaged, CheckpointError if a prediction is not finite, OutputError if
    the target cannot be written.
    """
    target = real_path(target)  # `.` has no name beside which a folder could be made
    comparisons: dict[str, MelComparison] = {}
    with output_errors(target, _OTHER_PLACE, names_file=True), atomic_folder(target) as folder:
        check_free_space(target.parent, sum(shard.bytes for shard in manifest.shards), _OTHER_PLACE)
        shards = []
        for shard in manifest.shards:
            comparison = comparisons.setdefault(shard.split, MelComparison())
            rows = batch_rows[shard.bucket or 0]
            shards.append(_write_shard(source, manifest, shard, folder, rows, predict, comparison, progress))
        _link_files(source, manifest, folder)
        predicted = replace(
            manifest,
            shards=tuple(shards),
            mels_from=origin,
            fingerprint=fingerprint(manifest, manifest.symbols, origin),
        )
        (folder / MANIFEST_NAME).write_bytes(manifest_bytes(predicted))
    return comparisons


def _write_shard(
    source: Path,
    manifest: Manifest,
    shard: ShardEntry,
    folder: Path,
    rows: int,
    predict: Predict,
    comparison: MelComparison,
    progress: Callable[[int], object],
) -> ShardEntry:
    bucket = shard.bucket or 0
    spec, digest = manifest.spec_of_shard[shard.name], xxhash.xxh3_128()
    payloads = read_records(source / shard.name, digest)
    with (folder / shard.name).open("xb") as file:
        writer = RecordWriter(file)
        while records := [decode_example(payload, spec) for payload in islice(payloads, rows)]:
            for record, mel in zip(records, predict(bucket, records), strict=True):
                example = without_padding(record)
                with np.errstate(over="ignore"):
                    stored = mel.astype(np.float16)
                if not np.isfinite(stored).all():
                    found = f"{source / shard.name}: the mel predicted for {example.id} is not finite"
                    raise CheckpointError(f"{found}; use another checkpoint")
                comparison.add(mel, example.mel)
                writer.write(encode_example(replace(example, mel=stored), spec))
            progress(len(records))
    if digest.hexdigest() != shard.checksum:
        raise damaged_file(source, shard.name)
    return replace(shard, bytes=writer.bytes, checksum=writer.checksum)


def _link_files(source: Path, manifest: Manifest, folder: Path) -> None:
    """Give the folder the waves and listings of the source, after checking their bytes."""
    for name, entry in {**manifest.wave_files, **manifest.files}.items():
        with suppress(OSError):  # the file system has no hard links, or the folder is on another one
            os.link(source / name, folder / name)
        if not (folder / name).exists():
            shutil.copyfile(source / name, folder / name)
        if not is_file_of(folder / name, entry):
            raise damaged_file(source, name)

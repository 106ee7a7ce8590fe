"""How the buckets of a cache are trained together: the rows in a batch of each, and the order in which their batches come.

Knows no TensorFlow: `xtts train` asks before it is imported.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.format.schema import RecordSpec


def batch_sizes(specs: Sequence[RecordSpec], batch_size: int, parts: int) -> list[int]:
    """Return the rows in a batch of each bucket, the largest last, so that all batches cost about the same.

    The largest has `batch_size`; a smaller one as many as fit into as many frames, padding included, in as many `parts` of equal size:
    of accumulation, times the devices.
    """
    frames = batch_size * specs[-1].max_mel_frames
    return [frames // spec.max_mel_frames // parts * parts for spec in specs]


def unfilled_buckets(manifest: Manifest, batch_size: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the training clips and the rows in a batch of each bucket that holds such clips, but too few for a batch."""
    for bucket, rows in enumerate(batch_sizes(bucket_specs(manifest), batch_size, parts)):
        found = manifest.split_records("train", bucket)
        if 0 < found < rows:
            yield bucket, found, rows


def is_filled(manifest: Manifest, batch_size: int, parts: int) -> bool:
    """Return whether every bucket that holds training clips fills a batch."""
    return not any(unfilled_buckets(manifest, batch_size, parts))


def bucket_order(batches: Sequence[int], seed: int, epoch: int) -> np.ndarray:
    """Return the bucket of each batch of an epoch, int [sum(batches)]: each bucket as often as it has batches, shuffled.

    It depends on the arguments alone.
    """
    labels = np.repeat(np.arange(len(batches)), batches)
    # NumPy promises these bits for all its versions; what Generator.permutation makes of them it does not.
    return labels[np.argsort(np.random.PCG64([seed, epoch]).random_raw(len(labels)), kind="stable")]

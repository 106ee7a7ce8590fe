"""How much of a cache is padding, and when buckets are worth it."""

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.format.schema import SPLITS

# Above this share, buckets save more time than their compilations take.
MUCH_PADDING = 0.25


def padding_share(manifest: Manifest) -> float:
    """Return the share of the cache's frames that is padding."""
    frames = sum(
        manifest.split_records(split, bucket) * spec.max_mel_frames
        for bucket, spec in enumerate(bucket_specs(manifest))
        for split in SPLITS
    )
    return 1.0 - manifest.statistics["frames"].mean * manifest.counts.kept / frames if frames else 0.0


def padding_advice(manifest: Manifest) -> list[str]:
    """Return a line that names the remedy where more than MUCH_PADDING of the frames is padding, otherwise nothing."""
    if padding_share(manifest) <= MUCH_PADDING:
        return []
    buckets = "other data.buckets" if manifest.buckets else "--set data.buckets=auto"
    remedy = f"preprocess (or train --data) with {buckets} to train faster"
    return [f"advice: {remedy}; xtts stats shows the padding that is left"]

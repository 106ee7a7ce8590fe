"""How much of a cache is padding, and which limits or buckets reduce it."""

from xtts_pipeline.cache.format.manifest import Manifest, bucket_specs
from xtts_pipeline.cache.format.schema import SPLITS
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import Reason

# Above this share, buckets save more time than their compilations take.
MUCH_PADDING = 0.25
# The share of the frames for which it is worth making the cache again.
LEAST_SAVING = 0.05
# A bucket of fewer clips may not fill a batch, and would then never be trained.
MIN_SHAPE_CLIPS = 128
# Tensor cores need multiples of 8 tokens, and of 8 decoder steps of `model.frames_per_step` frames, 2 by default.
TOKENS_MULTIPLE, FRAMES_MULTIPLE = 8, 16
_REMAKE = "preprocess (or train --data)"


def padding_share(manifest: Manifest) -> float:
    """Return the share of the cache's frames that is padding."""
    frames = sum(
        manifest.split_records(split, bucket) * spec.max_mel_frames
        for bucket, spec in enumerate(bucket_specs(manifest))
        for split in SPLITS
    )
    return 1.0 - manifest.statistics["frames"].mean * manifest.counts.kept / frames if frames else 0.0


def limit_options(max_text_length: int, max_mel_frames: int) -> str:
    """Return the options of `preprocess` that set these limits."""
    return f"--set limits.max_text_length={max_text_length} --set limits.max_mel_frames={max_mel_frames}"


def padding_advice(manifest: Manifest, config: Config) -> list[str]:
    """Return a line with a remedy that is not in use, where more than MUCH_PADDING of the frames is padding.

    Clips for fewer than two buckets get tighter limits; nothing is returned where these save less than LEAST_SAVING.
    """
    if padding_share(manifest) <= MUCH_PADDING:
        return []
    is_auto = config.data.buckets == "auto" and (manifest.buckets or config.data.are_buckets_given)
    can_split = manifest.counts.kept >= 2 * MIN_SHAPE_CLIPS and not is_auto
    if can_split:
        remedy = "other data.buckets" if manifest.buckets else "--set data.buckets=auto"
        return [f"advice: {_REMAKE} with {remedy} to train faster; xtts stats shows the padding that is left"]
    if {Reason.MEL_TOO_LONG, Reason.TEXT_TOO_LONG} & set(manifest.rejected_by_reason):
        return []  # limits that are too low for some clips already
    limits = manifest.limits
    tokens, frames = (
        min(limit, -(-int(manifest.statistics[measure].max) // multiple) * multiple)
        for measure, limit, multiple in (
            ("tokens", limits.max_text_length, TOKENS_MULTIPLE),
            ("frames", limits.max_mel_frames, FRAMES_MULTIPLE),
        )
    )
    if manifest.buckets or frames > (1.0 - LEAST_SAVING) * limits.max_mel_frames:
        return []
    share = 1.0 - manifest.statistics["frames"].mean / frames
    return [f"advice: {_REMAKE} with {limit_options(tokens, frames)} for {share:.0%} padding and faster steps"]

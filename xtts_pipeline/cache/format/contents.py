"""Refuse a cache that has not what a command reads from it."""

from pathlib import Path

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.errors import CacheError
from xtts_pipeline.system.terminal import shell_word


def require_recorded_mels(folder: Path, manifest: Manifest, remedy: str = "name another cache") -> None:
    """Raise CacheError, ending in `remedy`, if a model predicted the mels of the cache: they serve a vocoder alone."""
    if (origin := manifest.mels_from) is not None:
        found = f"mels that a model predicted (step {origin.step}, weights {origin.weights_sha256[:12]})"
        raise CacheError(f"{folder}: found {found}, expected those of recordings; {remedy}")


def require_waves(folder: Path, manifest: Manifest) -> None:
    """Raise CacheError if the cache has no stored waves."""
    if manifest.cache.store_waves:
        return
    command = f"xtts preprocess --data DIR --cache {shell_word(folder)} --set cache.store_waves=true"
    remedy = f"add them by {command}, with its other options as before"
    # Preprocessing again would leave the cache with the clips of one corpus, and with all of them.
    if manifest.has_several_corpora:
        remedy = "add them to the caches of its corpora, and merge those again"
    elif manifest.excluded:
        remedy += ", --exclude included; or take the subset of a cache that has them"
    raise CacheError(f"{folder}: has no stored waves; {remedy}")

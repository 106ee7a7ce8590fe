"""The settings of a run: merged from the cache, the run that continues and the user, and compared with that run's.

Imports no TensorFlow.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xtts_pipeline.cache.format.manifest import CACHE_SECTIONS, Manifest, cache_settings, config_differences
from xtts_pipeline.config.load import load_config, read_yaml
from xtts_pipeline.config.schema import Config, show_value
from xtts_pipeline.errors import CacheError, ConfigError, did_you_mean
from xtts_pipeline.system.terminal import shell_word
from xtts_pipeline.training.checkpoints.run_folder import CONFIG_NAME, checkpoint_folders
from xtts_pipeline.training.checkpoints.state import NetworkKind
from xtts_pipeline.training.checks import available_memory, choose_batch_size, choose_precision
from xtts_pipeline.training.distributed.cluster import Cluster
from xtts_pipeline.training.vocoder.checks import check_vocoder_settings

# The name of the clips themselves in `--allow-change`; also the section that lays them out.
RECORDS_KEY = "cache"
# A resumed run keeps these from its tuning whatever the command says: measuring again would make another run of it.
TUNED_KEYS = ("training.batch_size", "training.accumulation_steps", "data.num_workers", "data.prefetch_buffer_size")

# Settings that differ: before and now, by `section.key`.
Changes = dict[str, tuple[Any, Any]]


def training_config(
    manifest: Manifest,
    configs: Sequence[str],
    overrides: Sequence[str],
    steps: int | None,
    previous: Config | None = None,
    allowed: Collection[str] = (),
    init_from: Config | None = None,
    network: NetworkKind = "acoustic",
    devices: int = 1,
    cluster: Cluster | None = None,
) -> Config:
    """Return the settings of the cache, or of the `previous` run that continues, with the user's on top.

    A new run that starts with another run's weights, whose settings are `init_from`, takes the settings of its network
    as defaults. A `training.batch_size` of `auto` becomes a number: that of the previous run, or the largest batch that
    fits into memory. A `training.precision` of `auto` becomes that of the previous run or the faster one. With one
    speaker the default of `model.voice_latents` is 0, with several that of `synthesis.guidance` is 1.
    Raises CacheError that names each setting which contradicts the cache.
    """
    base: dict[str, Any] = cache_settings(manifest)
    if init_from is not None:
        section = "vocoder" if network == "vocoder" else "model"
        base[section] = getattr(init_from, section).model_dump(mode="json")
    if previous is not None:
        settings = previous.model_dump(mode="json")
        base = {**settings, **({"cache": base["cache"]} if RECORDS_KEY in allowed else {})}
    steps_override = [] if steps is None else [f"training.steps={steps}"]
    tuned = [] if previous is None else tuned_overrides(previous, allowed)
    config = load_config(configs, [*overrides, *steps_override, *tuned], base)
    if network == "acoustic":
        # It reads no waves, so a cache may gain or lose them.
        config = config.with_settings("cache", store_waves=manifest.cache.store_waves)
    differences = config_differences(manifest, config, CACHE_SECTIONS)
    if differences:
        remedy = (
            "preprocess again, or leave these settings out"
            if previous is None
            else "use the cache of the run, or another --output"
        )
        raise CacheError(f"the cache was made with other settings: {'; '.join(differences)}; {remedy}")
    # A resumed run keeps its choice. Each worker of a cluster would choose by its own processor.
    if config.training.precision == "auto" and (previous is not None or cluster is not None):
        config = config.with_settings("training", precision=(previous or config).training.product_type)
    config = choose_precision(config)
    if network == "vocoder":
        return check_vocoder_settings(config)
    config = _suit_speakers(config, len(manifest.speakers))
    if config.training.batch_size == "auto" and previous is not None:
        return config.with_settings("training", batch_size=previous.training.batch_size)
    if config.training.batch_size == "auto" and cluster is not None:
        raise ConfigError(
            "training.batch_size=auto: each worker would choose by its own memory, expected one size for all; "
            "give a number"
        )
    return choose_batch_size(manifest, config, available_memory(), devices)


def _suit_speakers(config: Config, speakers: int) -> Config:
    """Return the config with the defaults for so many speakers in place of those that nobody has set."""
    if speakers == 1 and "voice_latents" not in config.model.model_fields_set:
        # A reference of the only speaker tells nothing new, and its frames would have no loss.
        config = config.with_settings("model", voice_latents=0)
    if speakers > 1 and "guidance" not in config.synthesis.model_fields_set:
        # It makes one voice clearer, and moves each of several away from its own.
        config = config.with_settings("synthesis", guidance=1.0)
    return config


def tuned_overrides(previous: Config, allowed: Collection[str]) -> list[str]:
    """Return the tuned settings of the previous run as `section.key=value`, except those `allowed` by key or section.

    The list is empty if that run was not tuned.
    """
    if not previous.training.autotune:
        return []
    settings = previous.model_dump(mode="json")
    kept = [key.split(".") for key in TUNED_KEYS if not {key, key.partition(".")[0]} & {*allowed}]
    return [f"{section}.{key}={json.dumps(settings[section][key])}" for section, key in kept]


def changed_settings(before: Config, now: Config) -> Changes:
    """Return the settings that differ between two configs, without `cache.store_waves`.

    Stored waves matter to the training of a vocoder alone, whose caches always have them.
    """
    old, new = (dict(_flat(config.model_dump(mode="json"))) for config in (before, now))
    return {key: (old[key], new[key]) for key in old if old[key] != new[key] and key != "cache.store_waves"}


def check_allowed_keys(allowed: Collection[str]) -> None:
    """Raise ConfigError if a key of `--allow-change` is neither a setting nor a section."""
    keys = [key for key, _ in _flat(Config().model_dump(mode="json"))]
    known = {*keys, *(key.partition(".")[0] for key in keys), RECORDS_KEY}
    for key in allowed:
        if key not in known:
            raise ConfigError(f"--allow-change {key}: no such setting or section; {did_you_mean(key, sorted(known))}")


def new_changes(run: Path, changes: Changes, config: Config) -> Changes:
    """Return the changes that config.yaml does not have yet. The others were allowed before, by a run killed since."""
    if not (run / CONFIG_NAME).is_file():
        return changes
    new = changed_settings(load_config(base=read_yaml(run / CONFIG_NAME)), config)
    return {key: values for key, values in changes.items() if key in new or key == RECORDS_KEY}


def check_changes(run: Path, changes: Changes, allowed: Collection[str]) -> None:
    """Raise ConfigError that names each change which is not allowed by its key or section."""
    refused = {
        key: pair for key, pair in changes.items() if key not in allowed and key.partition(".")[0] not in allowed
    }
    if refused:
        listed = "; ".join(
            f"{key}: the run has {show_value(was)}, asked for is {show_value(now)}"
            for key, (was, now) in refused.items()
        )
        remedy = "add " + " ".join(f"--allow-change {key}" for key in refused)
        if checkpoint_folders(run) and any(_sets_shapes(key, *pair) for key, pair in refused.items()):
            remedy = f"begin a new run with what fits of its weights: --init-from {shell_word(run)} --output NEW"
        raise ConfigError(f"{run}: {listed}; leave these as they were, or {remedy}")


def _sets_shapes(key: str, was: Any, now: Any) -> bool:
    """Return whether the weights of a run with one value of a setting do not fit another value."""
    section, _, name = key.partition(".")
    if key == "vocoder.adversarial_weight":
        return (was == 0) != (now == 0)  # without it there are no discriminators
    if section == "vocoder":
        return name in ("width", "blocks") or name.startswith("discriminator_")
    return section == "model" and name not in ("remat", "dropout", "reference_frames")


def _flat(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, settings in tree.items():
        yield from ((f"{section}.{key}", value) for key, value in settings.items())

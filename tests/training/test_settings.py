from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xtts_pipeline.cache.format.manifest import FileEntry, Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.errors import CacheError, ConfigError
from xtts_pipeline.training import checks
from xtts_pipeline.training.distributed.cluster import Cluster
from xtts_pipeline.training.settings import check_changes, training_config


@pytest.mark.parametrize(
    ("speakers", "overrides", "latents"),
    [
        (("anna",), (), 0),
        (("anna",), ("model.voice_latents=8",), 8),
        (("anna", "ben"), (), 32),
        (("anna", "ben"), ("model.voice_latents=0",), 0),
    ],
)
def test_a_cache_with_one_speaker_needs_no_references_unless_told(
    tmp_path: Path, write_cache: Any, speakers: tuple[str, ...], overrides: tuple[str, ...], latents: int
) -> None:
    manifest: Manifest = replace(write_cache(tmp_path / "cache"), speakers=speakers)
    config = training_config(manifest, (), ("training.batch_size=2", *overrides), None)
    assert config.model.voice_latents == latents
    # A run that goes on keeps what it has.
    again = training_config(replace(manifest, speakers=("anna",)), (), (), None, previous=config)
    assert again.model.voice_latents == latents


@pytest.mark.parametrize(
    ("speakers", "overrides", "guidance"),
    [
        (("anna",), (), 3.0),
        (("anna", "ben"), (), 1.0),
        (("anna", "ben"), ("synthesis.guidance=2",), 2.0),
    ],
)
def test_several_speakers_are_spoken_without_guidance_unless_told(
    tmp_path: Path, write_cache: Any, speakers: tuple[str, ...], overrides: tuple[str, ...], guidance: float
) -> None:
    manifest: Manifest = replace(write_cache(tmp_path / "cache"), speakers=speakers)
    config = training_config(manifest, (), ("training.batch_size=2", *overrides), None)
    assert config.synthesis.guidance == guidance
    # A run that goes on keeps what it has.
    again = training_config(replace(manifest, speakers=("anna", "ben")), (), (), None, previous=config)
    assert again.synthesis.guidance == guidance


def test_the_precision_is_chosen_once_for_a_run(
    tmp_path: Path, write_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, overrides = write_cache(tmp_path / "cache"), ("training.batch_size=2",)

    def chosen(previous: Config | None = None, *more: str, **named: Any) -> str:
        config = training_config(manifest, (), (*overrides, *more), None, previous=previous, **named)
        return config.training.precision

    monkeypatch.setattr(checks, "has_gpu", lambda: False)
    monkeypatch.setattr(checks, "has_bfloat16_products", lambda: True)
    config = training_config(manifest, (), overrides, None)
    assert config.training.precision == "bfloat16"
    assert chosen(network="vocoder") == "bfloat16"
    assert chosen(cluster=Cluster(("one:1", "two:1"), 0, "chief")) == "float32"
    # A run that goes on elsewhere keeps it, whether `auto` is asked for again or not.
    monkeypatch.setattr(checks, "has_bfloat16_products", lambda: False)
    assert chosen() == "float32"
    assert chosen(config) == chosen(config, "training.precision=auto") == "bfloat16"


def test_stored_waves_matter_to_a_vocoder_alone(tmp_path: Path, write_cache: Any) -> None:
    manifest = write_cache(tmp_path / "cache")
    with_waves = replace(
        manifest,
        cache=manifest.cache.model_copy(update={"store_waves": True}),
        waves=tuple(FileEntry(shard.bytes, shard.checksum) for shard in manifest.shards),
    )
    before = training_config(manifest, (), ("training.batch_size=2",), None)
    assert training_config(with_waves, (), (), None, previous=before).cache.store_waves
    assert CachedSource(tmp_path, manifest).records_digest() == CachedSource(tmp_path, with_waves).records_digest()
    with pytest.raises(CacheError, match=r"cache\.store_waves: the cache has true, the config false"):
        training_config(with_waves, (), (), None, previous=before, network="vocoder")


def test_a_setting_that_changes_the_weights_is_not_to_be_allowed(tmp_path: Path) -> None:
    changes: dict[str, tuple[Any, Any]] = {"model.width": (128, 256), "training.seed": (0, 1)}
    (tmp_path / "a run" / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(ConfigError) as refused:
        check_changes(tmp_path / "a run", changes, ())
    assert str(refused.value).endswith(
        f"begin a new run with what fits of its weights: --init-from '{tmp_path}/a run' --output NEW"
    )
    # Without that weight there are no discriminators.
    with pytest.raises(ConfigError, match=r"begin a new run"):
        check_changes(tmp_path / "a run", {"vocoder.adversarial_weight": (0.0, 1.0)}, ())
    kept_weights = ({"vocoder.mel_weight": (45.0, 30.0)}, {"vocoder.adversarial_weight": (1.0, 2.0)})
    for kept in ({"model.dropout": (0.1, 0.2)}, *kept_weights):
        with pytest.raises(ConfigError, match="or add --allow-change"):
            check_changes(tmp_path / "a run", kept, ())
    with pytest.raises(ConfigError, match=r"or add --allow-change model.width --allow-change training.seed$"):
        check_changes(tmp_path / "run without a checkpoint", changes, ())

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.training.settings import training_config


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

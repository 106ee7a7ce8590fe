from pathlib import Path

import pytest

from xtts_pipeline.audio.reference import load_reference
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"reference .*nowhere.wav: no such file"):
        load_reference(tmp_path / "nowhere.wav", AudioConfig())

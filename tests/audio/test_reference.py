from pathlib import Path

import numpy as np
import pytest
import soundfile

from xtts_pipeline.audio.reference import REFERENCE_LIMITS, load_reference
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import AudioError


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"reference .*nowhere.wav: no such file"):
        load_reference(tmp_path / "nowhere.wav", AudioConfig())


def test_a_clip_that_trimming_leaves_too_short_is_refused(tmp_path: Path) -> None:
    wave = np.zeros(22_050)
    wave[10_000:12_000] = 0.3 * np.sin(0.1 * np.arange(2_000))
    soundfile.write(tmp_path / "click.wav", wave, 22_050)
    assert len(load_reference(tmp_path / "click.wav", AudioConfig())) == 87
    with pytest.raises(AudioError, match=r"click.wav: 0\.\d\d s without its silence; give half a second of speech"):
        load_reference(tmp_path / "click.wav", AudioConfig(trim_db=40.0))


def test_a_clip_over_an_hour_is_refused(tmp_path: Path) -> None:
    assert REFERENCE_LIMITS.max_seconds == 3_600
    soundfile.write(tmp_path / "long.wav", np.zeros(3_601 * 4_000, np.int16), 4_000, "PCM_U8")
    with pytest.raises(AudioError, match=r"long.wav: .*give a minute or less"):
        load_reference(tmp_path / "long.wav", AudioConfig())

"""A sound file is whole or not there."""

import os
import threading

import numpy as np
import pytest
import soundfile

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.errors import AudioError, OutputError


def test_what_is_written_is_read_again(tmp_path):
    wave = np.linspace(-1, 1, 1_001, dtype=np.float32)
    write_wave(tmp_path / "out.wav", wave, 16_000)
    samples, rate = soundfile.read(tmp_path / "out.wav")
    assert rate == 16_000
    assert soundfile.info(tmp_path / "out.wav").subtype == "PCM_16"
    np.testing.assert_allclose(samples, wave, atol=5e-5)


def test_a_wave_over_full_scale_is_scaled_and_not_clipped(tmp_path):
    wave = np.array([0.5, -4.0, 2.0], np.float32)
    write_wave(tmp_path / "out.wav", wave, 16_000)
    samples, _ = soundfile.read(tmp_path / "out.wav")
    np.testing.assert_allclose(samples, wave / 4, atol=5e-5)


def test_a_failure_leaves_what_was_there_and_no_other_file(tmp_path):
    path = tmp_path / "out.wav"
    write_wave(path, np.zeros(10, np.float32), 16_000)
    before = path.read_bytes()
    with pytest.raises(AudioError, match="not finite"):
        write_wave(path, np.array([np.nan], np.float32), 16_000)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.wav"]


def test_a_link_is_followed_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "link.wav").symlink_to(tmp_path / "out.wav")
    write_wave(tmp_path / "link.wav", np.zeros(10, np.float32), 16_000)
    assert (tmp_path / "link.wav").is_symlink()
    assert soundfile.info(tmp_path / "out.wav").frames == 10
    os.mkfifo(tmp_path / "pipe.wav")
    heard = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe.wav").read_bytes()), daemon=True)
    reader.start()
    write_wave(tmp_path / "pipe.wav", np.zeros(10, np.float32), 16_000)
    reader.join()
    assert heard == [(tmp_path / "out.wav").read_bytes()]
    assert (tmp_path / "pipe.wav").is_fifo()


def test_a_folder_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(OutputError, match=r"out\.wav: cannot be written \(No such file or directory\)"):
        write_wave(tmp_path / "none" / "out.wav", np.zeros(10, np.float32), 16_000)
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_wave(tmp_path / "folder.wav", np.zeros(10, np.float32), 16_000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.wav"]

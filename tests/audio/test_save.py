"""A saved WAV file is whole or absent; a streamed one can be read while it grows."""

import io
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile

from xtts_pipeline.audio import save
from xtts_pipeline.audio.save import HEADER_BYTES, WavStream, write_wave
from xtts_pipeline.errors import AudioError, OutputError


def test_a_written_wave_is_read_back(tmp_path: Path) -> None:
    wave = np.linspace(-1, 1, 1_001, dtype=np.float32)
    write_wave(tmp_path / "out.wav", wave, 16_000)
    samples, rate = soundfile.read(tmp_path / "out.wav")
    assert rate == 16_000
    assert soundfile.info(tmp_path / "out.wav").subtype == "PCM_16"
    np.testing.assert_allclose(samples, wave, atol=5e-5)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".mp3", ".ogg", ".FLAC", ""])
def test_the_suffix_names_the_format(tmp_path: Path, suffix: str) -> None:
    wave = 0.5 * np.sin(2 * np.pi * 300 * np.arange(200_000) / 22_050)
    write_wave(tmp_path / f"a{suffix}", wave, 22_050)
    found, rate = soundfile.read(tmp_path / f"a{suffix}")
    assert soundfile.info(tmp_path / f"a{suffix}").format == (suffix[1:].upper() or "WAV")
    assert rate == 22_050
    # MP3 begins and ends with its own padding.
    assert len(found) == pytest.approx(len(wave), abs=2_304)
    assert np.std(found) == pytest.approx(np.std(wave), rel=0.02)


def test_a_rate_that_a_format_lacks_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"a.mp3: libsndfile writes no MP3 of 12345 Hz \(.*\); name a .wav file"):
        write_wave(tmp_path / "a.mp3", np.zeros(100), 12_345)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_wave_is_a_wav_file_and_no_other(tmp_path: Path) -> None:
    write_wave(tmp_path / "a.wav", np.zeros(0), 22_050)
    assert soundfile.info(tmp_path / "a.wav").frames == 0
    for suffix in (".flac", ".mp3", ".ogg"):
        with pytest.raises(OutputError, match=r"libsndfile writes no [A-Z0-9]+ without samples; name a .wav file"):
            write_wave(tmp_path / f"a{suffix}", np.zeros(0), 22_050)
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


def test_a_wave_over_full_scale_is_scaled_and_not_clipped(tmp_path: Path) -> None:
    wave = np.array([0.5, -4.0, 2.0], np.float32)
    write_wave(tmp_path / "out.wav", wave, 16_000)
    samples, _ = soundfile.read(tmp_path / "out.wav")
    np.testing.assert_allclose(samples, wave / 4, atol=5e-5)


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    write_wave(path, np.zeros(10, np.float32), 16_000)
    before = path.read_bytes()
    with pytest.raises(AudioError, match="not finite"):
        write_wave(path, np.array([np.nan], np.float32), 16_000)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.wav"]


def test_a_symlink_is_followed_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link.wav").symlink_to(tmp_path / "out.wav")
    write_wave(tmp_path / "link.wav", np.zeros(10, np.float32), 16_000)
    assert (tmp_path / "link.wav").is_symlink()
    assert soundfile.info(tmp_path / "out.wav").frames == 10
    os.mkfifo(tmp_path / "pipe.wav")
    received = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe.wav").read_bytes()), daemon=True)
    reader.start()
    write_wave(tmp_path / "pipe.wav", np.zeros(10, np.float32), 16_000)
    reader.join()
    assert received == [(tmp_path / "out.wav").read_bytes()]
    assert (tmp_path / "pipe.wav").is_fifo()


def test_an_output_that_cannot_be_written_is_named_by_the_error(tmp_path: Path) -> None:
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.wav"):
        write_wave(tmp_path / "folder.wav", np.zeros(10, np.float32), 16_000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.wav"]


class Pipe(io.BytesIO):
    """Bytes that cannot be sought."""

    def seekable(self) -> bool:
        return False

    def seek(self, _offset: int, _whence: int = io.SEEK_SET, /) -> int:
        raise OSError("a pipe")


def test_a_stream_can_be_read_after_every_write(tmp_path: Path) -> None:
    wave = np.linspace(-1.0, 1.0, 300, dtype=np.float32)
    with (tmp_path / "speech.wav").open("wb") as file:
        stream = WavStream(file, 8_000, can_seek=True)
        for end in (0, 100, 300):
            stream.write(wave[round(stream.seconds * 8_000) : end])
            read, rate = soundfile.read(tmp_path / "speech.wav", dtype="float32")
            assert rate == 8_000
            np.testing.assert_allclose(read, wave[:end], atol=1e-4)
    assert stream.seconds == pytest.approx(300 / 8_000)


def test_a_stream_into_a_pipe_has_an_unknown_length() -> None:
    pipe = Pipe()
    WavStream(pipe, 16_000, can_seek=False).write(np.zeros(10))
    content = pipe.getvalue()
    assert (content[:4], content[4:8], content[40:44]) == (b"RIFF", b"\xff" * 4, b"\xff" * 4)
    assert len(content) == HEADER_BYTES + 20


def test_a_stream_over_the_largest_size_has_an_unknown_length(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    stream = WavStream(file, 8_000, can_seek=True)
    monkeypatch.setattr(save, "UNKNOWN_BYTES", 100)  # 4 GiB take too long
    stream.write(np.zeros(80))
    assert file.getvalue()[40:44] == struct.pack("<I", 100)
    assert len(file.getvalue()) == HEADER_BYTES + 160


def test_a_stream_clips_loud_samples_and_refuses_those_that_are_not_finite() -> None:
    file = io.BytesIO()
    stream = WavStream(file, 8_000, can_seek=True)
    stream.write(np.array([2.0, -2.0]))
    assert np.frombuffer(file.getvalue()[HEADER_BYTES:], "<i2").tolist() == [32_767, -32_767]
    with pytest.raises(AudioError, match="not finite"):
        stream.write(np.array([np.nan]))

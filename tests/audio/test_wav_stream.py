import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from xtts_pipeline.audio.wav_stream import HEADER_BYTES, WavStream
from xtts_pipeline.errors import AudioError


class Pipe(io.BytesIO):
    """Bytes that cannot be sought."""

    def seekable(self) -> bool:
        return False

    def seek(self, _offset: int, _whence: int = io.SEEK_SET, /) -> int:
        raise OSError("a pipe")


def test_a_file_can_be_read_after_every_write(tmp_path: Path) -> None:
    wave = np.linspace(-1.0, 1.0, 300, dtype=np.float32)
    with (tmp_path / "speech.wav").open("wb") as file:
        stream = WavStream(file, 8_000, can_seek=True)
        for end in (0, 100, 300):
            stream.write(wave[round(stream.seconds * 8_000) : end])
            read, rate = soundfile.read(tmp_path / "speech.wav", dtype="float32")
            assert rate == 8_000
            np.testing.assert_allclose(read, wave[:end], atol=1e-4)
    assert stream.seconds == pytest.approx(300 / 8_000)


def test_a_pipe_says_that_its_length_is_unknown() -> None:
    pipe = Pipe()
    WavStream(pipe, 16_000, can_seek=False).write(np.zeros(10))
    content = pipe.getvalue()
    assert (content[:4], content[4:8], content[40:44]) == (b"RIFF", b"\xff" * 4, b"\xff" * 4)
    assert len(content) == HEADER_BYTES + 20


def test_what_is_too_loud_is_clipped_and_what_is_not_finite_refused() -> None:
    file = io.BytesIO()
    stream = WavStream(file, 8_000, can_seek=True)
    stream.write(np.array([2.0, -2.0]))
    assert np.frombuffer(file.getvalue()[HEADER_BYTES:], "<i2").tolist() == [32_767, -32_767]
    with pytest.raises(AudioError, match="not finite"):
        stream.write(np.array([np.nan]))

import io

import numpy as np
import pytest
import soundfile

from xtts_pipeline.errors import AudioError
from xtts_pipeline.serving.sound import MEDIA_TYPES, PCM_RATE, SoundEncoder, available_formats

LENGTH_MASK = (1 << 36) - 1


def encode(name: str, wave: np.ndarray, rate: int, parts: int = 7) -> bytes:
    encoder = SoundEncoder(name, rate)
    return b"".join([*map(encoder.encode, np.array_split(wave, parts)), encoder.finish()])


def decode(name: str, content: bytes, samples: int) -> tuple[np.ndarray, int]:
    if name == "pcm":
        return np.frombuffer(content, "<i2") / 32_768, PCM_RATE
    if name == "flac":
        # A streamed FLAC does not give its length, without which libsndfile reads no file. Fill it in.
        header = int.from_bytes(content[18:26], "big")
        assert header & LENGTH_MASK == 0
        content = content[:18] + (header | samples).to_bytes(8, "big") + content[26:]
    return soundfile.read(io.BytesIO(content))


@pytest.mark.parametrize("rate", [22_050, 24_000, 16_000])
@pytest.mark.parametrize("name", MEDIA_TYPES)
def test_each_format_decodes_to_the_wave(name: str, rate: int) -> None:
    wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    found, found_rate = decode(name, encode(name, wave, rate), len(wave))
    # Lossy formats pad to whole frames.
    assert len(found) / found_rate == pytest.approx(1.0, abs=0.15 if name == "mp3" else 0.002)
    spectrum = np.abs(np.fft.rfft(found[: found_rate // 2]))
    assert np.argmax(spectrum) * 2 == pytest.approx(440, abs=2)
    assert np.abs(found[2_000:-2_000]).max() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", MEDIA_TYPES)
def test_sound_is_sent_before_its_end(name: str) -> None:
    encoder = SoundEncoder(name, 24_000)
    noise = 0.1 * np.random.default_rng(1).standard_normal(36_000).astype(np.float32)
    assert len(encoder.encode(noise)) > 1_000


def test_what_this_machine_writes_is_known() -> None:
    assert {"wav", "flac", "pcm"} <= set(available_formats()) <= set(MEDIA_TYPES)


@pytest.mark.parametrize("name", ["pcm", "wav", "flac"])
def test_samples_that_are_not_finite_are_refused(name: str) -> None:
    with pytest.raises(AudioError, match="not finite"):
        SoundEncoder(name, 24_000).encode(np.array([np.nan], np.float32))

"""A sound file becomes a wave, or an AudioError that says why not; never anything else."""

import io
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from xtts_pipeline.audio.load import decode_wave, load_wave, read_sound_length
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import AudioError, Reason

RATE = 22_050
AUDIO = AudioConfig()
LIMITS = LimitsConfig()


def tone(seconds: float = 0.5, rate: int = RATE, hz: float = 440.0, amplitude: float = 0.5) -> np.ndarray:
    return (amplitude * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def encode(wave: np.ndarray, rate: int = RATE, kind: str = "WAV", subtype: str | None = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, wave, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def reason_of(source: bytes, limits: LimitsConfig = LIMITS) -> Reason:
    with pytest.raises(AudioError) as raised:
        decode_wave(source, AUDIO, limits, "clip.wav")
    assert raised.value.detail.startswith("clip.wav: ")
    assert "\n" not in raised.value.detail
    return raised.value.reason


def wav_header(data_bytes: int, rate: int = RATE, channels: int = 1, bits: int = 16, tag: int = 1) -> bytes:
    block = channels * bits // 8
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, channels, rate, rate * block & 0xFFFFFFFF, block, bits)
    return struct.pack("<4sI4s", b"RIFF", 36, b"WAVE") + layout + struct.pack("<4sI", b"data", data_bytes)


@pytest.mark.parametrize(
    ("kind", "subtype", "tolerance"),
    [
        ("WAV", "PCM_16", 4e-5),
        ("WAV", "PCM_U8", 1e-2),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 1e-6),
        ("WAV", "DOUBLE", 1e-6),
        ("WAV", "ULAW", 2e-2),
        ("WAV", "ALAW", 2e-2),
        ("WAVEX", "PCM_16", 4e-5),
        ("RF64", "PCM_16", 4e-5),
        ("FLAC", "PCM_16", 4e-5),
        ("FLAC", "PCM_24", 1e-6),
        ("OGG", "VORBIS", 3e-2),
    ],
)
def test_every_sample_format_gives_the_same_wave(kind, subtype, tolerance):
    wave = decode_wave(encode(tone(), kind=kind, subtype=subtype), AUDIO, LIMITS, "clip")
    assert wave.dtype == np.float32
    assert len(wave) == len(tone())
    np.testing.assert_allclose(wave, tone(), atol=tolerance)


def test_mp3_is_read():
    wave = decode_wave(encode(tone(1.0), kind="MP3", subtype="MPEG_LAYER_III"), AUDIO, LIMITS, "clip")
    # The codec pads and delays; the tone is what must come through.
    assert len(wave) == pytest.approx(RATE, rel=0.1)
    assert np.argmax(np.abs(np.fft.rfft(wave[5_000:15_000]))) * RATE / 10_000 == pytest.approx(440, abs=3)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_other_sample_rates_are_resampled(rate):
    wave = decode_wave(encode(tone(0.5, rate), rate), AUDIO, LIMITS, "clip")
    expected = tone(0.5)
    assert abs(len(wave) - len(expected)) <= 1
    inner = slice(1_000, 10_000)
    np.testing.assert_allclose(wave[inner], expected[inner], atol=2e-3)


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("FLAC", "PCM_16")])
def test_channels_are_averaged(kind, subtype):
    channels = np.stack([tone(), tone(hz=660), np.zeros_like(tone())], axis=1)
    wave = decode_wave(encode(channels, kind=kind, subtype=subtype), AUDIO, LIMITS, "clip")
    np.testing.assert_allclose(wave, channels.mean(axis=1), atol=4e-5)


@pytest.mark.parametrize("promised", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000, 0x80000000])
def test_a_wav_of_unknown_length_is_read_to_its_end(promised):
    samples = (tone() * 32_767).astype("<i2").tobytes()
    wave = decode_wave(wav_header(promised) + samples, AUDIO, LIMITS, "clip")
    assert len(wave) == len(tone())


def test_chunks_before_the_samples_are_skipped():
    plain = encode(tone())
    odd_chunk = struct.pack("<4sI", b"LIST", 5) + b"abcde\0"
    with_chunk = plain[:36] + odd_chunk + plain[36:]
    np.testing.assert_array_equal(
        decode_wave(with_chunk, AUDIO, LIMITS, "clip"), decode_wave(plain, AUDIO, LIMITS, "clip")
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"", Reason.AUDIO_UNREADABLE),
        (b"not a sound file at all", Reason.AUDIO_UNREADABLE),
        (b"RIFF\0\0\0\0WAVE", Reason.AUDIO_UNREADABLE),
        (wav_header(0), Reason.AUDIO_EMPTY),
        (wav_header(10 * 3_600 * RATE * 2), Reason.AUDIO_TOO_LONG),
        (wav_header(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000, rate=0) + bytes(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000, channels=0) + bytes(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000, channels=65) + bytes(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000, bits=0) + bytes(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000, tag=0x1234) + bytes(20_000), Reason.AUDIO_UNREADABLE),
        (wav_header(2_000, rate=0xFFFFFFFF) + bytes(2_000), Reason.AUDIO_UNREADABLE),
        (wav_header(20_000) + bytes(20_000), Reason.AUDIO_SILENT),
        (encode(tone(0.05)), Reason.AUDIO_TOO_SHORT),
        (encode(tone(0.05), kind="FLAC"), Reason.AUDIO_TOO_SHORT),
        (encode(tone(amplitude=5e-4), subtype="FLOAT"), Reason.AUDIO_SILENT),
        (encode(np.clip(tone(amplitude=3.0), -1, 1)), Reason.AUDIO_CLIPPED),
        (encode(np.clip(tone(amplitude=3.0), -1, 1), subtype="PCM_U8"), Reason.AUDIO_CLIPPED),
        (encode(tone())[:-1_000], Reason.AUDIO_UNREADABLE),
        (encode(tone(), kind="RF64")[:-1_000], Reason.AUDIO_UNREADABLE),
        (encode(tone(2.0), kind="FLAC")[:-5_000], Reason.AUDIO_UNREADABLE),
        (encode(tone(2.0), kind="OGG", subtype="VORBIS")[:-3_000], Reason.AUDIO_UNREADABLE),
        (encode(tone(2.0), kind="OGG", subtype="VORBIS")[:-1], Reason.AUDIO_UNREADABLE),
    ],
)
def test_what_is_wrong_has_its_reason(source, reason):
    assert reason_of(source) == reason


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        *[(kind, "PCM_16") for kind in ("AIFF", "AU", "CAF", "IRCAM", "NIST", "PAF", "SDS", "VOC", "W64", "SVX")],
        *[("WAV", codec) for codec in ("IMA_ADPCM", "MS_ADPCM", "GSM610", "G721_32")],
    ],
)
@pytest.mark.parametrize("tag", [b"", b"ID3\x04\0\0\0\0\0\x03abc"], ids=["", "ID3"])
def test_other_containers_and_codecs_are_refused_and_nothing_is_printed(kind, subtype, tag, capfd, tmp_path):
    rate = 8_000 if subtype == "GSM610" else RATE
    source = tag + encode(tone(rate=rate), rate, kind, subtype)
    (tmp_path / "clip.wav").write_bytes(source)
    assert reason_of(source) == Reason.AUDIO_UNREADABLE
    with pytest.raises(AudioError, match=r"it begins with|the codec \S+ is not supported"):
        read_sound_length(tmp_path / "clip.wav")
    assert capfd.readouterr() == ("", "")


def test_a_flac_file_from_a_pipe_has_no_length(tmp_path):
    source = bytearray(encode(tone(2.0), kind="FLAC"))
    source[21] &= 0xF0
    source[22:26] = bytes(4)  # the rest of the 36 bits that count the samples
    (tmp_path / "clip.flac").write_bytes(source)
    found = "the header does not say its length, as in a FLAC file from a pipe: convert it"
    with pytest.raises(AudioError, match=f"clip: {found}"):
        decode_wave(bytes(source), AUDIO, LIMITS, "clip")
    with pytest.raises(AudioError, match=found):
        read_sound_length(tmp_path / "clip.flac")


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (b"\0\0\0\x1cftypM4A \0\0", "an MP4 or M4A file"),
        (b"FORM\0\0\0\0AIFF", "it begins with 'FORM'"),
        (b"\xff\xf1\x50\x80", r"it begins with '\xff\xf1P\x80'"),
    ],
)
def test_a_format_that_is_not_read_is_to_be_converted(start, found):
    with pytest.raises(AudioError) as raised:
        decode_wave(start + bytes(100), AUDIO, LIMITS, "clip")
    expected = "expected WAV, FLAC, OGG or MP3: convert it to WAV or FLAC, such as by ffmpeg"
    assert str(raised.value) == f"clip: cannot be decoded ({found}); {expected}"


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        *((b"", kind) for kind in ("WAV", "RF64", "FLAC", "MP3", "OGG")),
        *((b"ID3\x04\0\0\0\0\0\x03abc", kind) for kind in ("FLAC", "MP3")),
    ],
)
def test_the_length_in_a_header_is_that_of_the_wave(tag, kind, tmp_path):
    source = tag + encode(tone(1.0), kind=kind, subtype=None)
    (tmp_path / "clip").write_bytes(source)
    assert read_sound_length(tmp_path / "clip") == (len(decode_wave(source, AUDIO, LIMITS, "clip")), RATE)


@pytest.mark.parametrize("value", [1e30, -1e30, 20.0])
def test_a_sample_far_over_full_scale_is_found(value):
    wave = tone()
    wave[77] = value
    assert reason_of(encode(wave, subtype="FLOAT")) == Reason.AUDIO_OUT_OF_RANGE


def test_floating_point_samples_slightly_over_full_scale_are_kept():
    wave = tone()
    wave[77] = 1.5
    np.testing.assert_allclose(decode_wave(encode(wave, subtype="FLOAT"), AUDIO, LIMITS, "clip"), wave, atol=1e-6)


@pytest.mark.parametrize("subtype", ["PCM_16", "FLOAT"])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_a_constant_offset_is_no_sound(subtype, noise):
    wave = 0.25 + noise * tone()
    assert reason_of(encode(wave, subtype=subtype)) == Reason.AUDIO_CONSTANT


def test_silence_is_called_silence():
    with pytest.raises(AudioError, match=r"^clip: silence, which is under limits\.min_peak_db=-60$"):
        decode_wave(wav_header(20_000) + bytes(20_000), AUDIO, LIMITS, "clip")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_found(bad):
    wave = tone()
    wave[77] = bad
    with pytest.raises(AudioError, match="sample 77 is") as raised:
        decode_wave(encode(wave, subtype="FLOAT"), AUDIO, LIMITS, "clip")
    assert raised.value.reason == Reason.AUDIO_NOT_FINITE


@pytest.mark.parametrize("seconds", [100, 150])
def test_a_clip_that_is_too_short_to_segment_is_to_be_split_by_other_means(seconds: int):
    with pytest.raises(AudioError, match="raise the limit, or split the clip") as raised:
        decode_wave(wav_header(seconds * RATE * 2), AUDIO, LimitsConfig(max_seconds=20.0), "clip")
    assert ("xtts segment" in str(raised.value)) == (seconds == 150)


@pytest.mark.parametrize("read", [lambda path: decode_wave(path.read_bytes(), AUDIO, LIMITS, ""), read_sound_length])
def test_an_empty_file_has_0_bytes(read: Callable[[Path], object], tmp_path: Path):
    (tmp_path / "clip.wav").touch()
    with pytest.raises(AudioError, match="the file has 0 bytes; expected a sound file"):
        read(tmp_path / "clip.wav")


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_limits_hold_for_the_duration_in_the_file(kind):
    source = encode(tone(1.0, 16_000), 16_000, kind)
    decode_wave(source, AUDIO, LimitsConfig(max_seconds=1.0, min_seconds=1.0), "clip")
    assert reason_of(source, LimitsConfig(max_seconds=0.999)) == Reason.AUDIO_TOO_LONG
    assert reason_of(source, LimitsConfig(min_seconds=1.001)) == Reason.AUDIO_TOO_SHORT


def test_a_full_scale_tone_is_not_taken_for_clipped():
    decode_wave(encode(tone(amplitude=1.0)), AUDIO, LIMITS, "clip")


def test_a_header_that_promises_ten_hours_takes_no_memory(monkeypatch):
    # STREAMINFO holds the number of samples in 36 bits from its 13th byte and a half.
    source = bytearray(encode(tone(), kind="FLAC"))
    samples = 10 * 3_600 * RATE
    source[21] = (source[21] & 0xF0) | (samples >> 32)
    source[22:26] = struct.pack(">I", samples & 0xFFFFFFFF)
    monkeypatch.setattr(soundfile.SoundFile, "read", lambda *_, **__: pytest.fail("samples were decoded"))
    assert reason_of(bytes(source)) == Reason.AUDIO_TOO_LONG


@pytest.mark.parametrize(
    ("normalize", "level"),
    [
        ("peak", lambda wave: 20 * np.log10(np.abs(wave).max())),
        ("rms", lambda wave: 10 * np.log10(np.mean(np.square(wave)))),
    ],
)
@pytest.mark.parametrize("amplitude", [0.01, 0.9])
def test_normalising_brings_clips_to_one_level(normalize, level: Callable[[np.ndarray], float], amplitude):
    audio = AudioConfig(normalize=normalize, normalize_to_db=-23.0)
    assert level(decode_wave(encode(tone(amplitude=amplitude)), audio, LIMITS, "clip")) == pytest.approx(-23, abs=0.05)


@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_lufs_of_long_and_short_clips(seconds):
    audio = AudioConfig(normalize="lufs", normalize_to_db=-20.0)
    loud = decode_wave(encode(tone(seconds, hz=997, amplitude=0.9)), audio, LIMITS, "clip")
    quiet = decode_wave(encode(tone(seconds, hz=997, amplitude=0.09)), audio, LIMITS, "clip")
    np.testing.assert_allclose(loud, quiet, atol=1e-3)
    # A 997 Hz sine of full scale has -3.01 LUFS by definition.
    assert 20 * np.log10(np.abs(loud).max()) - 3.01 == pytest.approx(-20, abs=0.3)


def test_normalising_never_clips():
    peaky = tone(amplitude=0.001)
    peaky[100] = 0.9
    wave = decode_wave(encode(peaky), AudioConfig(normalize="rms", normalize_to_db=0.0), LIMITS, "clip")
    assert np.abs(wave).max() == pytest.approx(1.0, abs=1e-6)


def test_load_wave_reads_a_file_and_misses_it_by_name(tmp_path):
    (tmp_path / "a.wav").write_bytes(encode(tone()))
    assert len(load_wave(tmp_path / "a.wav", AUDIO, LIMITS)) == len(tone())
    with pytest.raises(AudioError, match=r"b\.wav: no such file") as raised:
        load_wave(tmp_path / "b.wav", AUDIO, LIMITS)
    assert raised.value.reason == Reason.AUDIO_MISSING
    os.mkfifo(tmp_path / "pipe.wav")
    for path in (tmp_path, tmp_path / "pipe.wav", Path("/dev/zero")):
        with pytest.raises(AudioError, match="cannot be read"):
            load_wave(path, AUDIO, LIMITS)


SOUNDS = [
    encode(tone(0.3)),
    encode(tone(0.3), subtype="PCM_24"),
    encode(tone(0.3), subtype="FLOAT"),
    encode(tone(0.3), subtype="IMA_ADPCM"),
    encode(tone(0.3), kind="WAVEX"),
    encode(tone(0.3), kind="FLAC"),
    encode(tone(0.3), kind="OGG", subtype="VORBIS"),
    encode(tone(0.3), 24_000, kind="OGG", subtype="OPUS"),
    encode(tone(0.3), kind="MP3", subtype="MPEG_LAYER_III"),
    encode(tone(0.3), kind="AIFF"),
]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), source=st.sampled_from(SOUNDS))
def test_garbled_files_are_decoded_or_refused_but_never_crash(data, source):
    garbled = bytearray(source)
    # Damage gathers where it hurts: in the headers.
    places = st.one_of(st.integers(0, min(127, len(source) - 1)), st.integers(0, len(source) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        garbled[place] = value
    cut = data.draw(st.one_of(st.just(len(garbled)), st.integers(0, len(garbled))))
    try:
        wave = decode_wave(bytes(garbled[:cut]), AUDIO, LIMITS, "clip")
    except AudioError as error:
        assert error.detail.startswith("clip: ")  # noqa: PT017 (sound that still decodes is as good)
    else:
        assert wave.dtype == np.float32
        assert np.isfinite(wave).all()
        assert 0 < len(wave) <= LIMITS.max_seconds * AUDIO.sample_rate


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"FORM"]))
def test_noise_is_refused(noise, magic):
    with pytest.raises(AudioError):
        decode_wave(magic + noise, AUDIO, LIMITS, "clip")

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import build, make_config, write_clip, write_corpus, write_metadata
from tests.data.sounds import survey, surveyed_and_built, tone, write_mixed_corpus
from tests.json_lines import read_json_lines
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.data.features import check_headers
from xtts_pipeline.data.survey import Survey
from xtts_pipeline.errors import ConfigError, CorpusError, XttsError

SAME = (
    "fingerprint",
    "fields",
    "symbols",
    "speakers",
    "languages",
    "layout",
    "counts",
    "rejected_by_reason",
    "statistics",
    "buckets",
)


def assert_same(found: Survey, cache: Manifest) -> None:
    for name in SAME:
        assert getattr(found.manifest, name) == getattr(cache, name), name
    places = [
        [(shard.name, shard.split, shard.records, shard.bucket) for shard in of.shards]
        for of in (found.manifest, cache)
    ]
    assert places[0] == places[1]


def spoil(data: Path) -> None:
    """Give a corpus one clip for each rejection by decoding, and rows that reading rejects."""
    wavs = data / "wavs"
    (wavs / "clip-001.wav").unlink()
    (wavs / "clip-002.wav").write_bytes(b"RIFF no sound")
    (wavs / "clip-003.wav").write_bytes((wavs / "clip-003.wav").read_bytes()[:1000])
    soundfile.write(wavs / "clip-004.wav", np.zeros(4_000), 8_000, "PCM_16")
    soundfile.write(wavs / "clip-005.wav", np.sign(tone(0.5, 8_000)), 8_000, "PCM_16")
    write_clip(data, "clip-006", seconds=0.05)
    write_clip(data, "clip-007", seconds=3.0)
    write_metadata(data, 40, changed={8: "", 9: "a text that is far too long for forty tokens in a record"})


@pytest.mark.parametrize(
    "overrides",
    [(), ("audio.trim_db=20.0", "audio.normalize=rms"), ("data.buckets=[[20,35],[40,80]]",), ("data.buckets=auto",)],
    ids=["plain", "trimmed", "buckets", "auto"],
)
def test_a_survey_equals_the_manifest_of_the_cache(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    data = write_mixed_corpus(tmp_path / "corpus")
    spoil(data)
    found, cache, _ = surveyed_and_built(data, tmp_path / "cache", *overrides)
    assert cache.counts.rejected == 9
    assert_same(found, cache)
    written = read_json_lines(tmp_path / "cache" / "rejected.jsonl")
    assert [rejection.to_json() for rejection in found.rejections] == written


def test_a_small_corpus_gets_the_same_validation_clip(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "corpus", 5)
    found, cache, _ = surveyed_and_built(data, tmp_path / "cache", "cache.validation_share=0.01")
    assert cache.split_records("val") == 1
    assert_same(found, cache)
    lines = read_json_lines(tmp_path / "cache" / "utterances.jsonl")
    assert [clip.row.id for clip in found.clips] == [line["id"] for line in lines]
    assert [clip.frames for clip in found.clips] == [line["frames"] for line in lines]


@pytest.mark.parametrize(
    ("kind", "subtype", "found"),
    [("WAV", "PCM_24", "24 bits in format 0x1"), ("WAV", "FLOAT", "32 bits"), ("FLAC", "PCM_16", "FLAC")],
)
def test_sound_other_than_16_bit_wav_is_an_error(tmp_path: Path, kind: str, subtype: str, found: str) -> None:
    data = write_corpus(tmp_path, 4)
    soundfile.write(data / "wavs" / "clip-002.wav", tone(0.4, 8_000), 8_000, subtype, format=kind)
    assert build(data, tmp_path / "cache").manifest.counts.rejected == 0
    with pytest.raises(
        CorpusError, match=rf"clip-002.wav: found .*{found}.*, expected 16-bit PCM WAV for --data; .* xtts preprocess"
    ):
        survey(data, make_config())


def with_extensible_header(wav: bytes) -> bytes:
    """Return a WAV with the extensible format chunk, which libsndfile reads and TensorFlow does not."""
    guid = struct.pack("<HHI", 22, 16, 4) + struct.pack("<H", 1) + bytes.fromhex("000000001000800000aa00389b71")
    body = b"WAVE" + b"fmt " + struct.pack("<I", 40) + struct.pack("<H", 0xFFFE) + wav[22:36] + guid + wav[36:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def with_odd_chunk(wav: bytes) -> bytes:
    return wav[:36] + b"LIST" + struct.pack("<I", 3) + b"abc\0" + wav[36:]


@pytest.mark.parametrize("spoilt", [with_extensible_header, with_odd_chunk])
def test_a_header_that_tensorflow_cannot_read_is_an_error(tmp_path: Path, spoilt) -> None:
    data = write_corpus(tmp_path, 4)
    check_headers(survey(data, make_config()).clips)
    path = data / "wavs" / "clip-003.wav"
    path.write_bytes(spoilt(path.read_bytes()))
    clips = survey(data, make_config()).clips
    with pytest.raises(
        CorpusError, match=r"clip-003.wav: TensorFlow does not read its header \(.+\), expected a plain one"
    ):
        check_headers(clips)


def test_a_corpus_of_which_nothing_can_be_used_is_an_error_that_names_the_first_row(tmp_path: Path) -> None:
    data = write_corpus(tmp_path, 4)
    found = r"none of its 4 rows can be used; the first is clip-000, .*: .* are over limits.max_text_length=3; "
    with pytest.raises(CorpusError, match=found):
        survey(data, make_config("limits.max_text_length=3"))


@pytest.mark.parametrize("channels", [3, 6])
def test_headers_of_any_number_of_channels_are_read(tmp_path: Path, channels: int) -> None:
    data = write_corpus(tmp_path, 4)
    sound = np.stack([tone(0.4, 8_000)] * channels, axis=1)
    soundfile.write(data / "wavs" / "clip-002.wav", sound, 8_000, "PCM_16")
    check_headers(survey(data, make_config()).clips)


def test_a_wav_of_unknown_length_is_an_error(tmp_path: Path) -> None:
    data = write_corpus(tmp_path, 4)
    path = data / "wavs" / "clip-001.wav"
    path.write_bytes(path.read_bytes()[:40] + b"\xff\xff\xff\xff" + path.read_bytes()[44:])
    with pytest.raises(CorpusError, match="does not say its length"):
        survey(data, make_config())


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (("audio.normalize=lufs",), "audio.normalize: found lufs, expected none, peak or rms with --data"),
        (("data.cache_features=true", "augmentation.gain_db=3.0"), "data.cache_features: found true with augmentation"),
    ],
)
def test_an_unsupported_setting_is_an_error(tmp_path: Path, overrides: tuple[str, ...], line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        survey(write_corpus(tmp_path, 4), make_config(*overrides))
    assert isinstance(caught.value, XttsError)
    assert caught.value.exit_code == 2

"""`xtts inspect`: one record as text, picture and sound."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import SAMPLE_RATE, build, make_config, write_corpus
from xtts_pipeline.cli.commands.looking.inspect import inspect_record
from xtts_pipeline.errors import CacheError, OutputError


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inspect")
    build(write_corpus(root / "data"), root / "cache")
    return root / "cache"


def test_a_record_is_shown_as_symbols_picture_and_sound(cache: Path, tmp_path: Path) -> None:
    report = inspect_record(cache, "clip-030", tmp_path / "out")

    assert report.symbols == ("<begin>", *"this is clip thirty", "<end>")
    assert len(report.record.tokens) == len(report.symbols)
    assert (tmp_path / "out" / "mel.png").stat().st_size > 5_000
    wave, rate = soundfile.read(tmp_path / "out" / "sound.wav")
    loudest_hz = np.abs(np.fft.rfft(wave)).argmax() * rate / len(wave)
    assert rate == SAMPLE_RATE
    assert len(wave) == (len(report.record.mel) - 1) * 128
    assert loudest_hz == pytest.approx(500, abs=120)  # eight mel bins tell no more
    assert json.loads(json.dumps(report.to_json()))["mel_length"] == len(report.record.mel)
    assert report.to_text().startswith("clip-030: ")
    assert " <begin> t h i s ␣ i s ␣ " in report.to_text()


def test_an_unknown_id_is_an_error_with_the_nearest_one(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"no utterance 'clip-030x' among 40; .* did you mean clip-030\?"):
        inspect_record(cache, "clip-030x", tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OutputError, match="cannot be written"):
        inspect_record(cache, "clip-030", tmp_path / "file")


def test_a_record_of_any_bucket_is_shown(cache: Path, tmp_path: Path) -> None:
    build(cache.parent / "data", tmp_path / "cache", make_config("data.buckets=[[24,22],[32,28],[40,80]]"))
    reports = [inspect_record(tmp_path / "cache", f"clip-{number:03d}", tmp_path / "out") for number in (0, 15, 30)]

    assert [report.entry.shard.split("-")[-1] for report in reports] == [
        f"bucket{bucket}.tfrecord" for bucket in range(3)
    ]
    for report in reports:
        plain = inspect_record(cache, report.entry.id, tmp_path / "plain")
        assert (report.record.tokens.tolist(), len(report.record.mel), report.mel_range) == (
            plain.record.tokens.tolist(),
            len(plain.record.mel),
            plain.mel_range,
        )


def test_a_listing_cannot_name_a_file_outside_of_the_cache(cache: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(cache, tmp_path / "cache")
    os.mkfifo(tmp_path / "pipe")
    listing = copy / "utterances.jsonl"
    listing.write_text(
        listing.read_text().replace('"shard":"train-', '"shard":"../pipe-').replace("-00000-of-00001.tfrecord", "")
    )
    with pytest.raises(CacheError):
        inspect_record(copy, "clip-030", tmp_path / "out")

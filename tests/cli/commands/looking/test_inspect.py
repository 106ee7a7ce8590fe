"""`xtts inspect`: one record as text, picture and sound."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.cache.corpora import SAMPLE_RATE, build, make_config, write_corpus
from tests.calling import xtts
from xtts_pipeline.cli.commands.looking.inspect import inspect_record
from xtts_pipeline.errors import CacheError, ConfigError, OutputError


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


def listed(cache: Path, *words: str) -> list[str]:
    result = xtts("inspect", "--cache", cache, *words)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_utterances_are_listed_by_id_or_rate_or_as_a_sample(cache: Path) -> None:
    rows = [line.split("\t") for line in listed(cache, "--list")]
    assert [row[0] for row in rows] == [f"clip-{number:03d}" for number in range(40)]
    assert rows[30] == ["clip-030", "0.450", f"{len('this is clip thirty') / 0.45:.2f}", "this is clip thirty"]
    rates = {row[0]: float(row[2]) for row in rows}
    slowest = [line.split("\t")[0] for line in listed(cache, "--slowest", "40")]
    assert [rates[id] for id in slowest] == sorted(rates.values())
    assert json.loads(listed(cache, "--fastest", "2", "--json")[0])[1]["id"] == slowest[-2]
    smaller, larger = (set(listed(cache, "--sample", count)) for count in ("5", "9"))
    assert (len(smaller), len(larger), smaller < larger) == (5, 9, True)


@pytest.mark.parametrize("words", [[], ["--list", "--sample", "2"]])
def test_one_way_to_choose_utterances_is_needed(cache: Path, words: list[str]) -> None:
    error = xtts("inspect", "--cache", cache, *words).exception
    assert isinstance(error, ConfigError)
    assert "give one" in str(error)


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

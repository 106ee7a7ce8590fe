"""`xtts stats`: the same figures from headers and from the cache, and a picture of them."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from tests.cache.corpora import build, make_config, write_corpus
from tests.calling import xtts
from xtts_pipeline.cache.build import shapes
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cli.commands.looking.stats import count_symbols, measure_lengths
from xtts_pipeline.config.load import load_config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, ConfigError, CorpusError, OutputError


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stats")
    build(write_corpus(root / "data"), root / "cache")
    return root


def test_the_figures_of_the_headers_are_those_of_the_cache(root: Path) -> None:
    by_header = measure_lengths(root / "data", None, make_config(), None).to_json()
    by_cache = measure_lengths(None, root / "cache", make_config(), None).to_json()

    assert {**by_header, "source": ""} == {**by_cache, "source": ""}


def test_figures_are_those_of_the_corpus(root: Path) -> None:
    report = measure_lengths(root / "data", None, make_config(), None)
    result = report.to_json()

    seconds = [round((0.3 + 0.005 * number) * 8_000) / 8_000 for number in range(40)]
    assert result["clips"] == 40
    assert result["speakers"] == 1
    assert result["hours"] == round(sum(seconds) / 3600, 4)
    assert result["seconds"]["max"] == pytest.approx(max(seconds), abs=1e-4)  # type: ignore[index]
    assert result["frames"]["min"] == 1 + 2_400 // 128  # type: ignore[index]
    assert result["characters"]["max"] + 2 == result["tokens"]["max"]  # type: ignore[index]
    assert {"limit": "max_mel_frames", "value": 80, "keeps": 1.0, "in_force": True} in result["limits"]  # type: ignore[operator]
    assert report.everything.kept == 40


def test_the_table_names_the_recommendation(root: Path) -> None:
    report = measure_lengths(None, root / "cache", make_config(), None)
    shape = report.plans[0].shapes[0]

    assert f"{shape.max_text_length} x {shape.max_mel_frames}" in next(
        line for line in report.to_text().splitlines() if line.startswith("  recommended")
    )
    options = f"--set limits.max_text_length={shape.max_text_length} --set limits.max_mel_frames={shape.max_mel_frames}"
    assert f"  as options   {options}" in report.to_text().splitlines()


def test_the_table_of_lengths_fits_in_80_columns(root: Path) -> None:
    report = measure_lengths(None, root / "cache", make_config(), None)
    table = report.to_text().split("\n\n")[1].splitlines()

    assert [line.split()[0] for line in table] == ["min", *report.spreads]
    assert max(map(len, table)) <= 80


def test_rows_without_sound_are_counted(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 6)
    (data / "wavs" / "clip-002.wav").write_bytes(b"no sound")
    (data / "wavs" / "clip-003.wav").unlink()

    report = measure_lengths(data, None, make_config(), None)

    assert (report.clips, report.unusable) == (4, 2)
    assert report.to_text().splitlines()[1].startswith("  metadata.csv:3: audio_unreadable, wavs/clip-002.wav: ")
    assert count_symbols(data, None, make_config()).to_text().startswith(f"{data}: 5 texts, ")


def test_the_plot_is_a_picture(root: Path) -> None:
    report = measure_lengths(None, root / "cache", make_config(), root / "plots" / "lengths.png")

    assert report.to_json()["plot"] == str(root / "plots" / "lengths.png")
    assert report.to_text().splitlines()[-1] == f"picture  {root / 'plots' / 'lengths.png'}"
    assert matplotlib.image.imread(root / "plots" / "lengths.png").std() > 0.05


def test_the_picture_marks_the_numbers_of_the_table(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed: dict[str, Mapping[str, float]] = {}
    drawn: dict[str, object] = {}

    def keep(_path: Path, title: str, measures: Mapping[str, np.ndarray], marks: Any, limits: Any) -> None:
        assert list(measures) == list(marks)
        handed.update(marks)
        drawn.update(limits, title=title)

    monkeypatch.setattr("xtts_pipeline.cli.commands.looking.stats.save_histograms", keep)
    report = measure_lengths(None, root / "cache", make_config(), root / "lengths.png")

    assert handed == {name: {"p50": table.p50, "p99": table.p99} for name, table in report.spreads.items()}
    assert list(handed) == ["seconds", "frames", "characters", "tokens", "characters_per_second"]
    assert drawn == {
        "title": f"{root / 'cache'}: {report.clips} clips, {report.hours:.2f} h",
        "seconds": {"min_seconds": 0.1, "max_seconds": 60.0},
        "frames": {"max_mel_frames": 80},
        "tokens": {"max_text_length": 40},
    }


def test_a_plot_that_cannot_be_written_is_an_error(root: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        measure_lengths(None, root / "cache", make_config(), root / "data" / "metadata.csv" / "lengths.png")


def test_given_limits_override_those_of_the_cache(root: Path) -> None:
    report = measure_lengths(None, root / "cache", load_config(overrides=["limits.max_mel_frames=30"]), None)
    shares = {(limit.limit, limit.value): limit.share for limit in report.limits}

    frames = [1 + round((0.3 + 0.005 * number) * 8_000) // 128 for number in range(40)]
    assert shares["max_mel_frames", 30] == sum(count <= 30 for count in frames) / 40
    assert ("max_text_length", 40) in shares  # the cache's own
    assert ("max_mel_frames", 80) not in shares


def test_the_limits_in_force_are_marked(root: Path) -> None:
    report = measure_lengths(None, root / "cache", load_config(overrides=["limits.max_mel_frames=30"]), None)
    marked = [line.split()[:2] for line in report.to_text().splitlines() if line.endswith("  in force")]

    assert marked == [
        ["limits.min_seconds", "0.1"],
        ["limits.max_seconds", "60"],
        ["limits.max_text_length", "40"],
        ["limits.max_mel_frames", "30"],
    ]


def test_a_cache_in_place_of_a_corpus_is_named(root: Path) -> None:
    error = xtts("stats", "--data", root / "cache").exception
    assert isinstance(error, CorpusError)
    assert "cache: is a cache, expected a corpus; name a cache with --cache, a corpus with --data" in str(error)


def test_settings_that_would_change_the_cached_lengths_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"audio.hop_samples is 64, the cache was made with 128; .* --data DIR"):
        measure_lengths(None, root / "cache", load_config(overrides=["audio.hop_samples=64"]), None)


def test_a_layout_is_for_a_corpus_only(root: Path) -> None:
    assert measure_lengths(root / "data", None, make_config(), None, ReadOptions("ljspeech")).clips == 40
    with pytest.raises(CorpusError):
        measure_lengths(root / "data", None, make_config(), None, ReadOptions("vctk"))
    with pytest.raises(ConfigError, match="--layout ljspeech is for a corpus"):
        measure_lengths(None, root / "cache", make_config(), None, ReadOptions("ljspeech"))


def test_counts_of_one_are_singular(root: Path, tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 2)
    (data / "wavs" / "clip-001.wav").unlink()

    assert (
        measure_lengths(data, None, make_config(), None)
        .to_text()
        .startswith(f"{data}: 1 clip, 0.00 hours, 1 speaker, 1 row cannot be used")
    )
    assert ": 40 clips, " in measure_lengths(root / "data", None, make_config(), None).to_text()


def test_input_that_cannot_be_measured_is_an_error(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of --data DIR and --cache DIR"):
        measure_lengths(root / "data", root / "cache", make_config(), None)
    with pytest.raises(CacheError):
        measure_lengths(None, tmp_path, make_config(), None)
    (tmp_path / "metadata.csv").write_text("clip-0|x|hello\n")
    (tmp_path / "wavs").mkdir()
    with pytest.raises(CorpusError, match="0 of 1 rows"):
        measure_lengths(tmp_path, None, make_config(), None)


def test_a_pipe_in_place_of_sound_is_not_waited_on(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 4)
    (data / "wavs" / "clip-002.wav").unlink()
    os.mkfifo(data / "wavs" / "clip-002.wav")

    assert measure_lengths(data, None, make_config(), None).unusable == 1


def test_a_pipe_in_place_of_the_listing_is_an_error(tmp_path: Path) -> None:
    build(write_corpus(tmp_path / "data", 4), tmp_path / "cache")
    (tmp_path / "cache" / "utterances.jsonl").unlink()
    os.mkfifo(tmp_path / "cache" / "utterances.jsonl")

    with pytest.raises(CacheError, match=r"utterances.jsonl: cannot be read \(no regular file\)"):
        measure_lengths(None, tmp_path / "cache", make_config(), None)


def test_the_padding_of_each_bucket_is_shown(root: Path, tmp_path: Path) -> None:
    buckets = make_config("data.buckets=[[24,22],[32,28],[40,80]]")
    build(root / "data", tmp_path / "cache", buckets)
    of_cache = measure_lengths(None, tmp_path / "cache", make_config(), None)
    of_corpus = measure_lengths(root / "data", None, buckets, None)

    assert measure_lengths(None, root / "cache", make_config(), None).buckets is None
    assert of_cache.buckets is not None
    assert of_corpus.buckets is not None
    assert (
        of_cache.buckets.clips
        == of_corpus.buckets.clips
        == tuple(
            load_manifest(tmp_path / "cache").split_records("train", bucket)
            + load_manifest(tmp_path / "cache").split_records("val", bucket)
            for bucket in range(3)
        )
    )
    assert of_cache.to_json()["buckets"] == of_corpus.to_json()["buckets"]
    assert (
        f"    [24, 22]: {of_cache.buckets.clips[0]} clips, padding {of_cache.buckets.wastes[0]:.1%}"
        in of_cache.to_text().splitlines()
    )


def test_buckets_for_a_cache_end_at_its_limits(root: Path) -> None:
    limits = load_manifest(root / "cache").limits
    largest = [limits.max_text_length, limits.max_mel_frames]
    words = ("stats", "--cache", root / "cache", "--set")
    assert xtts(*words, f"data.buckets=[[24,22],{largest}]").exit_code == 0
    found = xtts(*words, "data.buckets=[[24,22],[200,880]]").exception
    assert isinstance(found, ConfigError)
    assert f"the last one is [200, 880], expected the limits {largest}" in str(found)


def test_auto_shows_the_buckets_that_it_would_choose(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MIN_SHAPE_CLIPS", 4)
    chosen = measure_lengths(root / "data", None, make_config("data.buckets=auto"), None).buckets

    assert chosen is not None
    assert len(chosen.shapes) == 3
    assert chosen.shapes[-1] == shapes.Shape(40, 80)


def test_symbols_are_counted_with_an_example_and_rare_ones_are_marked(root: Path) -> None:
    of_corpus = count_symbols(root / "data", None, make_config()).to_json()
    of_cache = count_symbols(None, root / "cache", make_config())
    assert {**of_corpus, "source": ""} == {**of_cache.to_json(), "source": ""}

    counts = {symbol.symbol: symbol for symbol in of_cache.symbols}
    assert (counts["p"].count, counts["p"].example, counts["p"].mark) == (40, "clip-000", "")
    text = of_cache.to_text().splitlines()
    assert f"{sum(symbol.count < 10 for symbol in of_cache.symbols)} rare (under 10 times)" in text[0]
    assert "'p'     U+0070         40          clip-000" in text
    assert all("rare" in line for line in text[3:] if len(line) > 20 and int(line.split("U+")[1].split()[1]) < 10)


def test_symbols_that_are_no_tokens_are_marked(root: Path) -> None:
    report = count_symbols(root / "data", None, make_config("text.symbols=this cln7"))
    assert {symbol.symbol: symbol.mark for symbol in report.symbols}["p"] == "unknown"
    assert report.unused == ("7",)


def test_symbols_of_a_cache_are_those_of_its_own_settings(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"text.lowercase is False, the cache was made with True; leave it out"):
        count_symbols(None, root / "cache", make_config("text.lowercase=false"))


def test_a_wrong_language_is_a_warning_on_stderr(root: Path) -> None:
    result = xtts("stats", "--data", root / "data", "--symbols", "--set", "text.language=russian", "--json")
    remedy = "add --set text.language=en, or another code for these letters"
    warning = f"language ru: 40 of 40 rows are in Latin letters; {remedy}"
    assert result.stderr == f"warning: {warning}\n"
    assert json.loads(result.stdout)["warnings"] == [warning]


def test_a_picture_of_symbols_is_refused(root: Path) -> None:
    refused = xtts("stats", "--data", root / "data", "--symbols", "--plot", root / "a.png")
    assert "leave one out" in str(refused.exception)

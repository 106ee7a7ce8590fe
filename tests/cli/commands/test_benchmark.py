"""The options, files and errors of `xtts benchmark`; the measurements are tested in tests/perf/benchmark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.calling import start_xtts, xtts
from tests.perf.corpora import write_corpus
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.cli.commands import benchmark as module
from xtts_pipeline.cli.commands.benchmark import BenchmarkSuite
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import ReadOptions
from xtts_pipeline.errors import CacheError, ConfigError, OutputError, StepError
from xtts_pipeline.perf.benchmark import preprocess
from xtts_pipeline.perf.benchmark.naive import write_shard
from xtts_pipeline.perf.benchmark.preprocess import measure_preprocess

WriteCache = Callable[..., Manifest]
NOTHING: dict[str, Any] = {
    "data": None,
    "configs": (),
    "overrides": (),
    "clips": None,
    "rounds": 1,
    "seconds": 0.1,
    "echo": False,
}


@pytest.mark.parametrize("name", ["preprocess", "input", "step", "all"])
def test_every_benchmark_explains_itself(name: str):
    ended = xtts("benchmark", name, "--help")

    assert ended.exit_code == 0
    assert all(option in ended.output for option in ("--cache", "--config", "--set", "--json", "--output"))
    assert ("--data" in ended.output) is (name != "step")
    assert ("--seconds" in ended.output) is (name in ("input", "all"))


def test_preprocess_needs_a_corpus_or_a_cache(tmp_path: Path):
    with pytest.raises(ConfigError, match="give --data DIR"):
        BenchmarkSuite(cache=tmp_path / "none", output=tmp_path / "out", **NOTHING).run("preprocess")
    assert not (tmp_path / "out").exists()


def test_options_of_a_corpus_need_a_corpus(tmp_path: Path, write_cache: WriteCache):
    write_cache(tmp_path / "cache")
    with pytest.raises(ConfigError, match="found options of a corpus without one; give --data DIR"):
        BenchmarkSuite(cache=tmp_path / "cache", output=tmp_path / "out", reading=ReadOptions("vctk"), **NOTHING).run(
            "preprocess"
        )


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, write_cache: WriteCache):
    write_cache(tmp_path / "cache")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "step.json").write_text("{}", encoding="utf-8")

    with pytest.raises(OutputError, match="not empty; choose another --output"):
        BenchmarkSuite(cache=tmp_path / "cache", output=tmp_path / "out", **NOTHING).run("step")


def test_settings_that_contradict_the_cache_are_refused(tmp_path: Path, write_cache: WriteCache):
    write_cache(tmp_path / "cache")
    given = {**NOTHING, "overrides": ("limits.max_mel_frames=25",)}

    with pytest.raises(CacheError, match=r"limits.max_mel_frames: the cache has 24, the config 25"):
        BenchmarkSuite(cache=tmp_path / "cache", output=tmp_path / "out", **given).run("step")


def test_all_requires_the_cache_before_the_first_measurement(tmp_path: Path):
    given = {**NOTHING, "data": write_corpus(tmp_path / "corpus", ["one"])}
    with pytest.raises(CacheError, match="expected a cache"):
        BenchmarkSuite(cache=tmp_path / "none", output=tmp_path / "out", **given).run("preprocess", "input", "step")
    assert not (tmp_path / "out").exists()


def test_all_refuses_before_the_first_measurement_a_cache_that_cannot_be_trained_on(
    tmp_path: Path, write_cache: WriteCache
):
    write_cache(tmp_path / "cache", train=3)
    given = {**NOTHING, "overrides": ("training.batch_size=4",)}
    suite = BenchmarkSuite(cache=tmp_path / "cache", output=tmp_path / "out", **given)
    with pytest.raises(CacheError, match=r"training\.batch_size=4"):
        suite.run("preprocess", "input", "step")
    (tmp_path / "cache" / "utterances.jsonl").unlink()
    with pytest.raises(CacheError, match=r"utterances\.jsonl"):
        suite.run("preprocess", "input", "step")
    assert not (tmp_path / "out").exists()


def test_all_preprocesses_the_corpus_with_the_settings_of_the_cache(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
):
    manifest, measured = write_cache(tmp_path / "cache"), []

    def stop(_corpus: Path, _clips: int, config: Config, *_: object, **__: object) -> None:
        measured.append(config)
        raise StepError("xtts preprocess", 1)

    monkeypatch.setattr(module, "measure_preprocess", stop)
    given = {**NOTHING, "data": write_corpus(tmp_path / "corpus", ["one"]), "overrides": ("training.batch_size=2",)}
    suite = BenchmarkSuite(cache=tmp_path / "cache", output=tmp_path / "out", **given)
    with pytest.raises(StepError):
        suite.run("preprocess", "input", "step")
    assert (measured[0].audio, measured[0].limits) == (manifest.audio, manifest.limits)


def test_rejected_clips_are_said_and_are_no_work(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
):
    def run_command(name: str, command: list[str]) -> dict[str, float]:
        if name == "xtts preprocess":
            write_cache(Path(command[command.index("--cache") + 1]), train=8, val=1)
        return {"seconds": 2.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(preprocess, "_run", run_command)
    said: list[str] = []
    measured = measure_preprocess(tmp_path / "corpus", 10, Config(), tmp_path, rounds=1, jobs=1, say=said.append)
    assert {name: row["clips_per_second"] for name, row in measured.variants.items()} == {
        "ours": 4.5,
        "ours, nothing changed": 4.5,
        "librosa": 5.0,
    }
    assert (measured.settings["clips"], measured.settings["rejected"]) == (10, 1)
    assert said[-1] == "warning: xtts preprocess rejected 1 of 10 clips; xtts preprocess --dry-run says why"


def test_the_naive_baseline_writes_every_clip(tmp_path: Path):
    corpus = write_corpus(tmp_path / "corpus", ["one", "two"])
    rows = (corpus / "metadata.csv").read_text(encoding="utf-8").splitlines()
    write_shard(rows, corpus, tmp_path / "0.tfrecord", Config())

    assert len(list(read_records(tmp_path / "0.tfrecord"))) == 2


def test_a_process_that_fails_is_an_error(tmp_path: Path):
    with pytest.raises(StepError, match="xtts preprocess: ended with exit code 2"):
        measure_preprocess(tmp_path / "missing", 1, Config(), tmp_path, rounds=1, jobs=1, say=lambda _: None)


@pytest.mark.slow
def test_input_as_a_program_prints_json_alone_and_writes_its_files(tmp_path: Path, write_cache: WriteCache):
    write_cache(tmp_path / "cache", train=9)
    words = ("--cache", tmp_path / "cache", "--output", tmp_path / "out", "--set", "training.batch_size=2", "--json")
    ended = start_xtts("benchmark", "input", *words, "--rounds", 1, "--seconds", 0.1, "--clips", 4)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)

    assert "ours/librosa" in found["ratios"]
    assert json.loads((tmp_path / "out" / "input.json").read_text(encoding="utf-8"))["ratios"] == found["ratios"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"input.json", "input.png", "tensorflow.log"}

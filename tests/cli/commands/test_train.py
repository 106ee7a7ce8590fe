"""The checks of `xtts train` before a run, its progress and its report. tests/training covers the training itself."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import tensorflow as tf

from tests.calling import start_xtts, xtts
from tests.cli.commands.conftest import SUMMARY, Killed, WriteCache, begin
from tests.damage import forged
from xtts_pipeline.cache.format.manifest import MANIFEST_NAME, load_manifest, manifest_bytes
from xtts_pipeline.cli import summary as summary_module
from xtts_pipeline.cli.commands import train as train_module
from xtts_pipeline.cli.run_options import cache_of_run
from xtts_pipeline.cli.summary import summary_text
from xtts_pipeline.config.schema import Config, TrainingConfig
from xtts_pipeline.errors import CacheError, CheckpointError, ConfigError, OutputError, TrainingError
from xtts_pipeline.training import loop
from xtts_pipeline.training.checkpoints.run_folder import locked_run
from xtts_pipeline.training.checkpoints.state import CHECKPOINT_VERSION
from xtts_pipeline.training.checks import describe_batches
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.distributed.cluster import Cluster
from xtts_pipeline.training.monitoring.startup import StartupTimer


def test_two_buckets_make_two_traces_and_two_compilations(tmp_path: Path, write_cache: WriteCache) -> None:
    manifest = write_cache(tmp_path / "cache", train=60, buckets=((9, 12), (16, 24)))
    batches = 12 // 8 + 48 // 4
    layers = ["encoder_layers=1", "decoder_layers=1", "flow_layers=1", "voice_latents=0"]
    model = [*layers, "width=16", "heads=2", "feedforward_width=16"]
    training = [
        "batch_size=4",
        f"steps={2 * batches}",
        f"evaluate_every={batches}",
        "sample_every_evaluations=null",
    ]
    # More workers than shards are read at once, as on a machine of many cores.
    settings = ["data.num_workers=16", "data.cache_records=false"]
    settings += [*(f"model.{setting}" for setting in model), *(f"training.{setting}" for setting in training)]
    words = ("--cache", tmp_path / "cache", "--output", tmp_path / "run", "--json")
    done = start_xtts("train", *words, *(f"--set={setting}" for setting in settings))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["by_function"] == {
        name: {"traces": 2, "compilations": 2} for name in ("train_step", "evaluate_step")
    }
    assert (summary["traces"], summary["compilations"]) == (4, 4)
    assert describe_batches(manifest, Config(training=TrainingConfig(batch_size=4)))[0] in done.stderr


def test_the_summary_shows_early_stopping_and_the_best_step() -> None:
    text = summary_text(Path("run"), SUMMARY)
    assert "steps          7 (stopped early), resumed 2 times, last after step 4" in text.splitlines()
    assert "step 5, validation loss 1.250" in text
    without = summary_text(Path("run"), {**SUMMARY, "stopped_early": False, "best": None})
    assert "stopped early" not in without
    assert "none: no evaluation's weights are in best/" in without
    speak = "xtts synthesize --run run --text 'Hello, world!' --output speech.wav"
    assert without.splitlines()[-1] == f"next           {speak}"
    assert ", resumed once, after step 2\n" in summary_text(Path("run"), {**SUMMARY, "resumed_at_steps": [2]})
    without_loss = summary_text(Path("run"), {**SUMMARY, "loss": {"first": None, "last": None}})
    assert "none finite -> none finite" in without_loss


@pytest.mark.parametrize(
    ("symbols", "text"), [("abdehlorw ,.!", "Hello, world!"), ("dehlorw ", "Hello world"), ("абвг ,!", "TEXT")]
)
def test_the_summary_suggests_a_text_that_the_run_can_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symbols: str, text: str
) -> None:
    state = SimpleNamespace(cache=SimpleNamespace(symbols=tuple(symbols)))
    monkeypatch.setattr(summary_module, "read_run_state", lambda _: state)
    (tmp_path / "checkpoints" / "step-00000007").mkdir(parents=True)
    speak = f"xtts synthesize --run {tmp_path} --text '{text}' --output speech.wav"
    assert summary_text(tmp_path, SUMMARY).splitlines()[-1] == f"next           {speak}"


def test_the_summary_of_a_vocoder_suggests_that_a_run_remembers_it() -> None:
    lines = summary_text(Path("run"), {**SUMMARY, "network": "vocoder"}).splitlines()
    assert lines[-1] == "next           xtts use-vocoder --run RUN --vocoder run"


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({}, True),
        ({"best": {"step": 5, "metric": "loss", "value": 1.0}}, False),
        ({"stopped_early": True}, False),
        ({"best": None}, False),
    ],
)
def test_the_summary_says_when_the_best_speech_is_long_past(changed: dict[str, object], shown: bool) -> None:
    early = {"steps": 7, "stopped_early": False, "best": {"step": 3, "metric": "loss", "value": 1.0}}
    lines = summary_text(Path("run"), {**SUMMARY, **early, **changed}).splitlines()
    line = "overfitting    none was better in the 4 steps since; try fewer training.steps, or more clips"
    assert [found for found in lines if found.startswith("overfitting")] == [line] * shown


def test_the_summary_shows_memory_and_the_time_of_the_first_step_as_the_log_does() -> None:
    memory = {"estimated_bytes": 1_840_000_000, "program_bytes": None, "peak_bytes": 2_000_000_000}
    startup = StartupTimer()
    startup.seconds |= {"import": 4.0, "compile": 14.3, "run": 1.0}
    text = summary_text(Path("run"), {**SUMMARY, "startup_seconds": startup.seconds, "memory": memory})
    assert "first step     done after 19 s (import 4.0, compile 14.3, run 1.0)" in text.splitlines()
    assert str(startup).startswith("first step done after 19 s, ")
    assert len(re.findall("first|1.5 s", text)) == 1
    without_a_step = {**SUMMARY, "startup_seconds": {"import": 4.0, "run": 0.0}, "memory": memory}
    assert "start          4 s (import 4.0)" in summary_text(Path("run"), without_a_step).splitlines()
    assert "memory         2.00 GB at most, estimated 1.84" in text.splitlines()


def test_a_run_killed_before_its_first_checkpoint_starts_with_the_same_weights_again(
    tmp_path: Path, write_cache: WriteCache, bases: list[Any]
) -> None:
    cache, run = tmp_path / "cache", tmp_path / "run"
    write_cache(cache)
    for options in (
        {"init_from": tmp_path / "base"},
        {"resume": True},
        {"resume": True, "init_from": tmp_path / "other"},
        {"resume": True},
    ):
        with pytest.raises(Killed):
            begin(cache, run, **options)
    assert [checkpoint.folder.name for checkpoint in bases] == ["base", "base", "other", "other"]


def test_a_run_without_a_base_starts_without_one_again(
    tmp_path: Path, write_cache: WriteCache, bases: list[Any]
) -> None:
    write_cache(tmp_path / "cache")
    for is_resumed in (False, True):
        with pytest.raises(Killed):
            begin(tmp_path / "cache", tmp_path / "run", resume=is_resumed)
    assert bases == [None, None]


def test_a_checkpoint_of_another_version_is_refused_with_the_reason(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    with forged(run / "checkpoints" / "step-00000001" / "state.json") as state:
        state["checkpoint_version"] = 1
    with pytest.raises(
        CheckpointError, match=rf"step-00000001: checkpoint version 1, expected {CHECKPOINT_VERSION}; train again"
    ):
        begin(cache, run, resume=True)


def test_a_checkpoint_of_another_cache_is_refused_with_the_reason(
    tmp_path: Path, stopped: tuple[Path, Path], write_cache: WriteCache
) -> None:
    cache, run = stopped
    manifest = load_manifest(cache)
    (cache / MANIFEST_NAME).write_bytes(manifest_bytes(replace(manifest, speakers=("anna", "carl"))))
    with pytest.raises(
        CheckpointError, match=r"was trained on another cache: speakers: the cache has 2, the run 2, or others of them"
    ):
        begin(cache, run, resume=True)
    write_cache(tmp_path / "larger", train=35)
    with pytest.raises(
        ConfigError, match=r"run: cache: the run has \"clips .*\", asked for is \"clips .*\"; .* --allow-change cache"
    ):
        begin(tmp_path / "larger", run, resume=True)


def test_a_cache_of_another_fingerprint_is_refused_though_all_settings_are_equal(stopped: tuple[Path, Path]) -> None:
    cache, run = stopped
    with forged(run / "checkpoints" / "step-00000001" / "state.json") as state:
        state["cache"]["fingerprint"] = "0" * 64
    with pytest.raises(CheckpointError, match=r"its buckets, its predicted mels or the version of its format \(finger"):
        begin(cache, run, resume=True)


def test_wrong_settings_are_refused_before_a_cache_is_copied_or_a_folder_made(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path / "cache")
    monkeypatch.setattr(train_module, "stage_cache", lambda *_: pytest.fail("copied"))
    refused = {
        "training.batch_size=100": "training records, but training.batch_size=100",
        "audio.hop_samples=111": "the cache was made with other settings: audio.hop_samples",
        "text.symbols=naïve": 'text.symbols: the cache has "corpus", the config "naïve"',
    }
    for setting, expected in refused.items():
        with pytest.raises(CacheError, match=expected):
            begin(tmp_path / "cache", tmp_path / "run", settings=[setting], stage=tmp_path / "staging")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize("place", ["", "run", "runs/first"])
def test_a_run_within_its_cache_is_refused(tmp_path: Path, write_cache: WriteCache, place: str) -> None:
    write_cache(tmp_path / "cache")
    with pytest.raises(OutputError, match="expected a folder apart from it"):
        begin(tmp_path / "cache", tmp_path / "cache" / place)


def test_a_foreign_file_in_the_folder_of_a_run_does_not_prevent_resuming(
    stopped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, run = stopped
    (run / "slurm-1.out").touch()
    monkeypatch.setattr(loop, "run", lambda _: {"steps": 2})
    begin(cache, run, resume=True)
    assert (run / "slurm-1.out").is_file()


def test_too_little_memory_is_one_line_with_the_settings_that_need_less(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(_: RunContext) -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    write_cache(tmp_path / "cache")
    monkeypatch.setattr(loop, "run", run_out)
    with pytest.raises(TrainingError, match=r"out of memory with training.batch_size=2 and .*accumulation_steps=1; "):
        begin(tmp_path / "cache", tmp_path / "run")


def test_a_batch_size_of_auto_is_refused_for_several_workers(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path / "cache")
    monkeypatch.setenv("TF_CONFIG", Cluster(("a:1", "b:2"), 0).to_tf_config())
    with pytest.raises(ConfigError, match="each worker would choose by its own memory"):
        begin(tmp_path / "cache", tmp_path / "run", settings=["training.batch_size=auto"])


@pytest.mark.parametrize(
    ("words", "workers", "message"),
    [
        ("--data d --stage s", 1, "--stage and --data: a corpus is not staged, expected a cache; leave one out"),
        ("--cache c", 2, "several workers: no run is named, expected one folder for all of them; add --output RUN"),
        ("--cache c --resume", 1, "--resume: no run is named, expected its folder; add --output RUN"),
        ("--cache c --allow-change data", 1, "--allow-change: a new run has nothing to change; leave it out, or add"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: str, workers: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = tuple(f"host-{number}:1" for number in range(workers))
    monkeypatch.setenv("TF_CONFIG", Cluster(addresses, 0).to_tf_config())
    with pytest.raises((click.UsageError, ConfigError, OutputError), match=message):
        xtts("train", *words.split(), standalone_mode=False, catch_exceptions=False)


def test_the_run_is_locked_before_settings_are_measured(
    tmp_path: Path, write_cache: WriteCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path / "cache")
    monkeypatch.setattr(train_module, "_tune", lambda *_: pytest.fail("measured"))
    (tmp_path / "run").mkdir()
    with locked_run(tmp_path / "run"), pytest.raises(OutputError, match="another process trains this run"):
        begin(tmp_path / "cache", tmp_path / "run", settings=["training.autotune=true"], resume=True)


def test_a_run_that_was_stopped_while_starting_is_started_by_the_same_command(
    tmp_path: Path, write_cache: WriteCache, bases: list[Any]
) -> None:
    cache, run = tmp_path / "cache", tmp_path / "run"
    write_cache(cache)
    for options in ({"init_from": tmp_path / "base"}, {}):
        with pytest.raises(Killed):
            begin(cache, run, **options)
    assert [base and base.folder.name for base in bases] == ["base", None]
    assert not (run / "init-from.txt").exists()
    (run / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(OutputError, match=r"not empty; .*, or go on with the run there by --resume"):
        begin(cache, run)


def test_a_copy_without_its_lock_of_a_run_killed_before_its_first_step_is_begun_anew(
    tmp_path: Path, write_cache: WriteCache, bases: list[Any]
) -> None:
    cache, run = tmp_path / "cache", tmp_path / "run"
    write_cache(cache)
    with pytest.raises(Killed):
        begin(cache, run)
    (run / "tensorflow.log").touch()
    (run / ".lock").unlink(missing_ok=True)
    with pytest.raises(Killed):
        begin(cache, run)
    assert len(bases) == 2


@pytest.mark.parametrize(
    ("speakers", "settings", "warns"),
    [
        (("ann", "ben"), (), True),
        (("ann", "ben"), ("model.voice_latents=32",), False),
        (("ann",), (), False),
    ],
)
def test_a_run_that_takes_over_a_network_without_cloning_says_so(
    tmp_path: Path,
    write_cache: WriteCache,
    bases: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    speakers: tuple[str, ...],
    settings: tuple[str, ...],
    warns: bool,
) -> None:
    manifest = replace(write_cache(tmp_path / "cache"), speakers=speakers)
    monkeypatch.setattr(train_module, "_read_manifest", lambda *_: manifest)
    monkeypatch.setattr(train_module, "read_settings", lambda *_: Config().with_settings("model", voice_latents=0))
    with pytest.raises(Killed):
        begin(tmp_path / "cache", tmp_path / "run", init_from=tmp_path / "base", settings=settings)
    warning = (
        f"warning: {tmp_path}/base has model.voice_latents=0, so the new run cannot clone voices; "
        "--set model.voice_latents=32 lets it\n"
    )
    assert (warning in capsys.readouterr().err) == warns
    assert len(bases) == 1


@pytest.mark.parametrize("name", ["config.yaml", "notes.txt"])
def test_a_file_of_the_user_in_the_output_folder_is_kept_and_refused_before_anything_is_printed(
    tmp_path: Path, write_cache: WriteCache, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write_cache(tmp_path / "cache")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text("training: {}\n")
    with pytest.raises(OutputError, match=r"run: this folder is not empty; choose another --output$"):
        begin(tmp_path / "cache", tmp_path / "run")
    assert capsys.readouterr() == ("", "")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]


def test_the_folder_of_a_run_is_refused_with_resume_as_the_remedy_before_anything_is_printed(
    stopped: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cache, run = stopped
    with pytest.raises(OutputError, match=r"not empty; choose another --output, or go on with the run there by --res"):
        begin(cache, run)
    assert capsys.readouterr() == ("", "")


def test_a_folder_that_is_no_run_is_not_resumed_and_refused_before_anything_is_printed(
    tmp_path: Path, write_cache: WriteCache, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cache(tmp_path / "cache")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    with pytest.raises(OutputError, match=r"holds notes.txt, expected a run and nothing else"):
        begin(tmp_path / "cache", tmp_path / "run", resume=True)
    assert capsys.readouterr() == ("", "")


def test_a_mistyped_run_to_resume_is_said_to_begin_and_the_similar_run_is_named(
    stopped: tuple[Path, Path], bases: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cache, run = stopped
    with pytest.raises(Killed):
        begin(cache, run.with_name("rnu"), resume=True)
    expected = f"--resume: no checkpoint in {run.with_name('rnu')}: beginning at step 0; did you mean {run}?"
    assert expected in capsys.readouterr().err.splitlines()
    assert bases == [None]


def test_a_run_names_its_cache(tmp_path: Path, write_cache: WriteCache, bases: list[Any]) -> None:
    write_cache(tmp_path / "cache")
    with pytest.raises(Killed):
        begin(tmp_path / "cache", tmp_path / "run")
    assert bases == [None]
    for path in (tmp_path / "run", tmp_path / "run" / "best", tmp_path / "run" / "checkpoints" / "step-00000001"):
        assert cache_of_run(path) == tmp_path / "cache"
    assert cache_of_run(None) == cache_of_run(tmp_path) == Path("cache")
    (tmp_path / "cache").rename(tmp_path / "moved")
    with pytest.raises(CacheError, match=r"its cache .*/cache is not on this machine; name a copy with --cache"):
        cache_of_run(tmp_path / "run")

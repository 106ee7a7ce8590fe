"""`xtts preprocess` as a process: killed, interrupted, short of a resource, or run twice."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from click.testing import Result

from tests.cache.build.test_pool import SABOTAGE
from tests.cache.corpora import SETTINGS, build, cache_bytes, write_clip, write_corpus, write_metadata
from tests.calling import xtts
from tests.waiting import WAIT_SECONDS, wait_until
from xtts_pipeline.audio.load import decode_wave
from xtts_pipeline.cache.build import pool, workers
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.cache.format.padding import padding_share
from xtts_pipeline.cache.verify.verify import verify_cache
from xtts_pipeline.errors import CacheError, CorpusError

# Many small shards: a run can be killed between any two of them.
SHARDS = ["--set", "cache.records_per_shard=2"]


def command(data: Path, cache: Path, *arguments: str) -> list[str]:
    options = ["--data", str(data), "--cache", str(cache), "--jobs", "1", *SETTINGS]
    return [sys.executable, "-m", "xtts_pipeline", "preprocess", *options, *arguments]


def run(data: Path, cache: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(data, cache, *arguments), capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, **options
    )  # type: ignore[call-overload,no-any-return]


def report(completed: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert completed.returncode in (0, 1), completed.stderr
    content = json.loads(completed.stdout)
    assert content["read"] == content["kept"] + content["rejected"]
    return content  # type: ignore[no-any-return]


def assert_one_line(completed: subprocess.CompletedProcess[str], exit_code: int, *words: str) -> None:
    assert completed.returncode == exit_code, completed.stderr
    assert completed.stderr.count("\n") == 1, completed.stderr
    assert all(word in completed.stderr for word in words), completed.stderr


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "data")


def test_two_jobs_give_the_bytes_of_one_thread_and_json_is_alone_on_stdout(data: Path, tmp_path: Path) -> None:
    content = report(run(data, tmp_path / "jobs", "--jobs", "2", "--json"))
    build(data, tmp_path / "thread")
    assert cache_bytes(tmp_path / "jobs") == cache_bytes(tmp_path / "thread")
    assert (content["read"], content["kept"], content["rejected"], content["shards_reused"]) == (40, 40, 0, 0)
    assert content["shards_written"] == len(load_manifest(tmp_path / "jobs").shards)
    assert content["seconds"] > 0.1  # type: ignore[operator]
    assert content["clips_per_second"] == pytest.approx(40 / content["seconds"], rel=0.05)  # type: ignore[operator]


def use_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run workers as one thread of this process; return a list that receives the number of workers asked for."""
    started: list[int] = []

    class Threads(ThreadPoolExecutor):
        def __init__(self, max_workers: int, **_: object) -> None:
            started.append(max_workers)
            super().__init__(1)

        def shutdown(self, **_: object) -> None:
            super().shutdown()

    monkeypatch.setattr(pool, "ProcessPoolExecutor", Threads)
    return started


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], object]]:
    """Call each function of this list with the name of a clip when it is decoded, in a thread of this process."""
    calls: list[Callable[[str], object]] = []

    def decode(source: bytes, audio: object, limits: object, name: str) -> object:
        for call in calls:
            call(Path(name).stem)
        return decode_wave(source, audio, limits, name)  # type: ignore[arg-type]

    use_threads(monkeypatch)
    monkeypatch.setattr(workers, "decode_wave", decode)
    return calls


def preprocess(data: Path, cache: Path, *options: str) -> Result:
    return xtts("preprocess", "--data", data, "--cache", cache, *SETTINGS, *options)


def replace_clip(data: Path, name: str, hz: float, times: Iterator[int]) -> None:
    path = write_clip(data, name, hz=hz)
    os.utime(path, ns=(0, next(times)))


@pytest.mark.parametrize("moment", ["clip-003", "clip-030"], ids=["while it is read", "later or earlier"])
def test_a_clip_that_changes_during_the_run_is_read_again(
    data: Path, tmp_path: Path, decoded: list[Callable[[str], object]], moment: str
) -> None:
    times = count(1_000_000_000)

    def change_once(name: str) -> None:
        if name == moment:
            decoded.clear()
            replace_clip(data, "clip-003", 777.0, times)

    decoded.append(change_once)
    assert preprocess(data, tmp_path / "during").exit_code == 0
    assert preprocess(data, tmp_path / "after").exit_code == 0
    assert cache_bytes(tmp_path / "during") == cache_bytes(tmp_path / "after")


def test_a_clip_that_keeps_changing_is_rejected_until_it_rests(
    data: Path, tmp_path: Path, decoded: list[Callable[[str], object]]
) -> None:
    times = count(1_000_000_000)
    decoded.append(lambda name: name == "clip-003" and replace_clip(data, name, 200.0 + next(times) % 99, times))
    ended = preprocess(data, tmp_path / "cache", "--json")
    assert json.loads(ended.output)["rejected_by_reason"] == {"changed_while_read": 1}
    assert verify_cache(tmp_path / "cache").valid
    decoded.clear()
    assert json.loads(preprocess(data, tmp_path / "cache", "--json").output)["kept"] == 40


def test_a_table_that_changes_during_the_run_ends_it_without_a_cache(
    data: Path, tmp_path: Path, decoded: list[Callable[[str], object]]
) -> None:
    decoded.append(lambda _name: write_metadata(data, 40, changed={3: "another text"}))
    ended = preprocess(data, tmp_path / "cache")
    assert isinstance(ended.exception, CorpusError)
    assert "metadata.csv: changed while the corpus was read; run again" in str(ended.exception)
    assert not (tmp_path / "cache" / "manifest.json").exists()
    decoded.clear()
    assert preprocess(data, tmp_path / "cache").exit_code == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["--jobs", "1000"], 6), (["--jobs", "2"], 2), ([], 1)],
    ids=["more jobs than shards", "fewer jobs than shards", "default"],
)
def test_there_are_no_more_workers_than_shards_and_by_default_than_usable_cores(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], expected: int
) -> None:
    started = use_threads(monkeypatch)
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        ended = preprocess(data, tmp_path / "cache", *options)
    finally:
        os.sched_setaffinity(0, usable)
    assert (ended.exit_code, started) == (0, [expected]), ended.output


def test_too_many_rejected_rows_end_with_1_and_a_complete_cache(data: Path, tmp_path: Path) -> None:
    for number in range(3):
        (data / "wavs" / f"clip-{number:03d}.wav").write_bytes(b"broken")
    completed = run(data, tmp_path / "cache")
    assert completed.returncode == 1
    assert "read 40 = kept 37 + rejected 3" in completed.stdout
    assert "over --max-rejected 5.00%" in completed.stdout
    assert "audio_unreadable" in completed.stdout
    assert load_manifest(tmp_path / "cache").counts.rejected == 3
    content = report(run(data, tmp_path / "cache", "--json", "--max-rejected", "10%"))
    assert content["rejected_by_reason"] == {"audio_unreadable": 3}
    assert (content["shards_written"], content["max_rejected"], content["is_over_max_rejected"]) == (0, 0.1, False)


def test_a_changed_setting_that_keeps_the_shards_does_not_say_that_they_were_written_anew(
    data: Path, tmp_path: Path
) -> None:
    kept, anew = "cache.records_per_shard", "audio.floor"
    assert run(data, tmp_path / "cache").returncode == 0
    for key, value, end in ((kept, "7", "the config 7"), (anew, "1e-4", "all shards were written anew")):
        content = report(run(data, tmp_path / "cache", "--set", f"{key}={value}", "--json"))
        (line,) = (line for line in content["warnings"] if line.startswith(f"changed setting: {key}"))  # type: ignore[union-attr]
        assert line.endswith(end)


def test_a_wrong_transcript_shows_as_a_warning_with_its_id(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "data", 30)
    write_clip(data, "clip-004", seconds=0.5)
    write_metadata(data, 30, changed={4: "hi"})
    content = report(run(data, tmp_path / "cache", "--json"))
    assert [outlier["id"] for outlier in content["outliers"]] == ["clip-004"]  # type: ignore[union-attr]
    assert content["warnings"][0].startswith("clip-004: 4.0 characters a second")  # type: ignore[index]


@pytest.mark.parametrize("arguments", [["--dry-run"], []], ids=["dry run", "run"])
def test_silent_filters_and_a_short_window_are_a_warning_each(data: Path, tmp_path: Path, arguments: list[str]) -> None:
    words = [*arguments, "--set", "audio.max_hz=100.0", "--set", "audio.window_samples=64", "--json"]
    first, second, *others = report(run(data, tmp_path / "cache", *words))["warnings"]  # type: ignore[misc]
    are_named = re.match(r"audio\.mel_bins=.* mel filters hold no FFT bin", first) and "window is too short" in second
    assert (are_named, len(others)) == (True, not arguments)  # a build knows that clips are too short for their texts


def test_waves_that_a_rerun_removes_are_a_warning(data: Path, tmp_path: Path) -> None:
    outputs = [preprocess(data, tmp_path / "cache", "--set", f"cache.store_waves={on}").output for on in (True, False)]
    assert ["the stored waves are gone" in output for output in outputs] == [False, True]


def test_a_wrong_language_is_a_warning_before_anything_is_computed(data: Path, tmp_path: Path) -> None:
    completed = run(data, tmp_path / "cache", "--set", "text.language=Russian", "--json")
    remedy = "add --set text.language=en, or another code for these letters"
    assert completed.stderr == f"warning: language ru: 40 of 40 rows are in Latin letters; {remedy}\n"
    assert report(completed)["warnings"][:-1] == [completed.stderr[9:-1]]  # type: ignore[index]
    assert load_manifest(tmp_path / "cache").languages == ("ru",)


def test_a_dry_run_predicts_the_build_and_writes_nothing(data: Path, tmp_path: Path) -> None:
    (data / "wavs" / "clip-000.wav").write_bytes(b"broken")
    write_clip(data, "clip-001", seconds=2.0)
    foreseen = report(run(data, tmp_path / "cache", "--dry-run", "--json"))
    assert not (tmp_path / "cache").exists()
    made = report(run(data, tmp_path / "cache", "--json"))
    for key in ("read", "kept", "rejected", "rejected_by_reason"):
        assert foreseen[key] == made[key]
    for content in (foreseen, made):
        places = {reason: example["where"] for reason, example in content["examples"].items()}  # type: ignore[attr-defined]
        assert places == {"audio_unreadable": "metadata.csv:1", "mel_too_long": "metadata.csv:2"}
    assert foreseen["shards_to_write"] == made["shards_written"]
    written = sum(shard.bytes for shard in load_manifest(tmp_path / "cache").shards)
    assert foreseen["bytes_to_write"] == pytest.approx(written * 40 / 38, rel=0.02)
    assert foreseen["hours"] == pytest.approx(sum(0.3 + 0.005 * number for number in range(2, 40)) / 3600, abs=1e-3)
    assert report(run(data, tmp_path / "cache", "--dry-run", "--json"))["shards_to_write"] == 0


def test_both_reports_show_the_first_row_of_each_reason(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = "audio,text\na.wav,one, two\nb.wav,one, two, three\n"
    (tmp_path / "data" / "metadata.csv").write_text(rows, encoding="utf-8")
    for arguments in (["--dry-run"], []):
        lines = run(tmp_path / "data", tmp_path / "cache", *arguments).stdout.splitlines()
        assert lines[-2].split() == ["bad_row", "2", "100.00%"]
        remedy = "put a text that holds the delimiter in quotes"
        assert lines[-1] == f"    a.wav, metadata.csv:2: 3 fields; expected 2: audio, text; {remedy}"
        assert "shards: none; 0 to write, 0 B" in lines or not arguments


def test_a_second_corpus_becomes_the_validation_split(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for number in range(5):
        write_clip(other, f"held-out-{number}")
    write_clip(other, "clip-000")
    lines = [f"held-out-{number}|x|this is clip {number}\n" for number in range(5)]
    (other / "metadata.csv").write_text("".join([*lines, "clip-000|x|in both\n"]))
    content = report(run(data, tmp_path / "cache", "--val-data", str(other), "--json", "--max-rejected", "10%"))
    assert content["splits"] == {"train": 40, "val": 5, "test": 0}
    assert content["rejected_by_reason"] == {"duplicate_id": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backend", "dask"], ["no --scheduler"]),
        (["--scheduler", "tcp://127.0.0.1:1"], ["only --backend dask"]),
        (["--layout", "nonsense"], ["--layout", "nonsense", "ljspeech"]),
    ],
)
def test_contradicting_options_are_one_line(data: Path, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    assert_one_line(run(data, tmp_path / "cache", *arguments), 2, *words)
    assert not (tmp_path / "cache").exists()


def test_a_file_size_limit_is_one_line_and_the_next_run_continues(data: Path, tmp_path: Path) -> None:
    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    completed = run(data, tmp_path / "cache", preexec_fn=limit_files)
    assert_one_line(completed, 2, "cannot be written (File too large)", "run again")
    assert_half_made(tmp_path / "cache")
    assert report(run(data, tmp_path / "cache", "--json"))["kept"] == 40


def test_too_few_file_descriptors_are_one_line(data: Path, tmp_path: Path) -> None:
    def limit_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    assert_one_line(run(data, tmp_path / "cache", preexec_fn=limit_descriptors), 2, "Too many open files")
    assert report(run(data, tmp_path / "cache", "--json"))["kept"] == 40


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_with_130_and_leaves_no_process_and_no_half_file(
    data: Path,
    tmp_path: Path,
    number: signal.Signals,
    started: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    # One worker stays in this clip, so the run cannot end before the signal; the other one writes the rest.
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(Path.cwd()))))
    monkeypatch.setenv("HANGING_CLIPS", "clip-020")
    process = started(data, cache)
    # A shard counts as done once it has its receipt.
    wait_for_files(process, cache / "receipts", ".json", 1)
    # To the whole group, as a terminal does with Ctrl-C.
    os.killpg(process.pid, number)
    _, stderr = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 130, stderr
    assert stderr.strip() == f"xtts: {cache}: interrupted; the same command goes on"
    wait_for_group_to_end(process.pid)
    assert_half_made(cache)
    monkeypatch.delenv("HANGING_CLIPS")
    assert report(run(data, cache, *SHARDS, "--json"))["shards_reused"] >= 1  # type: ignore[operator]


def test_killed_at_any_moment_the_next_run_ends_with_the_same_bytes(
    data: Path, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    kill_and_rerun(data, tmp_path, started, repetitions=2)


@pytest.mark.slow
def test_killed_at_twenty_moments_each_next_run_ends_with_the_same_bytes(
    data: Path, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    kill_and_rerun(data, tmp_path, started, repetitions=20)


def kill_and_rerun(data: Path, tmp_path: Path, started: Callable[..., subprocess.Popen[str]], repetitions: int) -> None:
    run(data, tmp_path / "whole", *SHARDS)
    whole = cache_bytes(tmp_path / "whole")
    shards = sum(1 for name in whole if name.endswith("tfrecord"))
    moments = random.Random(0)  # noqa: S311 (chooses moments, keeps no secret)
    for repetition in range(repetitions):
        cache = tmp_path / f"cache-{repetition}"
        process = started(data, cache)
        wait_for_files(process, cache, ".tfrecord", moments.randrange(shards))
        time.sleep(moments.random() * 0.05)
        process.kill()
        process.wait()
        if not (cache / "manifest.json").exists():
            assert_half_made(cache)
        assert not is_valid(cache) or cache_bytes(cache).items() >= whole.items(), (
            "a cache that is called valid is whole"
        )
        # At once, while the dead run's workers may still be at it.
        completed = run(data, cache, *SHARDS)
        assert completed.returncode == 0, completed.stderr
        assert cache_bytes(cache) == whole
        assert is_valid(cache)
        wait_for_group_to_end(process.pid)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a run in a process group of its own; what is left of it dies with the test."""
    processes = []

    def start(data: Path, cache: Path, *arguments: str) -> subprocess.Popen[str]:
        processes.append(
            subprocess.Popen(
                command(data, cache, *SHARDS, "--jobs", "2", *arguments),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if processes_of_group(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_files(process: subprocess.Popen[str], folder: Path, suffix: str, count: int) -> None:
    """Return once the folder holds `count` files with the suffix. Fails if the run ends with fewer."""
    wait_until(lambda: len(list(folder.glob(f"*{suffix}"))) >= count, process)


def wait_for_group_to_end(group: int) -> None:
    """Return when no process of the group is left: joblib's helpers end a moment after the run."""
    wait_until(lambda: not processes_of_group(group))


def processes_of_group(group: int) -> list[int]:
    """Return the living processes of a group."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def is_valid(cache: Path) -> bool:
    """Return whether verify-cache would exit with 0."""
    try:
        return verify_cache(cache).valid
    except CacheError:
        return False


def assert_half_made(cache: Path) -> None:
    with pytest.raises(CacheError):
        load_manifest(cache)
    assert not list(cache.glob("*.tmp"))


def test_buckets_are_printed_before_and_after(data: Path, tmp_path: Path) -> None:
    buckets = ["--set", "data.buckets=[[24,22],[32,28],[40,80]]"]
    foreseen = report(run(data, tmp_path / "cache", *buckets, "--dry-run", "--json"))
    made = report(run(data, tmp_path / "cache", *buckets, "--json"))
    again = run(data, tmp_path / "cache", *buckets)

    manifest = load_manifest(tmp_path / "cache")
    clips = [entry["clips"] for entry in made["buckets"]]  # type: ignore[attr-defined]
    assert foreseen["buckets"] == [list(bucket) for bucket in manifest.buckets] == [[24, 22], [32, 28], [40, 80]]
    assert foreseen["bytes_to_write"] == sum(shard.bytes for shard in manifest.shards)
    assert sum(clips) == 40
    assert f"buckets: [24, 22] {clips[0]}, [32, 28] {clips[1]}, [40, 80] {clips[2]}" in again.stdout
    assert "shards: 0 written" in again.stdout
    assert f"padding: {padding_share(manifest):.0%} of the frames" in again.stdout
    assert "advice" not in again.stdout, "40 clips have too few for other buckets"
    assert re.search(r"^time: \d+\.\d s, (\d\.\d|\d\d+) clips/s$", again.stdout, re.MULTILINE)


def test_buckets_that_do_not_end_at_the_limits_are_refused(data: Path, tmp_path: Path) -> None:
    refused = run(data, tmp_path / "cache", "--set", "data.buckets=[[24,22],[40,72]]")

    assert_one_line(refused, 2, "data.buckets: the last one is [40, 72], expected the limits [40, 80]; add [40, 80]")
    assert not (tmp_path / "cache").exists()

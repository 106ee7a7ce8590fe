"""Worker processes that die or hang: only the guilty clip is rejected."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from joblib.externals.loky import process_executor

from tests.cache.corpora import build, cache_bytes, make_config, write_corpus
from xtts_pipeline.cache.build import pool
from xtts_pipeline.cache.build.pool import local_pool
from xtts_pipeline.cache.build.workers import explained_write, read_source
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import LimitsConfig
from xtts_pipeline.errors import AudioError, CacheError, Reason

# Python runs a sitecustomize at process start: the only way into a fresh worker without a hook in the package.
SABOTAGE = """
import os, signal, time
from pathlib import Path
from xtts_pipeline.audio import load

decode_wave = load.decode_wave

def sabotaged(source, audio, limits, name):
    clip = Path(name).stem
    if clip in os.environ.get("CRASHING_CLIPS", "").split():
        os.kill(os.getpid(), signal.SIGSEGV)
    if clip in os.environ.get("HANGING_CLIPS", "").split():
        time.sleep(600)
    if clip in os.environ.get("HUNGRY_CLIPS", "").split():
        raise MemoryError
    marker = os.environ.get("KILLED_ONCE")
    if clip == "clip-005" and marker and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return decode_wave(source, audio, limits, name)

load.decode_wave = sabotaged
"""


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let the environment of worker processes name clips that crash, hang or eat memory."""
    folder = tmp_path / "sabotage"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SABOTAGE)
    paths = [str(folder), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return monkeypatch


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "data", 24)


def test_processes_and_one_thread_write_the_same_bytes(data: Path, tmp_path: Path) -> None:
    build(data, tmp_path / "thread")
    for jobs in (1, 2):
        result = build(data, tmp_path / f"jobs-{jobs}", pool=local_pool(jobs))
        assert cache_bytes(tmp_path / f"jobs-{jobs}") == cache_bytes(tmp_path / "thread")
        assert set(result.stage_seconds) == {"read", "decode", "mel", "encode", "write"}
        assert result.stage_seconds["mel"] > 0


@pytest.mark.parametrize(
    ("number", "named"),
    [(errno.ENOSPC, pool.SHARED_MEMORY), (errno.EMFILE, "this machine"), (errno.ENOMEM, "this machine")],
)
def test_what_worker_processes_lack_is_not_the_caches_fault(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, named: str
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(pool, "ProcessPoolExecutor", refuse)
    expected = f"{named}: worker processes cannot be started ({os.strerror(number)}); mend that"
    with pytest.raises(CacheError, match=re.escape(expected)):
        build(data, tmp_path / "cache", pool=local_pool(2))


def test_the_path_that_the_system_names_is_named(tmp_path: Path) -> None:
    limits, inside = LimitsConfig(), tmp_path / "closed" / "a.wav"
    with (
        pytest.raises(CacheError, match=r"elsewhere/file: cannot be written \(Permission denied\); mend that"),
        explained_write(tmp_path, "train-00000-of-00001.tfrecord"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "elsewhere" / "file"))
    with pytest.MonkeyPatch.context() as patch:
        # A folder without the right to search it; root may search every folder.
        patch.setattr(Path, "stat", _refuse)
        with pytest.raises(AudioError, match=r"^a.wav: cannot be read \(Permission denied\)$") as caught:
            read_source(inside, None, limits, "a.wav")
    assert caught.value.reason is Reason.AUDIO_UNREADABLE
    with pytest.raises(AudioError, match="no such file"):
        read_source(inside, None, limits, "a.wav")


def _refuse(path: Path) -> NoReturn:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_ctrl_c_reaches_the_parent_but_never_a_starting_worker() -> None:
    # In a fresh process, as a command is one: joblib starts its own helper there before the first worker.
    program = (
        "import signal\n"
        "from xtts_pipeline.cache.build.pool import local_pool\n"
        "with local_pool(2).open(2) as executor:\n"
        "    tasks = [executor.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()) for _ in range(8)]\n"
        "    masks = [task.result() for task in tasks]\n"
        "own_mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "print(all(signal.SIGINT in mask for mask in masks), signal.SIGINT in own_mask)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["True", "False"]


def test_a_worker_that_is_gone_when_the_pool_ends_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> NoReturn:
        raise ProcessLookupError

    shown: list[object] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    monkeypatch.setattr(process_executor._ExecutorManagerThread, "flag_executor_shutting_down", fail)
    with local_pool(1).open(1) as executor:
        workers = list(executor._processes)  # type: ignore[attr-defined]
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    assert shown == []
    assert capsys.readouterr().err == ""


def test_a_clip_that_kills_or_hangs_its_worker_is_rejected_alone(
    data: Path, tmp_path: Path, sabotage: pytest.MonkeyPatch
) -> None:
    sabotage.setenv("CRASHING_CLIPS", "clip-003")
    sabotage.setenv("HANGING_CLIPS", "clip-011")
    cache = tmp_path / "cache"
    manifest = build(data, cache, pool=local_pool(2), clip_seconds=2.0).manifest
    assert manifest.rejected_by_reason == {"decoder_crashed": 1, "timeout": 1}
    assert manifest.counts.kept == 22
    assert load_manifest(cache) == manifest
    rejected = (cache / "rejected.jsonl").read_text()
    assert "wavs/clip-011.wav: took over 2 s, twice" in rejected
    assert "wavs/clip-003.wav: the worker process died on it, twice" in rejected
    # The machine may have been to blame: the next run tries such clips again, and those alone.
    sabotage.setenv("CRASHING_CLIPS", "")
    sabotage.setenv("HANGING_CLIPS", "")
    again = build(data, cache, pool=local_pool(2))
    assert again.manifest.counts.kept == 24
    assert again.shards_reused > 0


def test_a_clip_that_takes_all_memory_is_rejected_alone(
    data: Path, tmp_path: Path, sabotage: pytest.MonkeyPatch
) -> None:
    sabotage.setenv("HUNGRY_CLIPS", "clip-007")
    manifest = build(data, tmp_path / "cache", pool=local_pool(1)).manifest
    assert manifest.rejected_by_reason == {"decoder_crashed": 1}


def test_a_worker_killed_from_outside_loses_no_clip(data: Path, tmp_path: Path, sabotage: pytest.MonkeyPatch) -> None:
    build(data, tmp_path / "whole")
    sabotage.setenv("KILLED_ONCE", str(tmp_path / "was-killed"))
    build(data, tmp_path / "cache", pool=local_pool(2))
    assert (tmp_path / "was-killed").exists()
    assert cache_bytes(tmp_path / "cache") == cache_bytes(tmp_path / "whole")


def test_workers_that_cannot_start_end_the_run(data: Path, tmp_path: Path, sabotage: pytest.MonkeyPatch) -> None:
    (tmp_path / "sabotage" / "sitecustomize.py").write_text(
        "import os, sys\nif 'loky' in ' '.join(sys.orig_argv): os._exit(9)\n"
    )
    with pytest.raises(CacheError, match=r"worker processes died 3 times .* use fewer --jobs"):
        build(data, tmp_path / "cache", make_config("cache.records_per_shard=64"), pool=local_pool(1))
    assert not (tmp_path / "cache" / "manifest.json").exists()

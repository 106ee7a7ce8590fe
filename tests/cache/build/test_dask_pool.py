"""Builds on a real dask.distributed cluster: a scheduler and two worker processes on loopback."""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache.corpora import build, cache_bytes, make_config, write_corpus
from xtts_pipeline.cache.build.pool import dask_pool
from xtts_pipeline.errors import CacheError

pytest.importorskip("distributed")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers; yield its address and the worker processes."""
    address_file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": Path.cwd()}
    options = [
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--no-show",
        "--scheduler-file",
        str(address_file),
    ]
    processes = [subprocess.Popen([*command, "scheduler", *options], **quiet)]  # type: ignore[call-overload]
    address = read_address(address_file, processes[0])
    for number in range(2):
        worker_folder = tmp_path / f"worker-{number}"
        worker_folder.mkdir()
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(worker_folder)]
        processes.append(
            subprocess.Popen([*command, "worker", "--scheduler-file", str(address_file), *options], **quiet)
        )  # type: ignore[call-overload]

    yield address, processes[1:]
    for process in processes:
        process.kill()
        process.wait()


def read_address(file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """Return the address of the scheduler once its file is complete."""
    while scheduler.poll() is None:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return str(json.loads(file.read_text())["address"])
        time.sleep(0.05)
    pytest.fail(f"the scheduler ended with {scheduler.returncode}")


def test_a_cluster_that_loses_a_worker_gives_the_bytes_of_a_local_run(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, workers = cluster
    data, cache = write_corpus(tmp_path / "data"), tmp_path / "cache"
    config = make_config("cache.records_per_shard=2")
    build(data, tmp_path / "local", config)

    def kill_a_worker() -> None:
        while sum(1 for path in cache.glob("*.tfrecord")) < 3:
            time.sleep(0.001)
        workers[0].kill()

    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    result = build(data, cache, config, dask_pool(address))
    killer.join()
    assert workers[0].wait() != 0
    assert cache_bytes(cache) == cache_bytes(tmp_path / "local")
    assert result.manifest.counts.kept == 40


def test_a_missing_scheduler_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xtts_pipeline.cache.build.pool.SCHEDULER_SECONDS", 1)
    with pytest.raises(CacheError, match=r"--scheduler tcp://127\.0\.0\.1:1: no scheduler answers"):
        build(write_corpus(tmp_path / "data", 4), tmp_path / "cache", pool=dask_pool("tcp://127.0.0.1:1"))

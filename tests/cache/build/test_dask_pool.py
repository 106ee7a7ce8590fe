"""Builds on a real dask.distributed cluster: a scheduler and two worker processes on loopback."""

import contextlib
import importlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cache.corpora import build, cache_bytes, make_config, write_corpus
from tests.waiting import wait_until
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.errors import CacheError

module = importlib.import_module("xtts_pipeline.cache.build.dask_pool")
dask_pool = module.dask_pool


DASK = [sys.executable, "-m", "dask"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": Path.cwd()}


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, Callable[[], subprocess.Popen[bytes]]]]:
    """Start a scheduler; yield its address and a function that starts a worker."""
    address_file = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", address_file]
    processes = [subprocess.Popen([*DASK, "scheduler", *options], **QUIET)]  # type: ignore[call-overload]

    def start_worker() -> subprocess.Popen[bytes]:
        worker_folder = tmp_path / f"worker-{len(processes)}"
        worker_folder.mkdir()
        options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", worker_folder]
        command = [*DASK, "worker", "--scheduler-file", address_file, *options]
        processes.append(subprocess.Popen(command, **QUIET))  # type: ignore[call-overload]
        return processes[-1]

    yield read_address(address_file, processes[0]), start_worker
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def cluster(
    scheduler: tuple[str, Callable[[], subprocess.Popen[bytes]]],
) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start two workers; return the scheduler's address and the worker processes."""
    address, start_worker = scheduler
    return address, [start_worker(), start_worker()]


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
        wait_until(lambda: len(list(cache.glob("*.tfrecord"))) >= 3)
        workers[0].kill()

    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    result = build(data, cache, config, dask_pool(address, 300.0, print))
    killer.join()
    assert workers[0].wait() != 0
    assert cache_bytes(cache) == cache_bytes(tmp_path / "local")
    assert result.manifest.counts.kept == 40


def test_a_missing_scheduler_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xtts_pipeline.cache.build.dask_pool.SCHEDULER_SECONDS", 1)
    with pytest.raises(CacheError, match=r"--scheduler tcp://127\.0\.0\.1:1: no scheduler answers"):
        build(
            write_corpus(tmp_path / "data", 4),
            tmp_path / "cache",
            pool=dask_pool("tcp://127.0.0.1:1", 1.0, pytest.fail),
        )


@pytest.mark.parametrize(
    "greeting", [None, b"", b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 400 Bad", struct.pack("<Q16x", 16)]
)
def test_a_service_that_is_no_scheduler_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: bytes | None
) -> None:
    monkeypatch.setattr(module, "SCHEDULER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as service:
        address = f"127.0.0.1:{service.getsockname()[1]}"

        def greet() -> None:
            connection, _ = service.accept()
            with connection:
                if greeting is None:
                    connection.recv(1)  # a web server waits for a request
                else:
                    connection.sendall(greeting)

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(
            CacheError, match=rf"--scheduler {address}: no scheduler answers \(it .*no dask scheduler\)"
        ):
            build(write_corpus(tmp_path / "data", 4), tmp_path / "cache", pool=dask_pool(address, 1.0, pytest.fail))


def test_a_cluster_whose_workers_are_missing_or_silent_is_said_and_given_up(
    scheduler: tuple[str, Callable[[], subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.5)
    address, start_worker = scheduler
    data, said = write_corpus(tmp_path / "data", 4), []
    with pytest.raises(CacheError, match=r"it has no worker for \d+ s; start one with .*, or raise --wait-workers"):
        build(data, tmp_path / "cache", pool=dask_pool(address, 2.0, said.append))
    expected = (
        f"--scheduler {address}: it has no worker, waiting for 2 s at most; start one with `dask worker {address}`"
    )
    assert said == [expected]
    worker = start_worker()
    build(data, tmp_path / "cache", pool=dask_pool(address, 300.0, said.append))
    worker.send_signal(signal.SIGSTOP)
    with pytest.raises(CacheError, match=r"none of its 1 workers answers for \d+ s"):
        build(data, tmp_path / "other", pool=dask_pool(address, 3.0, said.append))


@pytest.mark.slow
def test_a_waiting_command_is_stopped_by_a_signal_and_sends_absolute_paths(
    scheduler: tuple[str, Callable[[], subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    address, start_worker = scheduler
    write_corpus(tmp_path / "data", 4)
    command = [sys.executable, "-m", "xtts_pipeline", "preprocess", "--data", "data", "--cache", "cache"]
    command += ["--backend", "dask", "--scheduler", address]

    def wait_for_the_line() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert process.stderr is not None
        assert any("it has no worker, waiting for 300 s at most" in line for line in process.stderr)
        return process

    for number in (signal.SIGTERM, signal.SIGINT):
        waiting = wait_for_the_line()
        waiting.send_signal(number)
        assert (waiting.wait(60), waiting.communicate()[1].splitlines()[-1]) == (130, "xtts: interrupted")
    waiting = wait_for_the_line()
    start_worker()
    assert (waiting.wait(), waiting.communicate()[1]) == (0, "")
    assert load_manifest(tmp_path / "cache").counts.kept == 4

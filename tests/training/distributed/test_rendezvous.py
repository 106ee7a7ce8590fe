"""Workers wait for each other before TensorFlow connects them, and say for whom."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.scaling_processes import free_ports
from xtts_pipeline.errors import EXIT_UNTRUE, ConfigError, TrainingError
from xtts_pipeline.training.distributed import rendezvous
from xtts_pipeline.training.distributed.cluster import Cluster
from xtts_pipeline.training.distributed.rendezvous import wait_for_workers


def addresses(count: int) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{port}" for port in free_ports(count))


def test_workers_meet_whenever_each_of_them_starts() -> None:
    places, first = addresses(3), threading.Event()

    def start(index: int) -> None:
        if index == 2:
            assert first.wait(60)
        first.set()
        wait_for_workers(Cluster(places, index), pytest.fail)
        # TensorFlow listens on the same port from now on.
        with socket.create_server(("127.0.0.1", int(places[index].rpartition(":")[2]))) as server:
            done.wait()
            server.close()

    done = threading.Barrier(3)
    with ThreadPoolExecutor(3) as workers:
        list(workers.map(start, range(3)))


def test_a_missing_worker_is_named_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "QUIET_SECONDS", 0.1)
    places, said = addresses(5), []
    named = ", ".join(f"worker {number} at {places[number]}" for number in (0, 2, 3)) + " and 1 more"
    with pytest.raises(
        TrainingError, match=rf"worker 1 of 5: {named} did not answer for \d+ s; .* or raise --wait-workers"
    ) as caught:
        wait_for_workers(Cluster(places, 1, wait_seconds=0.5), said.append)
    assert caught.value.exit_code == EXIT_UNTRUE
    assert said == [f"worker 1 of 5: waiting for {named}, for 0.5 s at most"]


def test_a_port_that_another_program_has_or_that_is_none_is_refused() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} of 127.0.0.1 cannot be opened \(Address already in use\)"):
            wait_for_workers(Cluster((f"127.0.0.1:{port}", "127.0.0.1:1"), 0), pytest.fail)
    for wrong in ("127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x"):
        with pytest.raises(ConfigError, match="expected a number from 1 to 65535"):
            wait_for_workers(Cluster(("127.0.0.1:1", wrong), 0), pytest.fail)

"""Mapping over forks: results keep their order, and a fork that dies is an error."""

import os
import subprocess
import sys
import threading

import pytest

from xtts_pipeline.cache.verify import parallel as forked
from xtts_pipeline.cache.verify.parallel import parallel_map
from xtts_pipeline.errors import CacheError


@pytest.fixture
def copies_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests may have left threads here; these functions take no lock that one of them could hold."""
    monkeypatch.setattr(forked, "_can_fork", lambda: sys.platform == "linux")


@pytest.mark.usefixtures("copies_are_allowed")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("jobs", [1, 2, 3, 9])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_results_come_in_the_order_of_the_items(jobs: int, count: int) -> None:
    assert parallel_map(lambda item: item * item, range(count), jobs) == [item * item for item in range(count)]


@pytest.mark.usefixtures("copies_are_allowed")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="no copies are made elsewhere")
def test_a_copy_that_dies_is_an_error() -> None:
    this = os.getpid()
    with pytest.raises(CacheError, match="a process died while it read the cache"):
        parallel_map(lambda _: os.getpid() == this or os._exit(9), [1, 2], jobs=2)


def test_a_process_of_several_threads_is_not_copied() -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        assert set(parallel_map(lambda _: os.getpid(), range(4), jobs=2)) == {os.getpid()}
    finally:
        release.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="no copies are made elsewhere")
def test_the_command_line_leaves_verify_cache_a_process_that_can_be_copied() -> None:
    program = (
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
        "import xtts_pipeline.cli.commands.verify_cache\n"
        "from xtts_pipeline.cache.verify.parallel import parallel_map\n"
        "print(len(set(parallel_map(lambda _: os.getpid(), range(4), 2))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"

"""Frozen objects are not collected, later ones are, and at the end all objects are unfrozen; freed memory is reused."""

import gc
import resource
import subprocess
import sys
import weakref

import pytest

from xtts_pipeline.system.memory import freeze_objects, unfreezing_objects


class Node:
    """A reference cycle, like a figure and its axes."""

    def __init__(self) -> None:
        self.itself = self


def test_later_garbage_is_collected_and_objects_are_unfrozen_at_the_end() -> None:
    before = Node()
    with unfreezing_objects():
        freeze_objects()
        assert gc.get_freeze_count() > 0
        later = Node()
        freed = weakref.ref(later)
        del later
        gc.collect()
        assert freed() is None
        kept = weakref.ref(before)
        del before
        gc.collect()
        assert kept() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert kept() is None


def fail_with_frozen_objects() -> None:
    with unfreezing_objects():
        freeze_objects()
        raise ValueError("lost")


def test_objects_are_unfrozen_after_an_error() -> None:
    with pytest.raises(ValueError, match="lost"):
        fail_with_frozen_objects()
    assert gc.get_freeze_count() == 0


PRINT_RELEASED_PAGES = """
from pathlib import Path
from xtts_pipeline.system.memory import release_free_memory

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

blocks = [bytearray(100_000) for _ in range(1_000)]
# The last block keeps the C library from shrinking the heap by itself.
del blocks[:-1]
before = resident_pages()
release_free_memory()
print(before - resident_pages())
"""


def printed(program: str) -> int:
    """Return the number that a Python program prints."""
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)


def test_free_memory_goes_back_to_the_system() -> None:
    assert printed(PRINT_RELEASED_PAGES) * resource.getpagesize() > 50_000_000


COUNT_NEW_PAGES = """
import resource, threading
from xtts_pipeline.system.memory import keep_freed_memory

{call}

def use_blocks():
    for _ in range(100):
        blocks = [bytearray(1 << 20) for _ in range(8)]

def print_new_pages():
    use_blocks()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use_blocks()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

# In one thread: another one may get a heap of its own.
threading.Thread(target=print_new_pages).start()
"""


def new_pages(call: str) -> int:
    """Return how many pages 800 blocks of 1 MiB take from the system, of which 8 are in use at once."""
    return printed(COUNT_NEW_PAGES.format(call=call))


def test_a_thread_reuses_freed_blocks() -> None:
    assert new_pages("keep_freed_memory()") < new_pages("") / 50

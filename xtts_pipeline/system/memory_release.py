"""Keep a long run's memory small: cheap garbage collections, and free memory given back to the system.

TensorFlow creates about 400,000 objects that live as long as the run. A full collection visits all of them, which takes
0.4 s and stalls the step, so Python rarely starts one. Matplotlib figures are reference cycles of several megabytes and
would stay for hundreds of steps. Objects that exist after the first step are therefore frozen; later ones are collected
often and quickly.

After compiling, XLA leaves some hundred megabytes free. The C library keeps them and reuses ever more of them, which
looks like a leak.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# TensorFlow for Linux needs glibc, which has malloc_trim.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextmanager
def unfreezing_objects() -> Iterator[None]:
    """Unfreeze all objects at the end, so that what a run leaves behind can be collected."""
    try:
        yield
    finally:
        gc.unfreeze()


def freeze_objects() -> None:
    """Collect garbage, then exclude all remaining objects from later collections."""
    gc.collect()
    gc.freeze()
    # A full collection starts once new objects exceed a quarter of those found by the last one: now, of none.
    gc.collect()


def release_free_memory() -> None:
    """Give free memory back to the system, at about 20 ms for each gigabyte. Does nothing except on Linux."""
    if _LIBC is not None:
        _LIBC.malloc_trim(0)

"""What a run holds and needs no more: Python's cyclic garbage, and memory that is free and not given back.

TensorFlow makes some 400,000 objects that live as long as the run. The collector would look at all of them each time, 0.4 s in which no
step is called, and for that reason does so seldom: pictures, which are cycles of some megabytes, would lie about for hundreds of steps.
So what there is after the first step is set aside, and what comes later is collected often, and in no time.

XLA leaves some hundred megabytes free when it has compiled. The C library keeps them, and touches more and more of them again as the run
goes on: it looks as if memory leaked.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# TensorFlow for Linux needs glibc, which has malloc_trim.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@contextmanager
def restoring_collector() -> Iterator[None]:
    """End with every object back among those that the collector looks at, so that what a run leaves behind is freed."""
    try:
        yield
    finally:
        gc.unfreeze()


def set_objects_aside() -> None:
    """Have the collector pass over the objects that there are now, but for garbage, which goes."""
    gc.collect()
    gc.freeze()
    # It collects in full when a quarter as many objects are new as it found the last time: now, none.
    gc.collect()


def release_free_memory() -> None:
    """Give free memory back to the system, which takes about 20 ms a gigabyte; on Linux only."""
    if _LIBC is not None:
        _LIBC.malloc_trim(0)

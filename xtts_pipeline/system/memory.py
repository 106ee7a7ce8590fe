"""What Python and the C library do with free memory: collections, memory given back to the system or kept.

TensorFlow creates about 400,000 objects that live as long as the run. A full collection visits all of them, which takes
0.4 s and stalls the step, so Python rarely starts one. Matplotlib figures are reference cycles of several megabytes and
would stay for hundreds of steps. Objects that exist after the first step are therefore frozen; later ones are collected
often and quickly.

After compiling, XLA leaves some hundred megabytes free. The C library keeps them and reuses ever more of them, which
looks like a leak. But records come and go by the thousand, and to return the memory of each costs more than to parse
it.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# TensorFlow needs glibc, which has malloc_trim and mallopt.
_LIBC = ctypes.CDLL(None)
# Options of mallopt, from malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# glibc's limits: of a block outside the heaps, and of the heap that each thread allocates from.
_MOST_BLOCK_BYTES, _HEAP_BYTES = 32 << 20, 64 << 20


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
    """Give free memory back to the system, at about 20 ms for each gigabyte."""
    _LIBC.malloc_trim(0)


def keep_freed_memory() -> None:
    """Make the C library reuse freed blocks of up to 32 MiB for the next ones.

    By default glibc returns blocks over 128 KiB to the system at once, and a thread's heap as soon as it is empty. A
    record is larger than that, and each of its pages would be cleared and mapped anew.
    """
    _LIBC.mallopt(_M_MMAP_THRESHOLD, _MOST_BLOCK_BYTES)
    _LIBC.mallopt(_M_TRIM_THRESHOLD, _HEAP_BYTES)
    _LIBC.mallopt(_M_TOP_PAD, _HEAP_BYTES)

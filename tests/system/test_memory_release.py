"""What is set aside is not collected, what comes later is, and all is back at the end."""

import gc
import weakref

import pytest

from xtts_pipeline.system.memory_release import freeze_objects, release_free_memory, unfreezing_objects


class Node:
    """An object that holds itself, as a figure and its axes do."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_that_comes_later_is_collected_and_all_objects_are_back_at_the_end() -> None:
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


def fail_with_objects_set_aside() -> None:
    with unfreezing_objects():
        freeze_objects()
        raise ValueError("lost")


def test_objects_are_back_after_an_error_too() -> None:
    with pytest.raises(ValueError, match="lost"):
        fail_with_objects_set_aside()
    assert gc.get_freeze_count() == 0


def test_free_memory_is_given_back() -> None:
    release_free_memory()

"""Frozen objects are not collected, later ones are, and at the end all objects are unfrozen."""

import gc
import weakref

import pytest

from xtts_pipeline.system.memory_release import freeze_objects, release_free_memory, unfreezing_objects


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


def test_releasing_free_memory_succeeds() -> None:
    release_free_memory()

"""The parts of the time until the end of the first step."""

from tests.clock import Clock
from xtts_pipeline.training.monitoring.startup import STARTUP_PARTS, StartupTimer


def start(first_step: float, compile_seconds: float) -> StartupTimer:
    clock = Clock()
    startup = StartupTimer(clock)
    for part, seconds in (("check", 1.0), ("import", 4.0), ("build", 2.0), ("input", 0.5), ("trace", 3.0)):
        clock.now += seconds
        startup.end_part(part)
    assert not startup.is_over
    clock.now += first_step
    startup.end_first_step(compile_seconds)
    return startup


def test_the_parts_add_up_to_the_whole() -> None:
    startup = start(first_step=15.0, compile_seconds=14.0)
    assert startup.is_over
    assert tuple(startup.seconds.values()) == (1.0, 4.0, 2.0, 0.5, 3.0, 14.0, 1.0)
    assert tuple(startup.seconds) == STARTUP_PARTS
    assert str(startup) == "first step done after 26 s, 17 s of them to compile"


def test_compile_seconds_of_several_threads_are_at_most_the_step() -> None:
    startup = start(first_step=2.0, compile_seconds=3.0)
    assert startup.seconds["compile"] == 2.0
    assert startup.is_over

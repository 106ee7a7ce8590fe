"""Where the time until the first step is done goes."""

from xtts_pipeline.training.monitoring.startup import PARTS, StartUp


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def start(first_step: float, compile_seconds: float) -> StartUp:
    clock = Clock()
    startup = StartUp(clock)
    for part, seconds in (("check", 1.0), ("import", 4.0), ("build", 2.0), ("input", 0.5), ("trace", 3.0)):
        clock.now += seconds
        startup.note(part)
    assert not startup.is_over
    clock.now += first_step
    startup.note_first_step(compile_seconds)
    return startup


def test_the_parts_add_up_to_the_whole() -> None:
    startup = start(first_step=15.0, compile_seconds=14.0)
    assert startup.is_over
    assert tuple(startup.seconds.values()) == (1.0, 4.0, 2.0, 0.5, 3.0, 14.0, 1.0)
    assert tuple(startup.seconds) == PARTS
    assert str(startup) == (
        "first step done after 25.5 s (check 1.0, import 4.0, build 2.0, input 0.5, trace 3.0, compile 14.0, run 1.0)"
    )


def test_a_compiler_that_worked_on_other_threads_takes_no_more_than_the_step() -> None:
    startup = start(first_step=2.0, compile_seconds=3.0)
    assert startup.seconds["compile"] == 2.0
    assert startup.is_over

from pathlib import Path

import pytest

from xtts_pipeline.data.online_source import NativeSource
from xtts_pipeline.training.monitoring.data_wait import DataWaitWatch


def look(shares: dict[int, float]) -> list[tuple[int, str]]:
    watch = DataWaitWatch("xtts diagnose input --cache cache says why")
    return [(step, line) for step, share in shares.items() for line in watch.look(step, share)]


def test_a_hundred_waiting_steps_are_one_line_that_names_the_command() -> None:
    assert look(dict.fromkeys(range(10, 400, 10), 0.2)) == [
        (
            110,
            "20% of the time is spent waiting for data, and over 5% for 100 steps; xtts diagnose input --cache cache says why",
        )
    ]


def test_without_a_cache_the_line_says_how_to_make_one() -> None:
    # The advice looks at nothing but the folder: no corpus is surveyed for it.
    source = NativeSource(Path("corpus"), manifest=None, datasets=None)  # type: ignore[arg-type]
    watch = DataWaitWatch(source.wait_advice)
    lines = [line for step in range(10, 200, 10) for line in watch.look(step, 0.2)]
    assert len(lines) == 1
    assert lines[0].endswith("; a cache is made once and read many times as fast: xtts preprocess --data corpus")


@pytest.mark.parametrize(
    "shares",
    [
        dict.fromkeys(range(10, 400, 10), 0.05),
        {step: 0.5 if step % 100 else 0.01 for step in range(10, 400, 10)},  # every hundredth step is fine
        dict.fromkeys(range(10, 400, 10), float("nan")),
        {5_000: 0.9},  # the first report of a run that goes on
    ],
)
def test_less_is_no_alarm(shares: dict[int, float]) -> None:
    assert look(shares) == []

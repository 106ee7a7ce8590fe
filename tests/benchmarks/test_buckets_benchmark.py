"""The judgement of benchmarks/buckets.py; its runs take long and are started by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from seeded_runs import Ended

from benchmarks.buckets import check, judge
from xtts_pipeline.cache.format.manifest import Manifest


def ended(loss: float, *, examples: float, traces: int = 1) -> Ended:
    reports = [{"split": "train", "step": step, "loss": loss if step > 100 else 9.0} for step in range(20, 201, 20)]
    counts = {"train_step": {"traces": traces, "compilations": traces}}
    return Ended(reports, [], {"examples_per_second": examples, "step_ms": {"p50": 10.0}, "by_function": counts})


@pytest.mark.parametrize(
    ("loss", "traces", "is_ok"),
    [
        (2.0, 3, True),
        (3.9, 3, True),
        (0.1, 3, True),
        (4.1, 3, False),
        (-0.1, 3, False),
        (2.0, 4, False),
        (2.0, 1, False),
    ],
)
def test_loss_and_traces_decide(loss: float, traces: int, is_ok: bool) -> None:
    seeds = [ended(value, examples=10.0 * value) for value in (1.0, 2.0, 3.0)]
    judged = judge(seeds, ended(loss, examples=30.0, traces=traces), 3, 200)
    assert judged["ok"] is is_ok
    assert judged["examples_per_second"]["buckets/one shape"] == 1.5


def test_caches_of_other_clips_or_shapes_are_refused(tmp_path: Path, write_cache: Callable[..., Manifest]) -> None:
    one = write_cache(tmp_path / "one", train=4, val=2)
    more = write_cache(tmp_path / "more", train=5, val=2, buckets=((9, 12), (16, 24)))
    same = write_cache(tmp_path / "same", train=4, val=2, buckets=((9, 12), (16, 24)))
    check(one, same)
    with pytest.raises(SystemExit, match=r"hold \[4, 2\] and \[5, 2\] clips"):
        check(one, more)
    with pytest.raises(SystemExit, match="one shape and several are expected, found 2 and 1"):
        check(same, one)

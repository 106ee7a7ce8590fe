"""Time variants fairly: the throughput of a stream of batches, and variants in turns, which share the machine's load.

Knows callables and numbers alone.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from xtts_pipeline.system.machine import processor_name

T = TypeVar("T")


class Throughput(NamedTuple):
    """Records and batches that a stream yielded, in seconds of wall time and of processor time."""

    records: int
    batches: int
    seconds: float
    cpu_seconds: float

    @property
    def records_per_second(self) -> float:
        """Records per second of wall time."""
        return self.records / self.seconds

    @property
    def busy_cores(self) -> float:
        """Mean number of busy cores."""
        return self.cpu_seconds / self.seconds


def measure_throughput(
    batches: Iterator[int], seconds: float, *, warm_up_seconds: float = 0.0, max_records: int | None = None
) -> Throughput:
    """Time a stream that yields the records of each batch, from its second batch on.

    Ends after `seconds` or `max_records`, but not before one batch.
    """
    started = time.perf_counter()
    next(batches)
    while time.perf_counter() - started < warm_up_seconds:
        next(batches)
    records, count, elapsed = 0, 0, 0.0
    started, cpu_started = time.perf_counter(), time.process_time()
    while not count or (elapsed < seconds and (max_records is None or records < max_records)):
        records, count = records + next(batches), count + 1
        elapsed = time.perf_counter() - started
    return Throughput(records, count, max(elapsed, 1e-9), time.process_time() - cpu_started)


def in_turns(variants: Mapping[str, Callable[[], T]], rounds: int, report: Callable[[str], None]) -> dict[str, list[T]]:
    """Call each variant once a round and return its results; every other round runs in reverse order."""
    found: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(rounds):
        report(f"round {number + 1} of {rounds}")
        for name in list(variants) if number % 2 == 0 else reversed(list(variants)):
            found[name].append(variants[name]())
    return found


def paired_ratios(rates: Mapping[str, Sequence[float]], ours: Sequence[str]) -> dict[str, float]:
    """Return `ours/baseline` for each of `ours` over each other variant: the median of the ratios within a round.

    `rates` has one number a round for each variant; more is better.
    """
    pairs = [
        (own, baseline)
        for number, own in enumerate(ours)
        for baseline in rates
        if baseline != own and baseline not in ours[:number]
    ]
    return {
        f"{own}/{baseline}": statistics.median(x / y for x, y in zip(rates[own], rates[baseline], strict=True))
        for own, baseline in pairs
    }


def medians(found: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the median of each figure over the rounds of each variant."""
    return {
        name: {key: statistics.median(figures[key] for figures in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }


def machine() -> dict[str, object]:
    """Return the machine's processor, its number of cores and its load."""
    return {"processor": processor_name(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}

"""Measure variants in turns, so that what else the machine does falls on all of them alike.

Knows callables and numbers alone.
"""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def in_turns(variants: Mapping[str, Callable[[], T]], rounds: int, report: Callable[[str], None]) -> dict[str, list[T]]:
    """Call every variant once a round and return what each returned; every other round goes backwards, so that none is always first."""
    found: dict[str, list[T]] = {name: [] for name in variants}
    for number in range(rounds):
        report(f"round {number + 1} of {rounds}")
        for name in list(variants) if number % 2 == 0 else reversed(list(variants)):
            found[name].append(variants[name]())
    return found


def paired_ratios(rates: Mapping[str, Sequence[float]], ours: Sequence[str]) -> dict[str, float]:
    """Return `ours/rival` for each of ours over each other variant: the median over the rounds of the ratio within a round.

    rates are by variant one a round, more being better.
    """
    pairs = [
        (own, rival)
        for number, own in enumerate(ours)
        for rival in rates
        if rival != own and rival not in ours[:number]
    ]
    return {
        f"{own}/{rival}": statistics.median(
            mine / theirs for mine, theirs in zip(rates[own], rates[rival], strict=True)
        )
        for own, rival in pairs
    }


def machine() -> dict[str, object]:
    """Return what a reader of the figures must know of the machine: its processor, its cores, how busy it was."""
    return {"processor": _processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

"""Whose voice a model can speak with, how fast and how high. Imports no TensorFlow."""

import unicodedata
from pathlib import Path

from xtts_pipeline.config.languages import nearest_language
from xtts_pipeline.errors import CheckpointError, ConfigError, did_you_mean

SLOWEST, FASTEST = 0.25, 4.0
MOST_SEMITONES = 12.0


def check_delivery(speed: float, semitones: float) -> None:
    """Raise ConfigError unless a model can speak so."""
    if not SLOWEST <= speed <= FASTEST:
        raise ConfigError(f"speed {speed:g}: expected {SLOWEST:g} to {FASTEST:g}; 0.8 is slower, 1.25 faster")
    if not -MOST_SEMITONES <= semitones <= MOST_SEMITONES:
        expected = f"expected -{MOST_SEMITONES:g} to {MOST_SEMITONES:g}; 2 is higher, -2 lower"
        raise ConfigError(f"semitones {semitones:g}: {expected}")


def number_of(kind: str, names: tuple[str, ...], wanted: str | None, folder: Path) -> int:
    """Return the number of a speaker or language, by default the first. Raises CheckpointError if it is unknown."""
    if wanted is None:
        return 0
    if kind == "language":
        wanted = nearest_language(wanted, names) or wanted
    elif wanted not in names:
        wanted = unicodedata.normalize("NFC", wanted)  # as preprocessing keeps speakers
    if wanted not in names:
        raise CheckpointError(f"{folder}: no {kind} {wanted!r}; {did_you_mean(wanted, names)}")
    return names.index(wanted)

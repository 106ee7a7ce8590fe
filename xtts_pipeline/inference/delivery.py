"""How fast and how high a model can speak. Imports no TensorFlow."""

from pathlib import Path

from xtts_pipeline.errors import ConfigError

SLOWEST, FASTEST = 0.25, 4.0
MOST_SEMITONES = 12.0


def speeds_of(decoder: str) -> tuple[float, float]:
    """Return the slowest and the fastest speed of a model with this `model.decoder`."""
    return (SLOWEST, FASTEST) if decoder == "parallel" else (1.0, 1.0)


def check_delivery(speed: float, semitones: float, decoder: str, folder: Path) -> None:
    """Raise ConfigError unless the model of this folder, with this `model.decoder`, can speak so."""
    if not SLOWEST <= speed <= FASTEST:
        raise ConfigError(f"speed {speed:g}: expected {SLOWEST:g} to {FASTEST:g}; 0.8 is slower, 1.25 faster")
    if not -MOST_SEMITONES <= semitones <= MOST_SEMITONES:
        expected = f"expected -{MOST_SEMITONES:g} to {MOST_SEMITONES:g}; 2 is higher, -2 lower"
        raise ConfigError(f"semitones {semitones:g}: {expected}")
    for name, value, usual in (("speed", speed, 1.0), ("semitones", semitones, 0.0)):
        if decoder != "parallel" and value != usual:
            remedy = f"leave the {name} out, or train with model.decoder=parallel"
            raise ConfigError(f"{name} {value:g}: the model of {folder} has model.decoder={decoder}; {remedy}")

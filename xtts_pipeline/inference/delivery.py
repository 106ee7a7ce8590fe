"""How fast and how high a model can speak. Imports no TensorFlow."""

from xtts_pipeline.errors import ConfigError

SLOWEST, FASTEST = 0.25, 4.0
MOST_SEMITONES = 12.0


def check_delivery(speed: float, semitones: float) -> None:
    """Raise ConfigError unless a model can speak so."""
    if not SLOWEST <= speed <= FASTEST:
        raise ConfigError(f"speed {speed:g}: expected {SLOWEST:g} to {FASTEST:g}; 0.8 is slower, 1.25 faster")
    if not -MOST_SEMITONES <= semitones <= MOST_SEMITONES:
        expected = f"expected -{MOST_SEMITONES:g} to {MOST_SEMITONES:g}; 2 is higher, -2 lower"
        raise ConfigError(f"semitones {semitones:g}: {expected}")

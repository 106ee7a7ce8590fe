"""Whether a listener that this project did not train hears the same sounds: phoneme errors by the recogniser hama."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soxr

from xtts_pipeline.errors import ConfigError

RECOGNISER_RATE = 16_000
SHORTEST_SECONDS = 0.1
# Waves are heard at one loudness: how loud a vocoder is must not change what is recognised.
HEARD_PEAK = 0.7


@dataclass(frozen=True)
class PhonemeErrors:
    """How many phonemes are inserted, deleted or replaced against a reference of `length` phonemes."""

    edits: int
    length: int

    @property
    def rate(self) -> float:
        """Edits over the reference's length, which counts as 1 where nothing was recognised in it."""
        return self.edits / max(self.length, 1)


class Recogniser:
    """Hears phonemes in waves, with the weights that lie in hama's wheel."""

    def __init__(self) -> None:
        """Load the recogniser. Raises ConfigError if the extra `eval` is not installed."""
        try:
            # Here: an extra, which everything but the phoneme error rate goes without.
            from hama import ASRModel
        except ModuleNotFoundError:
            raise ConfigError(
                "--phoneme-error-rate: hama is not installed; pip install 'xtts-pipeline[eval]', or leave the option out"
            ) from None
        self._model = ASRModel()

    def hear(self, wave: np.ndarray, sample_rate: int) -> list[str]:
        """Return the phonemes of a wave; of one under 0.1 s none."""
        if len(wave) < SHORTEST_SECONDS * sample_rate:
            return []
        heard = soxr.resample(wave.astype(np.float32), sample_rate, RECOGNISER_RATE)
        heard *= HEARD_PEAK / max(float(np.abs(heard).max()), 1e-6)
        return list(self._model(heard, RECOGNISER_RATE).phonemes)


def count_errors(heard: Sequence[str], reference: Sequence[str]) -> PhonemeErrors:
    """Return the fewest insertions, deletions and replacements that turn one into the other (V. Levenshtein, 1966)."""
    row = list(range(len(reference) + 1))
    for number, phoneme in enumerate(heard, 1):
        diagonal, row[0] = row[0], number
        for place, wanted in enumerate(reference, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (phoneme != wanted))
    return PhonemeErrors(row[-1], len(reference))


def pool_errors(errors: Sequence[PhonemeErrors]) -> PhonemeErrors:
    """Return the errors of a corpus as one: its rate weighs long utterances as their length says."""
    return PhonemeErrors(sum(error.edits for error in errors), sum(error.length for error in errors))

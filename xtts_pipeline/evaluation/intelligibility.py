"""Measure phoneme errors with hama, a recogniser that this project did not train."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import soxr

from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.installation import install_command

RECOGNISER_RATE = 16_000
SHORTEST_SECONDS = 0.1
# All waves get one peak, so that a vocoder's loudness does not change the recognised phonemes.
PEAK = 0.7


@dataclass(frozen=True)
class PhonemeErrors:
    """The number of inserted, deleted and replaced phonemes against a reference of `length` phonemes."""

    edits: int
    length: int

    @property
    def rate(self) -> float:
        """Edits over the reference's length; an empty reference counts as length 1."""
        return self.edits / max(self.length, 1)


# The errors of one utterance or of many: `to_truth` and `to_copy` compare the speech with the true wave and with copy
# synthesis, `of_copy` and `of_copy_griffin_lim` compare copy synthesis with the true wave. Without a true wave there is
# `to_copy` alone.
PhonemeComparison = Mapping[str, PhonemeErrors]


class Recogniser:
    """Recognises phonemes in waves, with the weights in hama's wheel."""

    def __init__(self) -> None:
        """Load the recogniser. Raises ConfigError if the extra `eval` is not installed."""
        try:
            # Here: an optional extra, which only the phoneme error rate needs.
            from hama import ASRModel
        except ModuleNotFoundError:
            remedy = f"{install_command('eval')}, or leave the option out"
            raise ConfigError(f"--phoneme-error-rate: hama is not installed; {remedy}") from None
        self._model = ASRModel()

    def transcribe(self, wave: np.ndarray, sample_rate: int) -> list[str]:
        """Return the phonemes of a wave, float [samples]; none under 0.1 s."""
        if len(wave) < SHORTEST_SECONDS * sample_rate:
            return []
        resampled = soxr.resample(wave.astype(np.float32), sample_rate, RECOGNISER_RATE)
        resampled *= PEAK / max(float(np.abs(resampled).max()), 1e-6)
        return list(self._model(resampled, RECOGNISER_RATE).phonemes)


def count_errors(recognised: Sequence[str], reference: Sequence[str]) -> PhonemeErrors:
    """Return the fewest insertions, deletions and replacements that turn one into the other (V. Levenshtein, 1966)."""
    row = list(range(len(reference) + 1))
    for number, phoneme in enumerate(recognised, 1):
        diagonal, row[0] = row[0], number
        for place, wanted in enumerate(reference, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (phoneme != wanted))
    return PhonemeErrors(row[-1], len(reference))


def compare_phonemes(recogniser: Recogniser, waves: Mapping[str, np.ndarray], sample_rate: int) -> PhonemeComparison:
    """Compare the phonemes of `spoken` and of copy synthesis with each other, and with `true` where it is given."""
    phonemes = {label: recogniser.transcribe(wave, sample_rate) for label, wave in waves.items()}
    pairs = {
        "to_truth": ("spoken", "true"),
        "to_copy": ("spoken", "copy"),
        "of_copy": ("copy", "true"),
        "of_copy_griffin_lim": ("copy_griffin_lim", "true"),
    }
    return {
        name: count_errors(phonemes[label], phonemes[reference])
        for name, (label, reference) in pairs.items()
        if label in phonemes and reference in phonemes
    }


def pool_errors(errors: Sequence[PhonemeErrors]) -> PhonemeErrors:
    """Return the errors of a corpus as one: its rate weighs utterances by their length."""
    return PhonemeErrors(sum(error.edits for error in errors), sum(error.length for error in errors))


def pool_comparisons(comparisons: Sequence[PhonemeComparison]) -> PhonemeComparison:
    """Return the errors of a corpus as one comparison."""
    names = comparisons[0] if comparisons else ()
    return {name: pool_errors([comparison[name] for comparison in comparisons]) for name in names}

"""Decide which vocoder speaks for a run: a named one, the one that the run remembers, or Griffin-Lim.

Imports no TensorFlow: commands refuse a vocoder that does not fit before they start it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.training.checkpoints.run_folder import GRIFFIN_LIM, read_vocoder_path
from xtts_pipeline.training.checkpoints.state import read_run_state, read_settings, require_network

# They define a frame. Trimming and normalisation choose which sound is analysed, and how loud, not how.
MEL_SETTINGS = ("sample_rate", "fft_size", "hop_samples", "window_samples", "mel_bins", "min_hz", "max_hz", "floor")


def choose_vocoder(run: Path, named: Path | str | None = None) -> Path | None:
    """Return the path of the vocoder that speaks for a run or checkpoint, or None for Griffin-Lim.

    By default it is the one that the run remembers; the name `griffin-lim` is Griffin-Lim. Raises CheckpointError if
    it is missing, is no vocoder, was trained on mels of another definition than the run's, or if its weights do not
    have the size that was saved.
    """
    if named is not None and str(named) == GRIFFIN_LIM:
        return None
    vocoder = read_vocoder_path(run) if named is None else Path(named)
    if vocoder is not None:
        spoken = read_run_state(run)
        require_network(run, spoken.network, "acoustic")
        with offering_griffin_lim(named):
            _check_mel(vocoder, read_settings(vocoder, "vocoder").audio, run, spoken.config.audio)
    return vocoder


@contextmanager
def offering_griffin_lim(named: Path | str | None) -> Iterator[None]:
    """Add the ways out to a CheckpointError about the vocoder that a run remembers, which no option has named."""
    try:
        yield
    except CheckpointError as error:
        if named is not None:
            raise
        remedy = f"the run remembers this vocoder: speak with --vocoder {GRIFFIN_LIM}, or set another by use-vocoder"
        raise type(error)(f"{error}; {remedy}") from None


def _check_mel(vocoder: Path, trained: AudioConfig, run: Path, spoken: AudioConfig) -> None:
    """Raise CheckpointError that names each setting in which the mels of two runs differ."""
    differences = [
        f"audio.{name}: the vocoder has {getattr(trained, name):g}, the run {getattr(spoken, name):g}"
        for name in MEL_SETTINGS
        if getattr(trained, name) != getattr(spoken, name)
    ]
    if differences:
        remedy = "name a vocoder trained on a cache with the run's audio settings"
        raise CheckpointError(f"{vocoder}: not a vocoder for {run}: {'; '.join(differences)}; {remedy}")

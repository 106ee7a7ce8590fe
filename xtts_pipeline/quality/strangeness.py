"""How unusual each clip is by each measure: robust standard deviations from the clips like it. NumPy only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xtts_pipeline.cache.build.outliers import MIN_CLIPS, robust_scores
from xtts_pipeline.quality.clips import MeasuredClip
from xtts_pipeline.quality.speaking_rate import predicted_seconds
from xtts_pipeline.quality.text_fit import text_fits

# From here on a clip is suspect: of normal values, one in 16,000.
SUSPECT_SCORE = 4.0
LARGEST_SCORE = 99.0


@dataclass(frozen=True)
class Measure:
    """A measure of clips.

    side: 1 if high values are faults, -1 if low ones are, 0 for both. least: the smallest standard deviation, in the
    measure's unit; without it, clips that hardly differ would seem strange. by_speaker: compared with the speaker's.
    enough: better values count as this one, or a few dips in a very clean corpus would seem strange.
    """

    name: str
    title: str
    unit: str
    decimals: int
    side: int
    least: float
    by_speaker: bool
    explanation: str
    enough: float | None = None


MEASURES = (
    Measure(
        name="text_fit",
        title="Text against sound",
        unit="nats a step",
        decimals=2,
        side=-1,
        least=0.02,
        by_speaker=True,
        explanation=(
            "How well the sound fits its text, by a model of each symbol trained on these clips. Low: a wrong text."
        ),
    ),
    Measure(
        name="speed",
        title="Speed",
        unit="x",
        decimals=2,
        side=0,
        least=0.04,
        by_speaker=True,
        explanation=(
            "How fast the text is spoken; 1 is what the corpus predicts for it. Off: a wrong text, sample rate or cut."
        ),
    ),
    Measure(
        name="silence",
        title="Silence",
        unit="s",
        decimals=2,
        side=1,
        least=0.05,
        by_speaker=False,
        explanation="The longest silence, at an end or within. Long: cut badly, or sound is missing.",
    ),
    Measure(
        name="clipping",
        title="Clipping",
        unit="%",
        decimals=2,
        side=1,
        least=0.02,
        by_speaker=False,
        explanation="Samples within 1% of the clip's own peak. High: the recording was too loud.",
    ),
    Measure(
        name="snr",
        title="Signal to noise",
        unit="dB",
        decimals=1,
        side=-1,
        least=4.0,  # without a pause, the quietest frames are speech: 24 dB are usual then
        by_speaker=False,
        explanation=(
            "The 95th less the 5th percentile of the frames' energies, as NIST's stnr. Low: noise, music, an echo."
        ),
        enough=40.0,
    ),
    Measure(
        name="level",
        title="Level",
        unit="dBFS",
        decimals=1,
        side=0,
        least=0.5,
        by_speaker=True,
        explanation="RMS of the frames that are not silent. Off: another gain or distance.",
    ),
    Measure(
        name="spectrum",
        title="Spectrum",
        unit="dB",
        decimals=1,
        side=1,
        least=0.5,
        by_speaker=True,
        explanation=(
            "Distance of the mean spectrum from the speaker's own. High: another voice, microphone, codec or noise."
        ),
    ),
)


@dataclass(frozen=True)
class Strangeness:
    """A measure's values and scores, float64 [clips]; a score is 0 where the clip is not strange, NaN unmeasured."""

    measure: Measure
    values: np.ndarray
    scores: np.ndarray

    def strangest(self, count: int) -> list[int]:
        """Return the numbers of the clips with the highest scores, the highest first."""
        order = np.argsort(-np.nan_to_num(self.scores), kind="stable")[:count]
        return [int(number) for number in order if self.scores[number] > 0]


def measure_strangeness(clips: Sequence[MeasuredClip], jobs: int = 1) -> list[Strangeness]:
    """Return the strangeness of the clips by each measure that they have; none if they are too few to compare.

    `jobs` processes share the work.
    """
    if len(clips) < MIN_CLIPS:
        return []
    speakers = _speaker_groups([clip.speaker for clip in clips])
    values = _values(clips, speakers, jobs)
    found = []
    for measure in MEASURES:
        column = values[measure.name]
        if np.isnan(column).all():
            continue
        # Speeds are ratios: half and double are equally far.
        compared = np.log(column) if measure.name == "speed" else column
        if measure.enough is not None:
            compared = measure.side * np.maximum(measure.side * column, measure.side * measure.enough)
        scores = np.full(len(clips), np.nan)
        for group in speakers if measure.by_speaker else [np.arange(len(clips))]:
            scores[group] = robust_scores(compared[group], measure.least)
        sided = np.abs(scores) if measure.side == 0 else np.maximum(scores * measure.side, 0.0)
        found.append(Strangeness(measure, column, np.minimum(sided, LARGEST_SCORE)))
    return found


def _speaker_groups(speakers: Sequence[str]) -> list[np.ndarray]:
    """Return the clips of each speaker; those with few clips are one group."""
    names, numbers = np.unique(np.array(speakers), return_inverse=True)
    groups = [np.flatnonzero(numbers == number) for number in range(len(names))]
    small = [group for group in groups if len(group) < MIN_CLIPS]
    return [group for group in groups if len(group) >= MIN_CLIPS] + ([np.concatenate(small)] if small else [])


def _values(clips: Sequence[MeasuredClip], speakers: Sequence[np.ndarray], jobs: int) -> Mapping[str, np.ndarray]:
    def column(value: Callable[[MeasuredClip], float | None]) -> np.ndarray:
        return np.array([np.nan if (number := value(clip)) is None else number for clip in clips], np.float64)

    texts = [clip.text for clip in clips]
    spoken = column(lambda clip: clip.sound.seconds - clip.sound.leading_silence - clip.sound.trailing_silence)
    spectra = np.stack([clip.sound.spectrum for clip in clips])
    spectra -= spectra.mean(axis=1, keepdims=True)  # the level is a measure of its own
    distances = np.zeros(len(clips))
    for group in speakers:
        distances[group] = np.sqrt(np.square(spectra[group] - np.median(spectra[group], axis=0)).mean(axis=1))
    return {
        "text_fit": text_fits(texts, [clip.sound.cepstra for clip in clips], jobs),
        "speed": predicted_seconds(texts, spoken) / np.maximum(spoken, 1e-3),
        "silence": column(
            lambda clip: max(clip.sound.leading_silence, clip.sound.trailing_silence, clip.sound.longest_pause)
        ),
        "clipping": column(lambda clip: None if clip.sound.clipping is None else 100 * clip.sound.clipping.share),
        "snr": column(lambda clip: clip.sound.snr_db),
        "level": column(lambda clip: clip.sound.level_db),
        "spectrum": distances,
    }

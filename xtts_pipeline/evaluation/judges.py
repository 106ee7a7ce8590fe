"""Judge sounds by published models and measures: DNSMOS, PESQ, STOI and speaker similarity.

Their packages are extras and are imported here only. The package of the phoneme recogniser is in `intelligibility`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import librosa
import numpy as np

from xtts_pipeline.audio.save import FULL_SCALE_INT16
from xtts_pipeline.errors import ConfigError
from xtts_pipeline.system.installation import install_command

JUDGE_RATE = 16_000
SHORTEST_SECONDS = 0.1
# All waves get one peak, so that their loudness does not change the figures.
PEAK = 0.9


@dataclass(frozen=True)
class JudgedSound:
    """The figures of one sound; None where the judge is not installed or cannot judge it. Higher is better.

    DNSMOS is from 1 to 5: `dnsmos_p808` is the overall quality by ITU-T P.808, `dnsmos_overall` that by P.835. Wideband
    PESQ is from 1.04 to 4.64 and STOI at most 1: both compare copy synthesis with the recording, sample by sample.
    `speaker_similarity` to the recording is a cosine.
    """

    dnsmos_p808: float | None = None
    dnsmos_overall: float | None = None
    pesq_wideband: float | None = None
    stoi: float | None = None
    speaker_similarity: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """Return the figures with four decimals."""
        return {name: None if value is None else round(value, 4) for name, value in vars(self).items()}


# The sounds of an utterance by their labels: `true` is the recording, `spoken` the speech, others are copy synthesis.
Judgements = Mapping[str, JudgedSound]


class Judges:
    """DNSMOS and STOI; also PESQ and speaker similarity where the packages `pesq` and `resemblyzer` are installed."""

    def __init__(self) -> None:
        """Load the judges. Raises ConfigError if the extra `eval` is not installed."""
        try:
            self._dnsmos, self._stoi = import_module("speechmos.dnsmos").run, import_module("pystoi").stoi
        except ModuleNotFoundError as error:
            remedy = f"{install_command('eval')}, or leave the option out"
            raise ConfigError(f"--judges: {error.name} is not installed; {remedy}") from None
        self._pesq, self._resemblyzer = _installed("pesq"), _installed("resemblyzer")
        self._voice_encoder: Any = self._resemblyzer and self._resemblyzer.VoiceEncoder("cpu", verbose=False)

    @property
    def missing(self) -> list[str]:
        """The packages of judges that are not installed and not part of the extra."""
        return [name for name, module in (("pesq", self._pesq), ("resemblyzer", self._resemblyzer)) if module is None]

    def judge(self, waves: Mapping[str, np.ndarray], sample_rate: int) -> dict[str, JudgedSound]:
        """Return the judgements of an utterance's waves; a wave of silence or under 0.1 s has no figures."""
        prepared = {
            label: resampled
            for label, wave in waves.items()
            if len(wave) >= SHORTEST_SECONDS * sample_rate and (resampled := _prepare(wave, sample_rate)).any()
        }
        true = prepared.get("true")
        true_voice = None if true is None else self._embed(true)
        judgements = dict.fromkeys(waves, JudgedSound())
        for label, wave in prepared.items():
            is_copy, dnsmos = label not in {"true", "spoken"}, self._dnsmos(wave, JUDGE_RATE)
            voice = None if true_voice is None or label == "true" else self._embed(wave)
            judgements[label] = JudgedSound(
                dnsmos_p808=float(dnsmos["p808_mos"]),
                dnsmos_overall=float(dnsmos["ovrl_mos"]),
                pesq_wideband=self._wideband_pesq(true, wave) if is_copy and true is not None else None,
                stoi=self._intelligibility(true, wave) if is_copy and true is not None else None,
                speaker_similarity=None if voice is None else float(true_voice @ voice),
            )
        return judgements

    def _wideband_pesq(self, true: np.ndarray, copy: np.ndarray) -> float | None:
        if self._pesq is None:
            return None
        samples = min(len(true), len(copy))
        try:
            return float(self._pesq.pesq(JUDGE_RATE, true[:samples], copy[:samples], "wb"))
        except self._pesq.PesqError:
            # Under 0.25 s, or nothing that its voice detector finds.
            return None

    def _intelligibility(self, true: np.ndarray, copy: np.ndarray) -> float | None:
        samples = min(len(true), len(copy))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            try:
                return float(self._stoi(true[:samples], copy[:samples], JUDGE_RATE))
            except RuntimeWarning:
                # Under 0.4 s without the pauses.
                return None

    def _embed(self, wave: np.ndarray) -> np.ndarray | None:
        """Return the voice of a wave as a vector of length 1."""
        if self._resemblyzer is None:
            return None
        vector: np.ndarray = self._voice_encoder.embed_utterance(self._resemblyzer.preprocess_wav(wave))
        return vector


def mean_judgements(rows: Sequence[Judgements]) -> dict[str, JudgedSound]:
    """Return the mean of each figure over the utterances that have it, for the sounds in their order."""
    return {
        label: JudgedSound(**{name: _mean([vars(row[label])[name] for row in rows]) for name in vars(JudgedSound())})
        for label in (rows[0] if rows else ())
    }


def _prepare(wave: np.ndarray, sample_rate: int) -> np.ndarray:
    # 16 bits, as the written file has, and librosa's length: other programs that judge the file find the same figures.
    # DNSMOS repeats short clips, so one sample more can move its overall figure by 0.1.
    pcm = np.round(wave * np.float32(FULL_SCALE_INT16 / max(float(np.abs(wave).max()), 1.0)))
    resampled = librosa.resample(pcm, orig_sr=sample_rate, target_sr=JUDGE_RATE)
    return resampled * np.float32(PEAK / max(float(np.abs(resampled).max()), 1e-6))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _installed(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None

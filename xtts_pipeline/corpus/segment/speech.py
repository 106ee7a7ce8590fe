"""Find the speech and the pauses of a long sound, and reduce the speech to frames that can be aligned.

Memory does not grow with the sample rate: a sound is read block by block, and an hour of it leaves 60 MB.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from scipy.ndimage import uniform_filter1d

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.audio.load import LIBRARY_ERRORS, MAX_PEAK, decoded_blocks, read_sound_length
from xtts_pipeline.audio.mel import frame_energies_db, log_mel
from xtts_pipeline.config.schema import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE, AudioConfig
from xtts_pipeline.errors import AudioError, CorpusError, Reason
from xtts_pipeline.system.stderr import silent_decoder

HOPS_PER_SECOND = 100
HOPS_PER_FRAME = 4
MEL_BINS = 40
MAX_HZ = 8_000.0
BLOCK_SECONDS = 60
# A pause is below this share of the way from the noise to the loud speech, in decibels.
PAUSE_LEVEL = 0.35
NOISE_PERCENTILE, LOUD_PERCENTILE = 5, 90
# Digital silence is far below any noise.
QUIET_DB = 60.0
# Closures of stops are shorter; so are clicks, which are no speech.
MIN_PAUSE_SECONDS, MIN_SPEECH_SECONDS = 0.12, 0.04
# Soft ends of words are above the quietest part of a pause by more; its level is averaged over so long.
QUIET_RANGE_DB, QUIET_SECONDS = 3.0, 0.05


@dataclass(frozen=True)
class RecordedSpeech:
    """The speech of a sound without its pauses.

    mels: float32 [T, M], each the mean of about HOPS_PER_FRAME log-mel hops. frame_seconds: the start of each, [T].
    stretches: start and end in seconds of each stretch between two pauses, [N, 2]. first_frames: its first frame, [N].
    quiet: the longest quiet part of the pause before each stretch and after the last one, in seconds, [N + 1, 2].
    """

    mels: np.ndarray
    frame_seconds: np.ndarray
    stretches: np.ndarray
    first_frames: np.ndarray
    quiet: np.ndarray

    @property
    def pause_seconds(self) -> np.ndarray:
        """The length of the pause before each stretch and after the last one, [N + 1]; the outer ones are endless."""
        return np.concatenate([[np.inf], self.stretches[1:, 0] - self.stretches[:-1, 1], [np.inf]])


def find_speech(mel: np.ndarray, hop_seconds: float) -> RecordedSpeech:
    """Return the speech in log-mel hops, float [hops, M]; a pause is near the noise or far below the loud speech."""
    level_db = frame_energies_db(mel)
    low, high = np.percentile(level_db, [NOISE_PERCENTILE, LOUD_PERCENTILE])
    low = max(low, high - QUIET_DB)
    is_speech = level_db > low + PAUSE_LEVEL * (high - low)
    _drop_short(~is_speech, is_speech, MIN_PAUSE_SECONDS / hop_seconds)
    _drop_short(is_speech.copy(), is_speech, MIN_SPEECH_SECONDS / hop_seconds)
    stretches = _runs(is_speech)
    edges = [
        np.linspace(start, end, max(1, round((end - start) / HOPS_PER_FRAME)) + 1).round().astype(int)
        for start, end in stretches
    ]
    if not edges:
        none = np.zeros((0, mel.shape[1]), np.float32)
        return RecordedSpeech(none, np.zeros(0), np.zeros((0, 2)), np.zeros(0, int), np.zeros((1, 2)))
    starts = np.concatenate([edge[:-1] for edge in edges])
    lengths = np.concatenate([np.diff(edge) for edge in edges])
    sums = np.concatenate([np.zeros((1, mel.shape[1])), np.cumsum(mel, axis=0, dtype=np.float64)])
    mels = ((sums[starts + lengths] - sums[starts]) / lengths[:, None]).astype(np.float32)
    first_frames = np.cumsum([0, *(len(edge) - 1 for edge in edges[:-1])])
    smooth_db = uniform_filter1d(level_db, round(QUIET_SECONDS / hop_seconds))
    pauses = zip([0, *stretches[:, 1]], [*stretches[:, 0], len(level_db)], strict=True)
    quiet = np.array([_longest_quiet(smooth_db, start, end) for start, end in pauses])
    return RecordedSpeech(mels, starts * hop_seconds, stretches * hop_seconds, first_frames, quiet * hop_seconds)


def _longest_quiet(level_db: np.ndarray, start: int, end: int) -> tuple[int, int]:
    """Return the longest run of hops between `start` and `end` that are near the quietest; empty if there are none."""
    level_db = level_db[start:end]
    if not len(level_db):
        return start, start
    runs = _runs(level_db <= level_db.min() + QUIET_RANGE_DB)
    first, last = runs[np.diff(runs, axis=1).argmax()]
    return start + int(first), start + int(last)


def hear(path: Path) -> tuple[RecordedSpeech, int]:
    """Return the speech of a sound file of any length, and its sample rate. Raises CorpusError if it is no sound."""
    try:
        with silent_decoder():
            _, rate = read_sound_length(path)
        if not MIN_SAMPLE_RATE <= rate <= MAX_SAMPLE_RATE:
            expected = f"{MIN_SAMPLE_RATE} to {MAX_SAMPLE_RATE}"
            raise CorpusError(f"{path}: {rate} samples a second, expected {expected}; resample it")
        hop_samples = hop_length(rate)
        block_samples = hop_samples * HOPS_PER_SECOND * BLOCK_SECONDS
        # The last hop of a block is centred at the first sample of the next one.
        with silent_decoder(), soundfile.SoundFile(path) as file:
            mels = [
                mel_hops(_mono(block), rate)[: max(1, len(block) // hop_samples)]
                for block in decoded_blocks(file, block_samples)
            ]
    except AudioError as error:  # says what is expected
        raise CorpusError(f"{path}: {error}") from None
    except (OSError, *LIBRARY_ERRORS) as error:
        raise CorpusError(f"{path}: {error}; expected a whole WAV, FLAC, OGG or MP3 file") from None
    if not mels:
        raise CorpusError(f"{path}: a header without samples; expected speech")
    return find_speech(np.concatenate(mels), hop_samples / rate), rate


def _mono(block: np.ndarray) -> np.ndarray:
    """Return the mean of the channels. Raises AudioError for a sample far over full scale, whose mels overflow."""
    wave: np.ndarray = block.mean(axis=1)
    if (peak := float(np.abs(wave).max(initial=0.0))) > MAX_PEAK:
        found = f"a sample is {peak:.3g}; expected at most {MAX_PEAK:g}, where full scale is 1"
        raise AudioError(Reason.AUDIO_OUT_OF_RANGE, found)
    return wave


def hop_length(rate: int) -> int:
    """Return the samples from one log-mel hop to the next."""
    return rate // HOPS_PER_SECOND


def mel_hops(wave: np.ndarray, rate: int, max_hz: float = MAX_HZ) -> np.ndarray:
    """Return log-mel amplitudes of 25 ms windows, HOPS_PER_SECOND a second: float32 [hops, M]."""
    window = rate // 40
    audio = AudioConfig(
        sample_rate=rate,
        fft_size=1 << (window - 1).bit_length(),
        window_samples=window,
        hop_samples=hop_length(rate),
        mel_bins=MEL_BINS,
        min_hz=80.0,
        max_hz=min(max_hz, rate / 2),
    )
    # Filters of unit area would hide fricatives, whose energy lies in the widest.
    widths = 1 / mel_filterbank(audio).max(axis=1)
    hops: np.ndarray = log_mel(wave, audio) + 0.5 * np.log(widths)
    return hops


def _runs(mask: np.ndarray) -> np.ndarray:
    """Return start and end of each run of True, int [runs, 2]."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return edges.reshape(-1, 2)


def _drop_short(mask: np.ndarray, changed: np.ndarray, least: float) -> None:
    """Invert `changed` in each run of `mask` that is shorter than `least`."""
    for start, end in _runs(mask):
        if end - start < least:
            changed[start:end] = ~changed[start:end]

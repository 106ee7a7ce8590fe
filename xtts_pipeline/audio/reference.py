"""Cut clips of a voice into windows that a voice encoder can hear.

NumPy only. A clip may have any sample rate, and last from half a second to an hour, in a file of at most 512 MiB.
"""

from pathlib import Path

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import AudioError, Reason

MAX_WINDOWS = 8
# Half a second is about two syllables: less says nothing of a voice. A clipped or long clip is as good a reference as another.
REFERENCE_LIMITS = LimitsConfig(min_seconds=0.5, max_seconds=3_600.0, max_clipped_share=1.0)
# A window whose loudest frame is so far below the clip's loudest, in natural log (40 dB), is a pause.
PAUSE_DEPTH = 4.6
REMEDIES = {
    Reason.AUDIO_TOO_SHORT: "give half a second of speech or more",
    Reason.AUDIO_EMPTY: "give half a second of speech or more",
    Reason.AUDIO_TOO_LONG: "give less: a minute of a voice says as much",
    Reason.AUDIO_SILENT: "give a clip in which someone speaks",
}


def load_reference(path: Path, audio: AudioConfig) -> np.ndarray:
    """Return a clip's mel as the cache would hold it, float32 [frames, mel_bins], natural log.

    Raises AudioError if it cannot be decoded, is silent, under half a second, over an hour or in a file of over 512 MiB.
    """
    try:
        return wave_to_mel(load_wave(path, audio, REFERENCE_LIMITS), audio)
    except AudioError as error:
        remedy = REMEDIES.get(error.reason, "choose another clip")
        raise AudioError(error.reason, f"reference {error.detail}; {remedy}") from None


def cut_windows(mel: np.ndarray, window_frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows of a mel, float32 [MAX_WINDOWS, window_frames, mel_bins], and their lengths, int32 [MAX_WINDOWS].

    They are spread evenly from the first frame to the last, as many as cover the mel, MAX_WINDOWS at most; pauses are left out. Those
    that are not needed have a length of 0.
    """
    frames = len(mel)
    length = min(frames, window_frames)
    count = min(MAX_WINDOWS, -(-frames // window_frames))
    windows = np.zeros((MAX_WINDOWS, window_frames, mel.shape[1]), np.float32)
    lengths = np.zeros(MAX_WINDOWS, np.int32)
    loudest = float(mel.max())
    heard = 0
    for start in np.linspace(0, frames - length, count).round().astype(int):
        window = mel[start : start + length]
        if window.max() >= loudest - PAUSE_DEPTH:
            windows[heard, :length], lengths[heard] = window, length
            heard += 1
    if not heard:
        # All windows fell into pauses between what is loud.
        start = int(np.clip(int(mel.max(axis=1).argmax()) - length // 2, 0, frames - length))
        windows[0, :length], lengths[0] = mel[start : start + length], length
    return windows, lengths

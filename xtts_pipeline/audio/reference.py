"""Load reference clips of a voice and cut them into windows for the voice encoder. NumPy only."""

from pathlib import Path

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import AudioError, Reason

MAX_WINDOWS = 8
# Half a second is about two syllables, the least that characterises a voice. Clipped and long clips are accepted.
REFERENCE_LIMITS = LimitsConfig(min_seconds=0.5, max_seconds=3_600.0, max_clipped_share=1.0)
# A window is a pause if its loudest frame is this far below the clip's loudest, in natural log (40 dB).
PAUSE_DEPTH = 4.6
REMEDIES = {
    Reason.AUDIO_TOO_SHORT: "give half a second of speech or more",
    Reason.AUDIO_EMPTY: "give half a second of speech or more",
    Reason.AUDIO_TOO_LONG: "give a minute or less: more does not help",
    Reason.AUDIO_SILENT: "give a clip in which someone speaks",
}


def load_reference(path: Path, audio: AudioConfig) -> np.ndarray:
    """Return the log-mel of a clip of any sample rate, float32 [frames, mel_bins], as the cache would hold it.

    Raises AudioError if the clip cannot be decoded, is silent, under 0.5 s or over an hour, or in a file over 512 MiB.
    """
    try:
        return wave_to_mel(load_wave(path, audio, REFERENCE_LIMITS), audio)
    except AudioError as error:
        remedy = REMEDIES.get(error.reason, "choose another clip")
        raise AudioError(error.reason, f"reference {error.detail}; {remedy}") from None


def cut_windows(mel: np.ndarray, window_frames: int) -> tuple[np.ndarray, np.ndarray]:
    """Return windows of a mel, float32 [MAX_WINDOWS, window_frames, mel_bins], and their lengths, int32 [MAX_WINDOWS].

    The windows are spread evenly over the mel, as many as cover it, MAX_WINDOWS at most; pauses are left out. Unused
    windows have length 0.
    """
    frames = len(mel)
    length = min(frames, window_frames)
    count = min(MAX_WINDOWS, -(-frames // window_frames))
    windows = np.zeros((MAX_WINDOWS, window_frames, mel.shape[1]), np.float32)
    lengths = np.zeros(MAX_WINDOWS, np.int32)
    loudest = float(mel.max())
    used = 0
    for start in np.linspace(0, frames - length, count).round().astype(int):
        window = mel[start : start + length]
        if window.max() >= loudest - PAUSE_DEPTH:
            windows[used, :length], lengths[used] = window, length
            used += 1
    if not used:
        # Every window fell into a pause: take one around the loudest frame.
        start = int(np.clip(int(mel.max(axis=1).argmax()) - length // 2, 0, frames - length))
        windows[0, :length], lengths[0] = mel[start : start + length], length
    return windows, lengths

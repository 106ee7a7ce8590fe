"""Load reference clips of a voice. No TensorFlow."""

from pathlib import Path

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.errors import AudioError, Reason

# Half a second is about two syllables, the least that characterises a voice.
LEAST_SECONDS = 0.5
# The length is checked after trimming. Clipped and long clips are accepted.
REFERENCE_LIMITS = LimitsConfig(min_seconds=0.0, max_seconds=3_600.0, max_clipped_share=1.0)
REMEDIES = {
    Reason.AUDIO_TOO_SHORT: "give half a second of speech or more",
    Reason.AUDIO_EMPTY: "give half a second of speech or more",
    Reason.AUDIO_TOO_LONG: "give a minute or less: more does not help",
    Reason.AUDIO_SILENT: "give a clip in which someone speaks",
}


def load_reference(path: Path, audio: AudioConfig) -> np.ndarray:
    """Return the log-mel of a clip of any sample rate, float32 [frames, mel_bins], as the cache would hold it.

    Raises AudioError if the clip cannot be decoded, is silent, under 0.5 s after trimming or over an hour, or in a file
    over 512 MiB.
    """
    try:
        mel = wave_to_mel(load_wave(path, audio, REFERENCE_LIMITS), audio)
        seconds = len(mel) * audio.hop_samples / audio.sample_rate
        if seconds < LEAST_SECONDS:
            raise AudioError(Reason.AUDIO_TOO_SHORT, f"{path}: {seconds:.2f} s without its silence")
    except AudioError as error:
        remedy = REMEDIES.get(error.reason, "choose another clip")
        raise AudioError(error.reason, f"reference {error.detail}; {remedy}") from None
    return mel

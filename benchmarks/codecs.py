"""Re-encode clips of a corpus in the LJSpeech layout and print how far each format's mels are from the original's.

    python benchmarks/codecs.py --data path/to/LJSpeech-1.1 --clips 24

Differences are in natural log, over all bins and over those within 60 dB of the clip's loudest bin, the audible range.
"""

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
import soxr

from xtts_pipeline.audio.load import decode_wave
from xtts_pipeline.audio.mel import wave_to_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig

AUDIO, LIMITS = AudioConfig(), LimitsConfig()
LOUD_RANGE = np.log(10 ** (60 / 20))


def encode(wave: np.ndarray, rate: int, form: str, subtype: str) -> bytes:
    """Return the wave, [samples] or [samples, channels], as a file of this format."""
    target = io.BytesIO()
    soundfile.write(target, wave, rate, format=form, subtype=subtype)
    return target.getvalue()


FORMATS: dict[str, Callable[[np.ndarray, int], bytes]] = {
    "FLAC, 16 bit": lambda wave, rate: encode(wave, rate, "FLAC", "PCM_16"),
    "WAV, 24 bit": lambda wave, rate: encode(wave, rate, "WAV", "PCM_24"),
    "WAV, float": lambda wave, rate: encode(wave, rate, "WAV", "FLOAT"),
    "WAV, stereo": lambda wave, rate: encode(np.stack([wave, wave], axis=1), rate, "WAV", "PCM_16"),
    "WAV, 48 kHz float": lambda wave, _: encode(
        soxr.resample(wave, AUDIO.sample_rate, 48_000, quality="VHQ"), 48_000, "WAV", "FLOAT"
    ),
    "WAV, 8 bit": lambda wave, rate: encode(wave, rate, "WAV", "PCM_U8"),
    "OGG Vorbis": lambda wave, rate: encode(wave, rate, "OGG", "VORBIS"),
    "MP3": lambda wave, rate: encode(wave, rate, "MP3", "MPEG_LAYER_III"),
}


def mel_of(source: bytes) -> np.ndarray:
    """Return the log-mel [frames, mel_bins] that preprocess would store, before rounding to float16."""
    return wave_to_mel(decode_wave(source, AUDIO, LIMITS, "clip"), AUDIO)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--clips", type=int, default=24)
    arguments = parser.parse_args()
    originals = [path.read_bytes() for path in sorted((arguments.data / "wavs").glob("*.wav"))[: arguments.clips]]
    mels = [mel_of(source) for source in originals]
    waves = [soundfile.read(io.BytesIO(source), dtype="float32") for source in originals]
    print(
        f"| {len(originals)} clips as | frames equal | mean | max | mean within 60 dB | max within 60 dB |\n"
        "|---|---|---|---|---|---|"
    )
    for name, write in FORMATS.items():
        again = [mel_of(write(wave, rate)) for wave, rate in waves]
        is_equal = all(len(one) == len(two) for one, two in zip(mels, again, strict=True))
        differences = [np.abs(one[: len(two)] - two[: len(one)]) for one, two in zip(mels, again, strict=True)]
        loud = [
            difference[one[: len(difference)] > one.max() - LOUD_RANGE]
            for difference, one in zip(differences, mels, strict=True)
        ]
        every, heard = np.concatenate([difference.ravel() for difference in differences]), np.concatenate(loud)
        figures = " | ".join(f"{value:.2g}" for value in (every.mean(), every.max(), heard.mean(), heard.max()))
        print(f"| {name} | {'yes' if is_equal else 'NO'} | {figures} |", flush=True)


if __name__ == "__main__":
    main()

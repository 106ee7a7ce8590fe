"""Check without TensorFlow whether a cache and the settings can train a vocoder."""

from pathlib import Path

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.errors import CacheError, ConfigError


def check_vocoder_settings(config: Config) -> Config:
    """Return the settings. Raises ConfigError if they cannot train a vocoder."""
    audio, settings, training = config.audio, config.vocoder, config.training
    samples = (settings.crop_frames - 1) * audio.hop_samples
    largest = max(audio.fft_size, *settings.spectral_sizes, *settings.discriminator_sizes, 0)
    found = None
    if training.batch_size == "auto":
        found = "training.batch_size=auto: found no number, expected one for a vocoder; give the crops of a batch"
    elif training.batch_size % settings.crops_per_clip:
        found = (
            f"training.batch_size={training.batch_size}: expected a multiple of "
            f"vocoder.crops_per_clip={settings.crops_per_clip}; change one of them"
        )
    elif training.accumulation_steps > 1:
        found = f"training.accumulation_steps={training.accumulation_steps}: a vocoder takes whole batches, expected 1"
    elif training.precision == "float16":
        found = "training.precision=float16: expected float32 or bfloat16 for a vocoder"
    elif samples < 2 * largest:
        found = (
            f"vocoder.crop_frames={settings.crop_frames}: a crop of {samples} samples, "
            f"expected at least {2 * largest}, twice the longest Fourier transform; raise it"
        )
    elif audio.fft_size % 2 or audio.hop_samples > audio.fft_size:
        found = f"audio.fft_size={audio.fft_size}: expected an even number of at least audio.hop_samples for a vocoder"
    if found:
        raise ConfigError(found)
    return config


def describe_crops(cache: Path, manifest: Manifest, config: Config) -> list[str]:
    """Return lines with the shape of the crops, and how many clips are too short for one.

    Raises CacheError if the training clips do not fill a batch.
    """
    settings, rows = config.vocoder, config.training.clips_per_batch
    seconds = (settings.crop_frames - 1) * manifest.audio.hop_samples / manifest.audio.sample_rate
    length = f"{settings.crop_frames} frames ({seconds:.2f} s)"
    kept, short = {"train": 0, "val": 0}, {"train": 0, "val": 0}
    for entry in read_utterances(cache):
        if entry.split in kept:
            (kept if entry.frames >= settings.crop_frames else short)[entry.split] += 1
    if kept["train"] < rows // settings.crops_per_clip:
        raise CacheError(
            f"{cache}: {kept['train']} training clips are as long as a crop of {length}, expected at least "
            f"{rows // settings.crops_per_clip}; lower training.batch_size or vocoder.crop_frames, or add clips"
        )
    if config.training.patience is not None and not kept["val"]:
        raise CacheError(
            f"{cache}: no validation clip is as long as a crop of {length}, but training.patience waits for its loss; "
            "leave it out, or preprocess with cache.validation_share over 0"
        )
    clips = f"{kept['train']} training and {kept['val']} validation clips"
    lines = [f"crops: {rows} of {length}, {settings.crops_per_clip} of each clip; {clips}"]
    if any(short.values()):
        clips = f"{short['train']} training and {short['val']} validation clips"
        lines.append(f"left out: {clips}, shorter than a crop of {settings.crop_frames} frames")
    return lines

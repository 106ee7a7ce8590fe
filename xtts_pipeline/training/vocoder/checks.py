"""Check without TensorFlow whether a cache and the settings can train a vocoder."""

from pathlib import Path

from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import AudioConfig, Config, VocoderConfig
from xtts_pipeline.errors import CacheError, ConfigError

# Discriminators cut the bins of a spectrum into four bands, and begin with a quarter of their width for a period.
LEAST_FFT_SIZE, LEAST_PERIOD_WIDTH = 8, 4


def check_vocoder_settings(config: Config) -> Config:
    """Return the settings. Raises ConfigError if they cannot train a vocoder."""
    audio, settings = config.audio, config.vocoder
    if found := _batch_problem(config) or _size_problem(audio, settings) or _discriminator_problem(audio, settings):
        raise ConfigError(found)
    return config


def _batch_problem(config: Config) -> str | None:
    training, crops = config.training, config.vocoder.crops_per_clip
    if training.batch_size == "auto":
        return "training.batch_size=auto: found no number, expected one for a vocoder; give the crops of a batch"
    if training.batch_size % crops:
        found = f"expected a multiple of vocoder.crops_per_clip={crops}; change one of them"
        return f"training.batch_size={training.batch_size}: {found}"
    if training.accumulation_steps > 1:
        return f"training.accumulation_steps={training.accumulation_steps}: a vocoder takes whole batches, expected 1"
    if training.precision == "float16":
        return "training.precision=float16: expected float32 or bfloat16 for a vocoder"
    return None


def _size_problem(audio: AudioConfig, settings: VocoderConfig) -> str | None:
    # Without an adversarial loss there are no discriminators.
    judged = settings.discriminator_sizes if settings.adversarial_weight else ()
    sizes = (*settings.spectral_sizes, *judged)
    samples, largest = _crop_samples(audio, settings), max((audio.fft_size, *sizes))
    if samples < 2 * largest:
        return (
            f"vocoder.crop_frames={settings.crop_frames}: a crop of {samples} samples, "
            f"expected at least {2 * largest}, twice the longest Fourier transform; raise it"
        )
    if min(sizes, default=LEAST_FFT_SIZE) < LEAST_FFT_SIZE:
        names = "vocoder.spectral_sizes and vocoder.discriminator_sizes"
        return f"{names}: found {min(sizes)}, expected {LEAST_FFT_SIZE} or more"
    if audio.fft_size % 2:
        return f"audio.fft_size={audio.fft_size}: expected an even number for a vocoder"
    if audio.hop_samples >= audio.window_samples:
        found = f"audio.hop_samples={audio.hop_samples}"
        return f"{found}: expected fewer than audio.window_samples={audio.window_samples} for a vocoder"
    return None


def _discriminator_problem(audio: AudioConfig, settings: VocoderConfig) -> str | None:
    samples, periods = _crop_samples(audio, settings), settings.discriminator_periods
    if settings.adversarial_weight and not (settings.discriminator_sizes or periods):
        names = "vocoder.discriminator_sizes and vocoder.discriminator_periods"
        return f"{names}: found none, expected a discriminator; name one, or set vocoder.adversarial_weight=0"
    if max(periods, default=0) > samples:
        return f"vocoder.discriminator_periods: found {max(periods)}, expected at most the {samples} samples of a crop"
    if periods and settings.discriminator_width < LEAST_PERIOD_WIDTH:
        found = f"expected at least {LEAST_PERIOD_WIDTH} for discriminators of periods"
        return f"vocoder.discriminator_width={settings.discriminator_width}: {found}"
    return None


def _crop_samples(audio: AudioConfig, settings: VocoderConfig) -> int:
    return (settings.crop_frames - 1) * audio.hop_samples


def describe_crops(cache: Path, manifest: Manifest, config: Config) -> list[str]:
    """Return lines with the shape of the crops, and how many clips are too short for one.

    Raises CacheError if the training clips do not fill a batch.
    """
    settings, rows = config.vocoder, config.training.clips_per_batch
    seconds = _crop_samples(manifest.audio, settings) / manifest.audio.sample_rate
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

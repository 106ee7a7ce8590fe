"""A run and a vocoder that speak without having been trained: random weights in checkpoints, made in a second."""

import math
from pathlib import Path

import tensorflow as tf

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import Manifest, cache_settings, record_spec
from xtts_pipeline.config.schema import Config
from xtts_pipeline.training.checkpoints.files import build_generator, build_network, save_checkpoint
from xtts_pipeline.training.checkpoints.variables import named_variables

SYMBOLS = tuple(" ,.;abcdefghijklmnopqrstuvwxyz")
MODEL = {
    "width": 16,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "feedforward_width": 16,
    "flow_layers": 1,
    "frames_per_step": 3,
    "voice_latents": 2,
    "voice_layers": 1,
    "reference_frames": 32,
}
SETTINGS = {
    "audio": {"mel_bins": 20},
    "limits": {"max_text_length": 24, "max_mel_frames": 40},
    "model": MODEL,
    # Tracing alone: compiling takes longer than all that these runs say.
    "training": {"jit_compile": False},
    "synthesis": {
        "chunk_frames": 12,
        "batch_size": 3,
        "max_frames_per_token": 2.0,
        # An untrained network says no word right, so every text would be decoded again.
        "max_attempts": 1,
        "griffin_lim_iterations": 2,
    },
}


def make_run(
    folder: Path,
    token_frames: float = 20.0,
    speakers: tuple[str, ...] = ("ann", "bob"),
    languages: tuple[str, ...] = ("en",),
    speaker_languages: tuple[str, ...] = (),
    **model: int,
) -> Path:
    """Write a run of random weights that speaks each token for so many frames; by default its texts reach a limit."""
    config = Config.model_validate({**SETTINGS, "model": {**MODEL, **model}})
    spec = record_spec(config)
    cache = CacheIdentity("fingerprint", spec, SYMBOLS, speakers, languages, speaker_languages)
    return save_untrained(folder, config, cache, token_frames)


def make_run_of_cache(folder: Path, manifest: Manifest) -> Path:
    """Write a run of random weights that was trained on such a cache."""
    settings = {**SETTINGS, **cache_settings(manifest)}
    cache = CacheIdentity(
        manifest.fingerprint, record_spec(manifest), manifest.symbols, manifest.speakers, manifest.languages
    )
    return save_untrained(folder, Config.model_validate(settings), cache)


def save_untrained(folder: Path, config: Config, cache: CacheIdentity, token_frames: float = 20.0) -> Path:
    """Write a checkpoint of random weights, and return its run."""
    network = build_network(cache, config)
    network.predictor.projection.weight.assign(tf.zeros_like(network.predictor.projection.weight))
    network.predictor.projection.bias.assign([math.log(token_frames), 0.0, 1.0, 0.0])
    weights = {f"average.{name}": variable.numpy() for name, variable in named_variables(network).items()}
    save_checkpoint(folder, 7, config, cache, weights, keep=1)
    return folder


def make_vocoder(folder: Path, **audio: float) -> Path:
    """Write a run of a vocoder of random weights for the mels of `make_run`, except for these settings."""
    settings = {**SETTINGS, "audio": {**SETTINGS["audio"], **audio}, "vocoder": {"width": 16, "blocks": 2}}
    config = Config.model_validate(settings)
    spec = record_spec(config)
    cache = CacheIdentity("fingerprint", spec, SYMBOLS, ("ann",), ("en",))
    weights = {f"average.{name}": value.numpy() for name, value in named_variables(build_generator(config)).items()}
    save_checkpoint(folder, 9, config, cache, weights, keep=1, network="vocoder")
    return folder

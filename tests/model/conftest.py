"""A network small enough to run in milliseconds, and batches for it."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig, ModelConfig
from xtts_pipeline.model.architecture import NetworkSizes
from xtts_pipeline.model.batch import Batch, Crop
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.losses import batch_totals
from xtts_pipeline.model.network import Network

SYMBOL_COUNT = 11
MODEL = ModelConfig(
    width=16,
    heads=2,
    encoder_layers=2,
    decoder_layers=2,
    feedforward_width=32,
    frames_per_step=3,
    voice_latents=4,
    voice_layers=1,
    reference_frames=8,
)
SPEC = RecordSpec(max_text_length=9, max_mel_frames=20, mel_bins=5, pad_value=-11.5)


AUDIO = AudioConfig(mel_bins=SPEC.mel_bins)


def make_network(spec: RecordSpec = SPEC, **settings: Any) -> Network:
    """Return a network; settings are those of the model, and `speakers`, `languages` and `dtype`."""
    names = {name: settings.pop(name) for name in ("speakers", "languages") if name in settings}
    dtype, sizes = settings.pop("dtype", tf.float32), NetworkSizes(spec, SYMBOL_COUNT, **names)
    return Network(MODEL.model_copy(update=settings), AUDIO, sizes, seed=1, dtype=dtype)


@pytest.fixture
def network() -> Network:
    return make_network()


@pytest.fixture
def batch() -> Batch:
    return random_batch(SPEC, text_length=(9, 4, 6), mel_length=(20, 7, 12))


@pytest.fixture
def crop() -> Crop:
    """Row 0 hears six of its frames, row 1 two, row 2 the null voice."""
    return Crop(tf.constant([10, 3, 0]), tf.constant([6, 2, 0]))


@pytest.fixture
def dropout() -> Dropout:
    return Dropout(tf.constant(7, tf.uint32), is_training=True)


def no_reference(batch: Batch) -> Crop:
    """Return the crop under which every row has the null voice."""
    return Crop(tf.zeros_like(batch.mel_length), tf.zeros_like(batch.mel_length))


def predict(network: Network, batch: Batch, crop: Crop, dropout: Dropout) -> np.ndarray:
    """Return the coarse frames [B, F, R * M] of clips with their own references."""
    coarse: np.ndarray = network(batch, network.own_references(batch, crop), dropout).decoded.coarse.numpy()
    return coarse


def losses_of(network: Network, batch: Batch, crop: Crop, dropout: Dropout) -> dict[str, tf.Tensor]:
    """Return the losses of a batch with its own references."""
    return network.losses(batch, crop, network.own_references(batch, crop), dropout, batch_totals(batch, crop))


def random_batch(spec: RecordSpec, text_length: tuple[int, ...], mel_length: tuple[int, ...], seed: int = 0) -> Batch:
    """Return a batch whose real parts depend on the seed and lengths alone, padded as the cache pads."""
    random = np.random.default_rng(seed)
    tokens = np.zeros((len(text_length), spec.max_text_length), np.int32)
    mel = np.full((len(mel_length), spec.max_mel_frames, spec.mel_bins), spec.pad_value, np.float16)
    for row, (symbols, frames) in enumerate(zip(text_length, mel_length, strict=True)):
        tokens[row, :symbols] = random.integers(3, SYMBOL_COUNT, symbols)
        mel[row, :frames] = random.normal(-5.0, 2.0, (frames, spec.mel_bins))
    return Batch(tf.constant(tokens), tf.constant(mel), tf.constant(text_length), tf.constant(mel_length))

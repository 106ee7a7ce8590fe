"""References of training from another clip of the same speaker in the batch."""

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC, make_network, random_batch
from xtts_pipeline.model.batch import Batch, Crop
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network


@pytest.fixture(scope="module")
def network() -> Network:
    return make_network(speakers=4)


@pytest.fixture
def batch() -> Batch:
    """Speaker 3 has the rows 0, 2 and 4; row 4 has the null voice, and row 5 only fills the batch."""
    made = random_batch(SPEC, (9, 4, 6, 5, 3, 0), (20, 7, 12, 9, 6, 0))
    return made._replace(speaker=tf.constant([3, 1, 3, 2, 3, 3]))


@pytest.fixture
def crop() -> Crop:
    return Crop(tf.constant([10, 3, 0, 1, 0, 0]), tf.constant([6, 2, 5, 4, 0, 0]))


def test_the_reference_is_the_next_clip_of_the_speaker(
    network: Network, batch: Batch, crop: Crop, dropout: Dropout
) -> None:
    own, heard = network.other_references(batch, crop, dropout)
    assert heard is not None
    # Row 0 hears row 2, row 2 hears row 4; all of their own frames count in the losses.
    np.testing.assert_array_equal(heard.length, [8, 2, 6, 4, 0, 0])
    np.testing.assert_array_equal(own.length, [0, 2, 0, 4, 0, 0])
    windows = [batch.mel[2, first : first + 8].numpy() for first in range(5)]
    assert sum(np.array_equal(heard.mel[0], window) for window in windows) == 1
    np.testing.assert_array_equal(heard.mel[2, :6], batch.mel[4, :6])


def test_a_voice_depends_on_the_other_clip_alone(network: Network, batch: Batch, crop: Crop, dropout: Dropout) -> None:
    def voices(mel: tf.Tensor) -> np.ndarray:
        changed = batch._replace(mel=mel)
        return network.encode_clips(changed, network.other_references(changed, crop, dropout)[1], dropout).voice

    mel = batch.mel.numpy()
    before = voices(batch.mel)
    mel[0] += 1.0
    after = voices(tf.constant(mel))
    # Row 4, the last of its speaker, has no reference, and no other row hears row 0.
    np.testing.assert_array_equal(after, before)
    mel[2] += 1.0
    changed = np.abs(voices(tf.constant(mel)) - before).max(axis=(1, 2))
    assert np.flatnonzero(changed > 1e-4).tolist() == [0]


def test_without_several_speakers_a_clip_is_its_own_reference(network: Network, batch: Batch, crop: Crop) -> None:
    one_speaker = batch._replace(speaker=None)
    own, heard = network.other_references(one_speaker, crop, Dropout.fixed(3))
    assert own is crop
    assert heard is not None
    np.testing.assert_array_equal(heard.mel[0, :6], batch.mel[0, 10:16])
    np.testing.assert_array_equal(heard.length, crop.length)

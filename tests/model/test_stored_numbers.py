"""Networks of checkpoints that users have compute the same numbers after a change of the code."""

import numpy as np
import tensorflow as tf

from tests.model.conftest import SPEC, make_network, random_batch
from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Network
from xtts_pipeline.training.checkpoints.variables import named_variables

ADDED = ("flow_head.null_condition",)


def with_fixed_weights(network: Network) -> Network:
    """Return the network with weights that depend on their order alone, as a checkpoint would give them.

    The order is that of names; a variable that was added later comes last, so the numbers of the others stay.
    """
    variables = sorted(named_variables(network).items(), key=lambda item: (item[0] in ADDED, item[0]))
    for number, (_, variable) in enumerate(variables):
        # The old generator: NumPy promises that its numbers never change.
        variable.assign(np.random.RandomState(number).normal(0.0, 0.4, variable.shape).astype(np.float32))
    return network


def test_the_weights_of_a_checkpoint_say_what_they_have_always_said() -> None:
    network = with_fixed_weights(make_network(speakers=2, languages=2, flow_layers=1))
    ids = {"speaker": tf.constant([0, 1]), "language": tf.constant([1, 0])}
    batch = random_batch(SPEC, (9, 5), (20, 12))._replace(**ids)
    voice = network.embed_voice(tf.cast(batch.mel[:, :8], tf.float32), tf.constant([8, 6]), Dropout.fixed(3))
    memory = network.encode(batch, voice, tf.constant([True, False]), Dropout.fixed(3))
    frames_B = tf.fill([2], 20)
    speech = network.speak(memory, Dropout.fixed(3), frames_B, SynthesisConfig(guidance=1.0))
    guided = network.speak(memory, Dropout.fixed(3), frames_B, SynthesisConfig(guidance=3.0))
    prosody = tf.stack(network.predictor(network.add_voice(memory), memory.text_mask, Dropout.fixed(3)), axis=-1)
    mean_frames = network.aligner.mean_frames(batch.tokens, batch.text_length, memory.voice_vector)
    parts = (voice, memory.text, prosody, speech.duration[..., None], speech.mel, mean_frames, guided.mel)
    found = [part[:, 2, :4] for part in parts]
    # Where these numbers must change, checkpoints need another version.
    expected = [
        [[-0.578, 0.473, -1.207, 0.625], [-0.576, 0.567, -1.067, 0.636]],
        [[-0.713, 0.861, 0.414, 0.318], [0.074, 0.74, 0.867, 0.792]],
        [[-1.987, -1.387, 1.212, 1.01], [-2.434, -0.761, 1.63, 0.503]],
        [[1.0], [1.0]],
        [[-6.143, 4.196, -1.659, -1.462], [-11.5, 3.419, 0.158, 4.766]],
        [[20.082, 32.555, -14.753, -33.718], [9.708, 31.14, -3.64, 0.182]],
        [[-3.894, 3.759, -0.144, 1.334], [-11.5, 4.251, 2.672, 6.337]],
    ]
    for part, numbers in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, numbers, atol=2e-3)

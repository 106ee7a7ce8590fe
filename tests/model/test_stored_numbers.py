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
    voice = network.embed_voice(tf.cast(batch.mel[:, None, :8], tf.float32), tf.constant([[8], [6]]), Dropout.fixed(3))
    # Noise has no pitch; the first number of these latents is that of a voice.
    voice += 0.25 * tf.one_hot(0, voice.shape[-1])
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
        [[0.25, 0.473, -1.207, 0.625], [0.25, 0.567, -1.067, 0.636]],
        [[-0.713, 0.861, 0.414, 0.318], [0.074, 0.74, 0.867, 0.792]],
        [[-2.556, -0.96, 1.569, 1.266], [-2.394, -0.778, 1.602, 0.468]],
        [[1.0], [1.0]],
        [[-7.862, 1.685, -1.157, -2.642], [-11.5, 2.397, 0.125, 4.085]],
        [[19.739, 33.204, -4.783, -30.203], [9.489, 31.643, -4.697, -0.664]],
        [[-7.752, 0.795, 0.124, 0.359], [-11.5, 3.237, 2.886, 5.487]],
    ]
    for part, numbers in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, numbers, atol=2e-3)

"""Which token each frame of a clip says, learnt from the clips themselves beside the network; speaking does not need it.

A hidden Markov model trained by gradient: each token has a frame that it sounds like on average, and a clip's frames are shared out over
all ways through its text that miss no token and never step back (Baum et al. 1970). What comes out tells the decoder which token it said
last and where to look next, long before it could find out by itself from how well it predicts frames.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.model.layers import Convolution, Dense, Initializer, length_mask

WIDTH = 128
# A token and its neighbours: few enough that no token can learn to sound like its neighbour's neighbour.
TAPS = 3
# What a mean squared error of 1 in the network's scale costs a path. Bins of a frame are far from independent, so this is a third of what
# 80 bins with the error of a finished model would give; sharper, and the first bad paths would be kept for good.
SHARPNESS = 32.0
IMPOSSIBLE = -1e9


class Alignment(NamedTuple):
    """Which token each frame of a batch says, and how far frames are from what tokens sound like; float32 [B, T, S] each.

    error: mean squared, in the network's scale. posterior: how likely each frame says each token; no gradient flows through it.
    """

    error: tf.Tensor
    posterior: tf.Tensor


class Aligner(tf.Module):
    """What each token sounds like on average, by itself and its two neighbours."""

    def __init__(self, initializer: Initializer, symbol_count: int, mel_bins: int) -> None:
        super().__init__(name="aligner")
        self.embedding = initializer.normal((symbol_count, WIDTH), 0.5, "embedding")
        self.convolution = Convolution(initializer, WIDTH, WIDTH, TAPS, "convolution")
        self.to_frame = Dense(initializer, WIDTH, mel_bins, "to_frame")

    def __call__(
        self, tokens_BS: tf.Tensor, text_length_B: tf.Tensor, mel_BTM: tf.Tensor, mel_length_B: tf.Tensor
    ) -> Alignment:
        """Return the alignment of texts and mels, which are in the network's scale."""
        error_BTS = self.errors(tokens_BS, text_length_B, mel_BTM)
        return Alignment(error_BTS, alignment_posterior(-SHARPNESS * error_BTS, text_length_B, mel_length_B))

    def errors(self, tokens_BS: tf.Tensor, text_length_B: tf.Tensor, mel_BTM: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error of each frame against each token's average frame, float32 [B, T, S], in the scale of `mel_BTM`."""
        mask_BS = length_mask(text_length_B, tokens_BS.shape[1])
        x_BSD = tf.where(mask_BS[..., None], tf.gather(self.embedding, tokens_BS), 0.0)
        average_BSM = self.to_frame(x_BSD + tf.nn.relu(self.convolution(x_BSD)))
        # The square of a difference in parts: the differences themselves, [B, T, S, M], would be gigabytes.
        product_BTS = tf.einsum("BTM,BSM->BTS", mel_BTM, average_BSM)
        squares_BTS = (
            tf.reduce_sum(tf.square(mel_BTM), axis=-1)[:, :, None]
            + tf.reduce_sum(tf.square(average_BSM), axis=-1)[:, None, :]
        )
        return (squares_BTS - 2.0 * product_BTS) / mel_BTM.shape[-1]


def alignment_posterior(log_likelihood_BTS: tf.Tensor, text_length_B: tf.Tensor, mel_length_B: tf.Tensor) -> tf.Tensor:
    """Return how likely each frame says each token, float32 [B, T, S]; a real frame's row sums to 1.

    `log_likelihood` is of each frame under each token. Paths begin at the first token, end at the last, and at each frame stay or go on
    by one. Rows with more tokens than frames have no path: all 0. No gradient flows through it: in expectation maximisation the shares
    are constants of the step that follows.
    """
    rows, frames, symbols = log_likelihood_BTS.shape
    is_symbol_B1S = length_mask(text_length_B, symbols)[:, None, :]
    # Every path has each frame once, so what a frame costs under its best token may be taken off; sums stay small and exact.
    best_BT1 = tf.reduce_max(tf.where(is_symbol_B1S, log_likelihood_BTS, IMPOSSIBLE), axis=-1, keepdims=True)
    likelihood_BTS = tf.where(is_symbol_B1S, log_likelihood_BTS - best_BT1, IMPOSSIBLE)
    reversed_frame_BT = tf.maximum(mel_length_B[:, None] - 1 - tf.range(frames)[None, :], 0)
    reversed_symbol_BS = tf.maximum(text_length_B[:, None] - 1 - tf.range(symbols)[None, :], 0)

    def turn_round(x_BTS: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.gather(x_BTS, reversed_frame_BT, batch_dims=1), reversed_symbol_BS, axis=2, batch_dims=1)

    # The way back through the text is the way forward through the clip turned round, so one loop walks both.
    backwards_BTS = tf.where(is_symbol_B1S, turn_round(likelihood_BTS), IMPOSSIBLE)
    walked = _walk(tf.concat([likelihood_BTS, backwards_BTS], axis=0))
    until_BTS, from_BTS = walked[:rows], turn_round(walked[rows:])
    whole_B = from_BTS[:, 0, 0]
    share_BTS = tf.exp(tf.minimum(until_BTS + from_BTS - likelihood_BTS - whole_B[:, None, None], 0.0))
    has_path_B11 = (mel_length_B >= text_length_B)[:, None, None]
    is_real_BTS = is_symbol_B1S & length_mask(mel_length_B, frames)[..., None] & has_path_B11
    return tf.stop_gradient(tf.where(is_real_BTS, share_BTS, 0.0))


def shares_of_steps(posterior_BTS: tf.Tensor, frames_per_step: int) -> tf.Tensor:
    """Return the mean over the real frames of each decoder step, [B, F, S]; a step without real frames has zeros."""
    rows, frames, symbols = posterior_BTS.shape
    whole = tf.pad(posterior_BTS, [[0, 0], [0, -frames % frames_per_step], [0, 0]])
    sum_BFS = tf.reduce_sum(tf.reshape(whole, [rows, -1, frames_per_step, symbols]), axis=2)
    return sum_BFS / tf.maximum(tf.reduce_sum(sum_BFS, axis=-1, keepdims=True), 1e-6)


def _walk(likelihood_BTS: tf.Tensor) -> tf.Tensor:
    """Return the log likelihood of all paths from the first token at the first frame to each token at each frame, [B, T, S]."""
    rows, frames, symbols = likelihood_BTS.shape
    likelihood_TBS = tf.transpose(likelihood_BTS, [1, 0, 2])
    before_BS = tf.fill([rows, symbols], IMPOSSIBLE)
    # Whoever stays before the first frame stays at no token: only the first token can be come to.
    is_first_S = tf.range(symbols) == 0
    walked_TBS = tf.TensorArray(tf.float32, frames, element_shape=[rows, symbols])

    def go_on(
        frame: tf.Tensor, until_BS: tf.Tensor, walked_TBS: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        moved_BS = tf.pad(until_BS[:, :-1], [[0, 0], [1, 0]], constant_values=IMPOSSIBLE)
        moved_BS = tf.where(is_first_S & (frame == 0), 0.0, moved_BS)
        likelier_BS = tf.maximum(until_BS, moved_BS)
        either_BS = likelier_BS + tf.math.log1p(tf.exp(tf.minimum(until_BS, moved_BS) - likelier_BS))
        # Held up, or impossible ones would grow without end.
        until_BS = tf.maximum(either_BS + likelihood_TBS[frame], IMPOSSIBLE)
        return frame + 1, until_BS, walked_TBS.write(frame, until_BS)

    *_, walked_TBS = tf.while_loop(lambda frame, *_: frame < frames, go_on, (tf.constant(0), before_BS, walked_TBS))
    return tf.transpose(walked_TBS.stack(), [1, 0, 2])

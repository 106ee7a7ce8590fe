"""Align frames with tokens, without supervision: in training, and to check finished speech.

A hidden Markov model trained by gradient. Each token has a mean frame, and the posterior sums over all monotonic paths
through the text that skip no token (Baum et al. 1970). The posterior gives each token its frames, in training.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.model.architecture import ALIGNER_LARGEST_ERROR, ALIGNER_SMOOTHING, ALIGNER_TAPS, ALIGNER_WIDTH
from xtts_pipeline.model.layers import Convolution, Dense, Initializer, embed, length_mask, shifted

# Cost of a mean squared error of 1 in the network's scale: far below the value for independent bins and frames. A
# higher value would lock in the first bad paths.
SHARPNESS = 32.0
IMPOSSIBLE = -1e9
# Each iteration starts several kernels on a GPU, so it handles several frames there. On a CPU it handles one: there,
# XLA's fused program would compute the earlier frames of an iteration again for each later one.
FRAMES_PER_GPU_ITERATION = 16


class Alignment(NamedTuple):
    """Alignment of a batch.

    mel: the smoothed frames that were aligned, float32 [B, T, M]. error: their mean squared error against each token's
    mean frame, in the network's scale, float32 [B, T, S]. posterior: probability that each frame belongs to each token,
    float32 [B, T, S]; no gradient flows through it.
    """

    mel: tf.Tensor
    error: tf.Tensor
    posterior: tf.Tensor


class Aligner(tf.Module):
    """Compare smoothed frames with each token's mean frame, predicted from the token, its neighbours and the voice.

    With one mean for all speakers, the means explained only half of the frames' variance, and the durations that were
    measured by them were inaccurate.

    voice_width: size of a voice's vector, None for a network of one voice.
    """

    def __init__(
        self, initializer: Initializer, symbol_count: int, mel_bins: int, voice_width: int | None = None
    ) -> None:
        super().__init__(name="aligner")
        self.embedding = initializer.normal((symbol_count, ALIGNER_WIDTH), 0.5, "embedding")
        self.convolution = Convolution(initializer, ALIGNER_WIDTH, ALIGNER_WIDTH, ALIGNER_TAPS, "convolution")
        self.to_frame = Dense(initializer, ALIGNER_WIDTH, mel_bins, "to_frame")
        self.voice_weight = None
        if voice_width is not None:
            # From zero: before the first paths are found, a random voice would only hide the tokens.
            self.voice_weight = tf.Variable(tf.zeros([voice_width, ALIGNER_WIDTH]), name="voice_weight")

    def __call__(
        self,
        tokens_BS: tf.Tensor,
        text_length_B: tf.Tensor,
        mel_BTM: tf.Tensor,
        mel_length_B: tf.Tensor,
        voice_BD: tf.Tensor | None = None,
    ) -> Alignment:
        """Return the alignment of texts and mels; mels are in the network's scale."""
        smooth_BTM = smoothed(mel_BTM, mel_length_B)
        error_BTS = self.errors(tokens_BS, text_length_B, smooth_BTM, voice_BD)
        log_likelihood_BTS = -SHARPNESS * tf.minimum(error_BTS, ALIGNER_LARGEST_ERROR)
        posterior_BTS = alignment_posterior(log_likelihood_BTS, text_length_B, mel_length_B)
        return Alignment(smooth_BTM, error_BTS, posterior_BTS)

    def errors(
        self, tokens_BS: tf.Tensor, text_length_B: tf.Tensor, mel_BTM: tf.Tensor, voice_BD: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return the mean squared error of each frame against each token's mean frame, float32 [B, T, S]."""
        average_BSM = self.mean_frames(tokens_BS, text_length_B, voice_BD)
        # Expand the square: the differences themselves, [B, T, S, M], would take gigabytes.
        product_BTS = tf.einsum("BTM,BSM->BTS", mel_BTM, average_BSM)
        squares_BTS = (
            tf.reduce_sum(tf.square(mel_BTM), axis=-1)[:, :, None]
            + tf.reduce_sum(tf.square(average_BSM), axis=-1)[:, None, :]
        )
        return (squares_BTS - 2.0 * product_BTS) / mel_BTM.shape[-1]

    def mean_frames(
        self, tokens_BS: tf.Tensor, text_length_B: tf.Tensor, voice_BD: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Return each token's mean frame in the network's scale, float32 [B, S, M]; `voice` is a memory's vector."""
        mask_BS = length_mask(text_length_B, tokens_BS.shape[1])
        x_BSD = embed(self.embedding, tokens_BS)
        if self.voice_weight is not None:
            x_BSD += tf.matmul(voice_BD, self.voice_weight)[:, None, :]
        x_BSD = tf.where(mask_BS[..., None], x_BSD, 0.0)
        return self.to_frame(x_BSD + tf.nn.relu(self.convolution(x_BSD)))


def smoothed(mel_BTM: tf.Tensor, mel_length_B: tf.Tensor) -> tf.Tensor:
    """Return each frame's average with its neighbours in the clip by `ALIGNER_SMOOTHING`, [B, T, M]."""
    is_real_BT1 = length_mask(mel_length_B, mel_BTM.shape[1])[..., None]

    def weighted_sum(x_BTM: tf.Tensor) -> tf.Tensor:
        neighbours = zip(ALIGNER_SMOOTHING, shifted(x_BTM, len(ALIGNER_SMOOTHING) // 2), strict=True)
        return tf.add_n([weight * neighbour_BTM for weight, neighbour_BTM in neighbours])

    total_BT1 = weighted_sum(tf.cast(is_real_BT1, mel_BTM.dtype))
    return tf.math.divide_no_nan(weighted_sum(tf.where(is_real_BT1, mel_BTM, 0.0)), total_BT1)


def alignment_posterior(log_likelihood_BTS: tf.Tensor, text_length_B: tf.Tensor, mel_length_B: tf.Tensor) -> tf.Tensor:
    """Return the probability that each frame belongs to each token, float32 [B, T, S]; each real frame sums to 1.

    `log_likelihood` is of each frame under each token. Paths start at the first token, end at the last, and at each
    frame stay or advance by one token. A row with more tokens than frames has no path and is all 0. No gradient flows
    through the result: in expectation maximisation the posterior is a constant of the M step.
    """
    rows, frames, symbols = log_likelihood_BTS.shape
    is_symbol_B1S = length_mask(text_length_B, symbols)[:, None, :]
    # Each path visits each frame once, so each frame's best score can be subtracted; sums stay small.
    best_BT1 = tf.reduce_max(tf.where(is_symbol_B1S, log_likelihood_BTS, IMPOSSIBLE), axis=-1, keepdims=True)
    likelihood_BTS = tf.where(is_symbol_B1S, log_likelihood_BTS - best_BT1, IMPOSSIBLE)
    reversed_frame_BT = tf.maximum(mel_length_B[:, None] - 1 - tf.range(frames)[None, :], 0)
    reversed_symbol_BS = tf.maximum(text_length_B[:, None] - 1 - tf.range(symbols)[None, :], 0)

    def reverse(x_BTS: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.gather(x_BTS, reversed_frame_BT, batch_dims=1), reversed_symbol_BS, axis=2, batch_dims=1)

    # The backward pass is the forward pass over reversed frames and tokens, so one loop computes both.
    reversed_BTS = tf.where(is_symbol_B1S, reverse(likelihood_BTS), IMPOSSIBLE)
    passes = _forward_log_likelihood(tf.concat([likelihood_BTS, reversed_BTS], axis=0))
    forward_BTS, backward_BTS = passes[:rows], reverse(passes[rows:])
    # Divided by the frame's own sum, not by that of the whole: the two differ by the rounding of hundreds of frames.
    score_BTS = tf.where(is_symbol_B1S, forward_BTS + backward_BTS - likelihood_BTS, IMPOSSIBLE)
    posterior_BTS = tf.nn.softmax(score_BTS, axis=-1)
    has_path_B11 = (mel_length_B >= text_length_B)[:, None, None]
    is_real_BTS = is_symbol_B1S & length_mask(mel_length_B, frames)[..., None] & has_path_B11
    return tf.stop_gradient(tf.where(is_real_BTS, posterior_BTS, 0.0))


def _forward_log_likelihood(likelihood_BTS: tf.Tensor) -> tf.Tensor:
    """Return the log likelihood of all paths from the first token at frame 0 to each token at each frame, [B, T, S]."""
    rows, frames, symbols = likelihood_BTS.shape
    block_frames = FRAMES_PER_GPU_ITERATION if tf.config.list_physical_devices("GPU") else 1
    blocks = -(-frames // block_frames)
    likelihood_TBS = tf.transpose(likelihood_BTS, [1, 0, 2])
    likelihood_TBS = tf.pad(likelihood_TBS, [[0, blocks * block_frames - frames], [0, 0], [0, 0]])
    likelihood_NUBS = tf.reshape(likelihood_TBS, [blocks, block_frames, rows, symbols])
    before_BS = tf.fill([rows, symbols], IMPOSSIBLE)
    # Before frame 0 only token 0 is reachable.
    is_first_S = tf.range(symbols) == 0
    forward_NUBS = tf.TensorArray(tf.float32, blocks, element_shape=[block_frames, rows, symbols])

    def advance(
        block: tf.Tensor, stay_BS: tf.Tensor, forward_NUBS: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        forward_UBS = []
        for number, likelihood_BS in enumerate(tf.unstack(likelihood_NUBS[block])):
            moved_BS = tf.pad(stay_BS[:, :-1], [[0, 0], [1, 0]], constant_values=IMPOSSIBLE)
            if number == 0:
                moved_BS = tf.where(is_first_S & (block == 0), 0.0, moved_BS)
            likelier_BS = tf.maximum(stay_BS, moved_BS)
            either_BS = likelier_BS + tf.math.log1p(tf.exp(tf.minimum(stay_BS, moved_BS) - likelier_BS))
            # Bounded below: impossible paths would otherwise decrease without limit.
            stay_BS = tf.maximum(either_BS + likelihood_BS, IMPOSSIBLE)
            forward_UBS.append(stay_BS)
        return block + 1, stay_BS, forward_NUBS.write(block, tf.stack(forward_UBS))

    *_, forward_NUBS = tf.while_loop(
        lambda block, *_: block < blocks, advance, (tf.constant(0), before_BS, forward_NUBS)
    )
    forward_TBS = tf.reshape(forward_NUBS.stack(), [-1, rows, symbols])[:frames]
    return tf.transpose(forward_TBS, [1, 0, 2])

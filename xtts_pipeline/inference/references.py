"""Cut references of a voice into windows, as operations of a graph."""

import tensorflow as tf

MAX_WINDOWS = 8
# A window is a pause if its loudest frame is this far below the clip's loudest, in natural log (40 dB).
PAUSE_DEPTH = 4.6


def cut_windows(mel_BCM: tf.Tensor, length_B: tf.Tensor, window_frames: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the windows of references, [B, N, window_frames, M], and their lengths [B, N].

    The windows are spread evenly over the mel, as many as cover it, MAX_WINDOWS at most; pauses are left out. At least
    one row must have a real frame. Unused windows have length 0 and may stand between used ones.
    """
    part_B = tf.minimum(length_B, window_frames)
    count_B = tf.clip_by_value(-(-length_B // window_frames), 1, MAX_WINDOWS)
    number_N = tf.range(MAX_WINDOWS)
    stride_B = tf.cast(length_B - part_B, tf.float64) / tf.cast(tf.maximum(count_B - 1, 1), tf.float64)
    start_BN = tf.cast(tf.round(tf.cast(number_N, tf.float64) * stride_B[:, None]), tf.int32)

    def frames_from(start_BN: tf.Tensor) -> tf.Tensor:
        return tf.minimum(start_BN[:, :, None] + tf.range(window_frames), tf.maximum(length_B - 1, 0)[:, None, None])

    peak_BC = tf.reduce_max(mel_BCM, axis=-1)
    peak_BC = tf.where(tf.sequence_mask(length_B, tf.shape(mel_BCM)[1]), peak_BC, peak_BC.dtype.min)
    loudest_B1 = tf.reduce_max(peak_BC, axis=1, keepdims=True)
    is_loud_BN = (
        tf.reduce_max(tf.gather(peak_BC, frames_from(start_BN), batch_dims=1), axis=2) >= loudest_B1 - PAUSE_DEPTH
    )
    is_heard_BN = is_loud_BN & (number_N < count_B[:, None])

    # If all windows are in pauses, the first moves to the loudest frame.
    is_moved_BN = ~tf.reduce_any(is_heard_BN, axis=1, keepdims=True) & (number_N == 0)
    loudest_start_B = tf.clip_by_value(
        tf.argmax(peak_BC, axis=1, output_type=tf.int32) - part_B // 2, 0, length_B - part_B
    )
    start_BN = tf.where(is_moved_BN, loudest_start_B[:, None], start_BN)
    length_BN = tf.where(is_heard_BN | is_moved_BN, part_B[:, None], 0)
    # Frames after a window's length repeat the last one; the voice encoder masks them.
    return tf.gather(mel_BCM, frames_from(start_BN), batch_dims=1), length_BN

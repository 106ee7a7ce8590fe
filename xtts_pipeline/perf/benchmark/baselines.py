"""Baselines of the input benchmark: other usual ways to feed a training, each tuned as well as possible.

All yield shuffled batches of the cache's static shape from the same clips: tokens, mel float16, both lengths. All use
AUTOTUNE, every core and prefetching, and give up order for speed, unlike the cache's pipeline. No other module of the
package runs Python inside tf.data; this one measures its cost.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.filterbank import mel_filterbank
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.perf.benchmark.clips import Clip
from xtts_pipeline.perf.benchmark.librosa_mel import librosa_log_mel
from xtts_pipeline.text.tokens import PAD_ID

Mel = Callable[[tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class BaselineClips:
    """The clips that all baselines read, and the shape of their batches."""

    clips: Sequence[Clip]
    spec: RecordSpec
    audio: AudioConfig
    batch_size: int


def librosa_pipeline(given: BaselineClips) -> tf.data.Dataset:
    """Return batches with mels that librosa computes from WAV files inside `tf.numpy_function`."""

    def mel_of(path: bytes) -> np.ndarray:
        return librosa_log_mel(path.decode(), given.audio).astype(np.float16)

    return _pipeline(
        given, [str(clip.wave) for clip in given.clips], lambda path: tf.numpy_function(mel_of, [path], tf.float16)
    )


def npy_pipeline(given: BaselineClips, folder: Path) -> tf.data.Dataset:
    """Return batches with mels that `tf.numpy_function` loads from .npy files, written to `folder` first."""
    folder.mkdir()
    paths = []
    for number, clip in enumerate(given.clips):
        paths.append(str(folder / f"{number}.npy"))
        np.save(paths[-1], clip.example.mel.astype(np.float16))

    # Python 3.11 sometimes fails to parse the header in several threads at once: python/cpython#106905.
    one_at_a_time = threading.Lock()

    def mel_of(path: bytes) -> np.ndarray:
        with one_at_a_time:
            mel: np.ndarray = np.load(path.decode())
        return mel

    return _pipeline(given, paths, lambda path: tf.numpy_function(mel_of, [path], tf.float16))


def native_pipeline(given: BaselineClips) -> tf.data.Dataset:
    """Return batches with mels by TensorFlow operations on WAV files: decode_wav, stft, librosa's filterbank."""
    audio = given.audio
    filters = tf.constant(mel_filterbank(audio).T)
    half = audio.fft_size // 2

    def mel_of(path: tf.Tensor) -> tf.Tensor:
        wave = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=1).audio[:, 0]
        spectrum = tf.signal.stft(tf.pad(wave, [[half, half]]), audio.window_samples, audio.hop_samples, audio.fft_size)
        return tf.cast(tf.math.log(tf.maximum(tf.abs(spectrum) @ filters, audio.floor)), tf.float16)

    return _pipeline(given, [str(clip.wave) for clip in given.clips], mel_of)


def _pipeline(given: BaselineClips, sources: Sequence[str], mel_of: Mel) -> tf.data.Dataset:
    """Return endless shuffled batches; `mel_of` makes the mel of a clip from its source."""
    spec = given.spec
    tokens = tf.ragged.constant([clip.example.tokens.tolist() for clip in given.clips], tf.int32)

    def example(source: tf.Tensor, tokens_S: tf.Tensor) -> dict[str, tf.Tensor]:
        # A clip that the cache trimmed may be longer here, which is no fault of the baseline.
        mel_TM = mel_of(source)[: spec.max_mel_frames]
        mel_TM.set_shape([None, spec.mel_bins])
        return {"tokens": tokens_S, "text_length": tf.size(tokens_S), "mel": mel_TM, "mel_length": tf.shape(mel_TM)[0]}

    shapes = {
        "tokens": [spec.max_text_length],
        "text_length": [],
        "mel": [spec.max_mel_frames, spec.mel_bins],
        "mel_length": [],
    }
    silence = np.float16(spec.pad_value)
    padding = {"tokens": PAD_ID, "text_length": 0, "mel": silence, "mel_length": 0}
    clips = tf.data.Dataset.from_tensor_slices((list(sources), tokens)).shuffle(len(sources)).repeat()
    examples = clips.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    options = tf.data.Options()
    options.deterministic = False
    batches = examples.padded_batch(given.batch_size, shapes, padding, drop_remainder=True)
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)

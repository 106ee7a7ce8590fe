"""Read clips and compute their features by TensorFlow operations, equal to audio/load.py and audio/mel.py in NumPy.

It trusts the survey; a file whose rate or length has changed since then is an error.
"""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.mel import analysis_plan
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig
from xtts_pipeline.data.resample import Resampler
from xtts_pipeline.data.survey import SurveyedClip
from xtts_pipeline.errors import CorpusError, first_line_of

_TRIAL_BLOCKS = 128


def check_headers(clips: Iterable[SurveyedClip]) -> None:
    """Raise CorpusError if TensorFlow's decoder, which supports fewer kinds of header than ours, rejects a clip's."""
    seen: set[bytes] = set()
    for clip in clips:
        if clip.header in seen:
            continue
        seen.add(clip.header)
        sample_bytes = _TRIAL_BLOCKS * clip.block_bytes
        trial = bytearray(clip.header) + bytes(sample_bytes)
        trial[4:8] = (len(trial) - 8).to_bytes(4, "little")
        trial[len(clip.header) - 4 : len(clip.header)] = sample_bytes.to_bytes(4, "little")
        try:
            tf.audio.decode_wav(bytes(trial))
        except tf.errors.InvalidArgumentError as error:
            found = first_line_of(error.message.rpartition("}} ")[2])
            raise CorpusError(
                f"{clip.path}: TensorFlow does not read its header ({found}), expected a plain one for --data; "
                "write the file anew, or use xtts preprocess, which reads it"
            ) from None


def read_wave(path: tf.Tensor, end: tf.Tensor, audio: AudioConfig, resampler: Resampler) -> tf.Tensor:
    """Return the mono, normalised wave of a 16-bit WAV file at `audio.sample_rate`: float32 [samples].

    `end` is the byte after the samples. TensorFlow would refuse some of the chunks that may follow, such as odd ones.
    """
    samples, rate = tf.audio.decode_wav(tf.strings.substr(tf.io.read_file(path), tf.zeros([], tf.int64), end))
    # Skip the mean of one channel, which would only copy it.
    wave = tf.cond(
        tf.shape(samples)[1] == 1, lambda: tf.reshape(samples, [-1]), lambda: tf.reduce_mean(samples, axis=1)
    )
    return normalize_level(resampler(wave, rate), audio)


def normalize_level(wave: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return the wave scaled as by `audio.loudness.normalize_loudness`, for `none`, `peak` and `rms`."""
    if audio.normalize == "none":
        return wave
    peak = tf.cast(tf.reduce_max(tf.abs(wave)), tf.float64)
    level = peak if audio.normalize == "peak" else tf.sqrt(tf.reduce_mean(tf.square(tf.cast(wave, tf.float64))))
    wanted = 10.0 ** (audio.normalize_to_db / 20)
    gain = tf.minimum(wanted / tf.maximum(level, 1e-12), 1.0 / tf.maximum(peak, 1e-12))
    return wave * tf.cast(tf.where(peak > 0.0, gain, 1.0), tf.float32)


def wave_to_mel(wave: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return natural-log mel frames, float32 [frames, mel_bins], as `audio.mel.wave_to_mel` does, with trimming."""
    # The window spans the whole transform, zero beyond window_samples, so that frames are centred as in audio/mel.py.
    window, filters, (low, high) = analysis_plan(audio)
    padded = _padded(wave, audio)
    spectrum = tf.signal.stft(
        padded, audio.fft_size, audio.hop_samples, audio.fft_size, window_fn=lambda _, dtype: tf.cast(window, dtype)
    )
    # Not tf.abs: its guard against overflow doubles the cost, and samples up to 1 cannot overflow.
    used = spectrum[:, low:high]
    magnitudes = tf.sqrt(tf.square(tf.math.real(used)) + tf.square(tf.math.imag(used)))
    mel = tf.matmul(magnitudes, filters)
    log_mel = tf.math.log(tf.maximum(mel, np.float32(audio.floor)))
    if audio.trim_db is None:
        return log_mel
    first, end = _sound_span(padded, audio, audio.trim_db)
    return log_mel[first:end]


def trimmed_wave(wave: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    """Return the samples under the frames that `wave_to_mel` keeps, whose mel has as many frames without trimming."""
    if audio.trim_db is None:
        return wave
    first, end = _sound_span(_padded(wave, audio), audio, audio.trim_db)
    return wave[first * audio.hop_samples : end * audio.hop_samples - 1]


def _padded(wave: tf.Tensor, audio: AudioConfig) -> tf.Tensor:
    half = audio.fft_size // 2
    return tf.pad(wave, [[half, audio.fft_size - half]])


def _sound_span(padded: tf.Tensor, audio: AudioConfig, trim_db: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first frame that `audio.mel.sound_span` keeps, and the end."""
    window, _, _ = analysis_plan(audio)
    windowed = tf.signal.frame(padded, audio.fft_size, audio.hop_samples) * window
    energy = tf.reduce_sum(tf.square(windowed), axis=1)
    loud = tf.where(energy >= tf.reduce_max(energy) * np.float32(10 ** (-trim_db / 10)))[:, 0]
    margin = round(audio.trim_margin_seconds * audio.sample_rate / audio.hop_samples)
    return tf.maximum(loud[0] - margin, 0), tf.minimum(loud[-1] + 1 + margin, tf.shape(energy, tf.int64)[0])


def padded_mel(log_mel: tf.Tensor, spec: RecordSpec) -> dict[str, tf.Tensor]:
    """Return a record's `mel` and `mel_length`; raises InvalidArgumentError for more frames than the spec has."""
    frames = tf.shape(log_mel)[0]
    mel = tf.pad(
        tf.cast(log_mel, tf.float16),
        [[0, spec.max_mel_frames - frames], [0, 0]],
        constant_values=np.float16(spec.pad_value),
    )
    return {"mel": tf.ensure_shape(mel, [spec.max_mel_frames, spec.mel_bins]), "mel_length": frames}


def padded_tokens(encoded: tf.Tensor, spec: RecordSpec) -> dict[str, tf.Tensor]:
    """Return a record's `tokens` and `text_length` from its tokens as little-endian int32 bytes."""
    tokens = tf.io.decode_raw(encoded, tf.int32)
    length = tf.shape(tokens)[0]
    padded = tf.pad(tokens, [[0, spec.max_text_length - length]])  # with PAD_ID, which is 0
    return {"tokens": tf.ensure_shape(padded, [spec.max_text_length]), "text_length": length}

"""Predict the next frames from encoded text, a voice and earlier frames: a causal decoder with cross-attention.

The same layers run over a whole sequence in training, and one decoder step at a time with cached keys and values in
inference. A postnet refines the frames.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.architecture import GUIDED_HEADS, GUIDED_LAYERS, POSTNET_TAPS
from xtts_pipeline.model.layers import (
    Attention,
    Convolution,
    Dense,
    Dropout,
    FeedForward,
    Initializer,
    LayerNorm,
    add_positions,
    recomputed,
    sinusoid_positions,
)
from xtts_pipeline.model.network import Memory

# Keys and values [B, S, H, K] of one layer.
KeysAndValues = tuple[tf.Tensor, tf.Tensor]


class ProjectedMemory(NamedTuple):
    """Each layer's keys and values of the memory, computed once for all steps, and the text itself [B, S, D]."""

    keys_and_values: list[KeysAndValues]
    text: tf.Tensor
    text_mask: tf.Tensor
    voice: list[KeysAndValues | None]


class DecoderCache(NamedTuple):
    """Each layer's self-attention keys and values of earlier steps.

    past [B, F, H, K]: those before the step `first`, constant while a chunk is decoded. recent [B, N, H, K]: those from
    `first` on. The loop writes only to the small buffer: writing to the large one made a step ten times as slow.
    """

    past: list[KeysAndValues]
    recent: list[KeysAndValues]
    first: tf.Tensor


def write_position(buffer: tf.Tensor, position: tf.Tensor, value: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """Return the buffer with `value` at a position of `axis`, which `value` lacks; unchanged past the end."""
    is_here = tf.reshape(tf.range(buffer.shape[axis]) == position, [-1] + [1] * (buffer.shape.rank - axis - 1))
    return tf.where(is_here, tf.expand_dims(value, axis), buffer)


class DecoderLayer(tf.Module):
    """Causal self-attention, attention to text and to the voice, feed-forward; all pre-norm and residual."""

    def __init__(self, initializer: Initializer, config: ModelConfig, index: int) -> None:
        super().__init__(name=f"decoder_layer_{index}")
        self.dropout_rate, self.is_recomputed = config.dropout, config.remat
        self.self_salt, self.text_salt, self.feedforward_salt = (initializer.salt() for _ in range(3))
        self.self_norm = LayerNorm(config.width, "self_norm")
        self.self_attention = Attention(initializer, config.width, config.heads, "self_attention")
        self.text_norm = LayerNorm(config.width, "text_norm")
        self.text_attention = Attention(initializer, config.width, config.heads, "text_attention")
        self.has_voice = config.voice_latents > 0
        if self.has_voice:
            self.voice_salt = initializer.salt()
            self.voice_norm = LayerNorm(config.width, "voice_norm")
            self.voice_attention = Attention(initializer, config.width, config.heads, "voice_attention")
        self.feedforward_norm = LayerNorm(config.width, "feedforward_norm")
        self.feedforward = FeedForward(initializer, config.width, config.feedforward_width, "feedforward")

    def project_memory(
        self, text_BSD: tf.Tensor, voice_BVD: tf.Tensor | None = None
    ) -> tuple[KeysAndValues, KeysAndValues | None]:
        """Return the keys and values of text and voice; None for the voice if the network has none."""
        voice = self.voice_attention.project_memory(voice_BVD) if self.has_voice else None
        return self.text_attention.project_memory(text_BSD), voice

    def decode_all(
        self, x_BFD: tf.Tensor, memory: Memory, causal_FF: tf.Tensor, dropout: Dropout
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ([B, F, D], text attention [B, H, F, S]) for all decoder steps at once."""

        def run(x_BFD: tf.Tensor, *encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            normal = self.self_norm(x_BFD)
            attended, _ = self.self_attention(normal, *self.self_attention.project_memory(normal), causal_FF)
            x_BFD += dropout.apply(attended, self.dropout_rate, self.self_salt)
            text, voice = self.project_memory(*encoded)
            return self._attend(x_BFD, text, memory.text_mask[:, None, None, :], voice, dropout, 0)

        inputs = [x_BFD, memory.text] if memory.voice is None else [x_BFD, memory.text, memory.voice]
        return recomputed(run, *inputs) if self.is_recomputed and dropout.is_training else run(*inputs)

    def decode_step(
        self,
        x_B1D: tf.Tensor,
        step: tf.Tensor,
        first: tf.Tensor,
        past: KeysAndValues,
        recent: KeysAndValues,
        text: KeysAndValues,
        text_mask_BH1S: tf.Tensor,
        voice: KeysAndValues | None,
        dropout: Dropout,
    ) -> tuple[tf.Tensor, tf.Tensor, KeysAndValues]:
        """Return ([B, 1, D], text attention [B, H, 1, S], recent keys and values with this step's in them)."""
        normal = self.self_norm(x_B1D)
        keys, values = self.self_attention.project_memory(normal)
        place = step - first
        recent = (
            write_position(recent[0], place, keys[:, 0], axis=1),
            write_position(recent[1], place, values[:, 0], axis=1),
        )
        is_past, is_recent = tf.range(past[0].shape[1]) < first, tf.range(recent[0].shape[1]) <= place
        attended, _ = self.self_attention.attend_to_parts(normal, [(*past, is_past), (*recent, is_recent)])
        x_B1D += dropout.apply(attended, self.dropout_rate, self.self_salt, step)
        x_B1D, weights = self._attend(x_B1D, text, text_mask_BH1S, voice, dropout, step)
        return x_B1D, weights, recent

    def _attend(
        self,
        x: tf.Tensor,
        text: KeysAndValues,
        text_mask: tf.Tensor,
        voice: KeysAndValues | None,
        dropout: Dropout,
        step: tf.Tensor | int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        attended, weights = self.text_attention(self.text_norm(x), *text, text_mask)
        x += dropout.apply(attended, self.dropout_rate, self.text_salt, step)
        if voice is not None:
            attended, _ = self.voice_attention(self.voice_norm(x), *voice, tf.constant(True))
            x += dropout.apply(attended, self.dropout_rate, self.voice_salt, step)
        x += dropout.apply(self.feedforward(self.feedforward_norm(x)), self.dropout_rate, self.feedforward_salt, step)
        return x, weights


class Prenet(tf.Module):
    """A bottleneck with dropout, in inference too, so that the decoder must attend to the text (Shen et al. 2018)."""

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="prenet")
        self.dropout_rate = config.prenet_dropout
        self.first_salt, self.second_salt = initializer.salt(), initializer.salt()
        self.first = Dense(initializer, mel_bins, config.prenet_width, "first")
        self.second = Dense(initializer, config.prenet_width, config.prenet_width, "second")
        self.widen = Dense(initializer, config.prenet_width, config.width, "widen")

    def __call__(self, frame_BFM: tf.Tensor, dropout: Dropout, step: tf.Tensor | int = 0) -> tf.Tensor:
        x = dropout.apply(tf.nn.relu(self.first(frame_BFM)), self.dropout_rate, self.first_salt, step, always=True)
        x = dropout.apply(tf.nn.relu(self.second(x)), self.dropout_rate, self.second_salt, step, always=True)
        return self.widen(x)


class TextFrames(tf.Module):
    """Predict a decoder step's frames from the attended text alone, without earlier frames.

    The previous ground-truth frame predicts the next one so well that a decoder learns to copy before it reads. Here it
    cannot copy.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="text_frames")
        self.hidden = Dense(initializer, config.width, config.width, "hidden")
        self.to_frames = Dense(initializer, config.width, config.frames_per_step * mel_bins, "to_frames")

    def __call__(self, attention_BGFS: tf.Tensor, text_BSD: tf.Tensor) -> tf.Tensor:
        """Return [B, F, R * M] from the attention of the guided heads."""
        attention_BFS = tf.cast(tf.reduce_mean(attention_BGFS, axis=1), text_BSD.dtype)
        return self.to_frames(tf.nn.relu(self.hidden(tf.einsum("BFS,BSD->BFD", attention_BFS, text_BSD))))


class DecoderOutputs(NamedTuple):
    """Decoder output of N steps, float32.

    frames [B, N * R, M] and text_frames, the part of them predicted from the text alone. stop_logit [B, N]. attention
    [B, G, N, S] of the guided heads.
    """

    frames: tf.Tensor
    text_frames: tf.Tensor
    stop_logit: tf.Tensor
    attention: tf.Tensor


class MelDecoder(tf.Module):
    """Prenet, previous token, positions, decoder layers; a step predicts `frames_per_step` frames and a stop logit.

    A decoder step gets the last frame and the attention of the step before, so it only has to decide whether to advance
    (Chorowski et al. 2015). In training that attention comes from the aligner, in inference from the decoder. The
    frames are the sum of the layers' output and of `TextFrames`.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int, max_steps: int) -> None:
        super().__init__(name="mel_decoder")
        self.frames_per_step, self.mel_bins, self.max_steps = config.frames_per_step, mel_bins, max_steps
        self.dropout_rate, self.salt = config.dropout, initializer.salt()
        self.prenet = Prenet(initializer, config, mel_bins)
        self.said_token = Dense(initializer, config.width, config.width, "said_token")
        self.position_scale = tf.Variable(1.0, name="position_scale")
        self.positions_FD = sinusoid_positions(max_steps, config.width)
        self.layers = [DecoderLayer(initializer, config, index) for index in range(config.decoder_layers)]
        self.is_guided_H = np.arange(config.heads) < GUIDED_HEADS
        self.norm = LayerNorm(config.width, "norm")
        self.to_frames = Dense(initializer, config.width, config.frames_per_step * mel_bins, "to_frames")
        self.to_stop = Dense(initializer, config.width, 1, "to_stop")
        self.text_frames = TextFrames(initializer, config, mel_bins)

    def decode_all(
        self, previous_frames_BFM: tf.Tensor, previous_attention_BFS: tf.Tensor, memory: Memory, dropout: Dropout
    ) -> DecoderOutputs:
        """Return the output of all decoder steps at once; `previous_attention` is 0 for the first step."""
        steps = previous_frames_BFM.shape[1]
        positions_1FD = self.positions_FD[None, :steps]
        x = self._embed(previous_frames_BFM, previous_attention_BFS, memory.text, positions_1FD, dropout, 0)
        causal_FF = tf.range(steps)[:, None] >= tf.range(steps)[None, :]
        weights = []
        for layer in self.layers:
            x, weight_BHFS = layer.decode_all(x, memory, causal_FF, dropout)
            weights.append(weight_BHFS)
        return self._emit(x, weights, memory.text)

    def project_memory(self, memory: Memory) -> ProjectedMemory:
        """Return each layer's keys and values of the memory, computed once for all steps."""
        projected = [layer.project_memory(memory.text, memory.voice) for layer in self.layers]
        return ProjectedMemory(
            [text for text, _ in projected], memory.text, memory.text_mask, [voice for _, voice in projected]
        )

    def start_cache(self, rows: int, chunk_steps: int, dtype: tf.DType = tf.float32) -> DecoderCache:
        """Return the empty cache; call `settle_cache` after each chunk of steps."""
        attention = self.layers[0].self_attention

        def empty(steps: int) -> list[KeysAndValues]:
            zeros = tf.zeros([rows, steps, attention.heads, attention.head_width], dtype)
            return [(zeros, zeros) for _ in self.layers]

        return DecoderCache(empty(self.max_steps), empty(chunk_steps), tf.constant(0))

    def settle_cache(self, cache: DecoderCache) -> DecoderCache:
        """Return the cache for the next chunk: recent keys and values become past ones."""
        chunk_steps = cache.recent[0][0].shape[1]
        place_F = tf.range(self.max_steps) - cache.first
        is_new_F11 = ((place_F >= 0) & (place_F < chunk_steps))[:, None, None]
        source_F = tf.clip_by_value(place_F, 0, chunk_steps - 1)

        def settle(past: tf.Tensor, recent: tf.Tensor) -> tf.Tensor:
            return tf.where(is_new_F11, tf.gather(recent, source_F, axis=1), past)

        past = [
            (settle(past[0], recent[0]), settle(past[1], recent[1]))
            for past, recent in zip(cache.past, cache.recent, strict=True)
        ]
        return DecoderCache(past, cache.recent, cache.first + chunk_steps)

    def decode_step(
        self,
        previous_frame_BM: tf.Tensor,
        previous_attention_BS: tf.Tensor,
        step: tf.Tensor,
        cache: DecoderCache,
        memory: ProjectedMemory,
        window_BS: tf.Tensor,
        dropout: Dropout,
    ) -> tuple[DecoderOutputs, list[KeysAndValues]]:
        """Return the output of one decoder step, and the recent keys and values with those of this step.

        Guided heads attend only to tokens inside the window, bool [B, S].
        """
        previous_frame_B1M = tf.cast(previous_frame_BM, memory.text.dtype)[:, None, :]
        x = self._embed(
            previous_frame_B1M,
            previous_attention_BS[:, None, :],
            memory.text,
            tf.gather(self.positions_FD, step)[None, None, :],
            dropout,
            step,
        )
        everywhere_B11S = memory.text_mask[:, None, None, :]
        windowed_BH1S = everywhere_B11S & (window_BS[:, None, None, :] | ~self.is_guided_H[None, :, None, None])
        weights, following = [], []
        for index, layer in enumerate(self.layers):
            mask = windowed_BH1S if index >= len(self.layers) - GUIDED_LAYERS else everywhere_B11S
            own = (cache.first, cache.past[index], cache.recent[index])
            x, weight_BH1S, recent = layer.decode_step(
                x, step, *own, memory.keys_and_values[index], mask, memory.voice[index], dropout
            )
            weights.append(weight_BH1S)
            following.append(recent)
        return self._emit(x, weights, memory.text), following

    def _embed(
        self,
        previous_frames_BFM: tf.Tensor,
        previous_attention_BFS: tf.Tensor,
        text_BSD: tf.Tensor,
        positions_1FD: tf.Tensor,
        dropout: Dropout,
        step: tf.Tensor | int,
    ) -> tf.Tensor:
        x = self.prenet(previous_frames_BFM, dropout, step)
        x += self.said_token(tf.einsum("BFS,BSD->BFD", tf.cast(previous_attention_BFS, text_BSD.dtype), text_BSD))
        x = add_positions(x, positions_1FD, self.position_scale)
        return dropout.apply(x, self.dropout_rate, self.salt, step)

    def _emit(self, x_BFD: tf.Tensor, weights: list[tf.Tensor], text_BSD: tf.Tensor) -> DecoderOutputs:
        x_BFD = self.norm(x_BFD)
        attention = tf.concat([weight_BHFS[:, :GUIDED_HEADS] for weight_BHFS in weights[-GUIDED_LAYERS:]], axis=1)
        shape_BTM = [x_BFD.shape[0], x_BFD.shape[1] * self.frames_per_step, self.mel_bins]
        text_frames_BTM = tf.cast(tf.reshape(self.text_frames(attention, text_BSD), shape_BTM), tf.float32)
        frames_BTM = tf.cast(tf.reshape(self.to_frames(x_BFD), shape_BTM), tf.float32) + text_frames_BTM
        return DecoderOutputs(frames_BTM, text_frames_BTM, tf.cast(self.to_stop(x_BFD)[..., 0], tf.float32), attention)


class Postnet(tf.Module):
    """Convolutions that add the fine structure that the decoder does not predict.

    Causal, unlike Tacotron 2's: a frame is final once it is decoded, so speech can be streamed and padding has no
    influence.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="postnet")
        self.dropout_rate = config.dropout
        widths = [mel_bins, *[config.postnet_width] * (config.postnet_layers - 1), mel_bins]
        self.layers = [
            Convolution(
                initializer, widths[index], widths[index + 1], POSTNET_TAPS, f"convolution_{index}", is_causal=True
            )
            for index in range(config.postnet_layers)
        ]
        self.norms = [LayerNorm(width, f"norm_{index}") for index, width in enumerate(widths[1:-1])]
        self.salts = [initializer.salt() for _ in self.norms]

    @property
    def context_frames(self) -> int:
        """The number of earlier frames that a refined frame depends on."""
        return (POSTNET_TAPS - 1) * len(self.layers)

    def __call__(self, mel_BTM: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the refined mel [B, T, M]."""
        x = mel_BTM
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < len(self.norms):
                x = dropout.apply(tf.nn.tanh(self.norms[index](x)), self.dropout_rate, self.salts[index])
        return mel_BTM + x if self.layers else mel_BTM

"""Encoded text and earlier frames to the next frames: causal, with attention to the text.

The same layers run over a whole sequence in training and one decoder step at a time, with cached keys and values, in synthesis.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config import ModelConfig
from xtts_pipeline.model.layers import (
    Attention,
    Convolution,
    Dense,
    Dropout,
    FeedForward,
    Initializer,
    LayerNorm,
    sinusoid_positions,
)

POSTNET_TAPS = 5


class DecoderCache(NamedTuple):
    """Keys and values [L, B, F, H, K] of the decoder steps so far, and [L, B, S, H, K] of the text."""

    keys: tf.Tensor
    values: tf.Tensor
    text_keys: tf.Tensor
    text_values: tf.Tensor


class DecoderLayer(tf.Module):
    """Causal self-attention, attention to the text, feed-forward; each normalised before and added after."""

    def __init__(self, initializer: Initializer, config: ModelConfig, index: int) -> None:
        super().__init__(name=f"decoder_layer_{index}")
        self.dropout_rate = config.dropout
        self.self_salt, self.text_salt, self.feedforward_salt = initializer.salt(), initializer.salt(), initializer.salt()
        self.self_norm = LayerNorm(config.width, "self_norm")
        self.self_attention = Attention(initializer, config.width, config.heads, "self_attention")
        self.text_norm = LayerNorm(config.width, "text_norm")
        self.text_attention = Attention(initializer, config.width, config.heads, "text_attention")
        self.feedforward_norm = LayerNorm(config.width, "feedforward_norm")
        self.feedforward = FeedForward(initializer, config.width, config.feedforward_width, "feedforward")

    def decode_all(
        self, x_BFD: tf.Tensor, text_BSD: tf.Tensor, text_mask_B11S: tf.Tensor, causal_FF: tf.Tensor, dropout: Dropout
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return ([B, F, D], text attention [B, H, F, S]) for all decoder steps at once."""
        normal = self.self_norm(x_BFD)
        attended, _ = self.self_attention(normal, *self.self_attention.project_memory(normal), causal_FF)
        x_BFD += dropout.apply(attended, self.dropout_rate, self.self_salt)
        return self._look_at_text(x_BFD, self.text_attention.project_memory(text_BSD), text_mask_B11S, dropout, 0)

    def decode_step(
        self,
        x_B1D: tf.Tensor,
        step: tf.Tensor,
        cache: tuple[tf.Tensor, tf.Tensor],
        text: tuple[tf.Tensor, tf.Tensor],
        text_mask_B11S: tf.Tensor,
        dropout: Dropout,
    ) -> tuple[tf.Tensor, tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Return ([B, 1, D], text attention [B, H, 1, S], the cache with this step in it)."""
        normal = self.self_norm(x_B1D)
        steps = tf.range(cache[0].shape[1])
        is_now_F11 = (steps == step)[None, :, None, None]
        new = self.self_attention.project_memory(normal)
        cache = (tf.where(is_now_F11, new[0], cache[0]), tf.where(is_now_F11, new[1], cache[1]))
        attended, _ = self.self_attention(normal, *cache, (steps <= step)[None, None, None, :])
        x_B1D += dropout.apply(attended, self.dropout_rate, self.self_salt, step)
        x_B1D, weights = self._look_at_text(x_B1D, text, text_mask_B11S, dropout, step)
        return x_B1D, weights, cache

    def _look_at_text(
        self, x: tf.Tensor, text: tuple[tf.Tensor, tf.Tensor], text_mask_B11S: tf.Tensor, dropout: Dropout, step: tf.Tensor | int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        attended, weights = self.text_attention(self.text_norm(x), *text, text_mask_B11S)
        x += dropout.apply(attended, self.dropout_rate, self.text_salt, step)
        x += dropout.apply(self.feedforward(self.feedforward_norm(x)), self.dropout_rate, self.feedforward_salt, step)
        return x, weights


class Prenet(tf.Module):
    """A narrow, always noisy way in for the previous frame, so that the decoder must look at the text (Shen et al. 2018)."""

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


class Postnet(tf.Module):
    """Convolutions over finished frames that add the fine structure the decoder left out.

    Causal, unlike Tacotron 2's: a frame is final as soon as it is decoded, so speech can be streamed, and padding has no influence.
    """

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int) -> None:
        super().__init__(name="postnet")
        self.dropout_rate = config.dropout
        widths = [mel_bins, *[config.postnet_width] * (config.postnet_layers - 1), mel_bins]
        self.layers = [
            Convolution(initializer, widths[index], widths[index + 1], POSTNET_TAPS, f"convolution_{index}", is_causal=True)
            for index in range(config.postnet_layers)
        ]
        self.norms = [LayerNorm(width, f"norm_{index}") for index, width in enumerate(widths[1:-1])]
        self.salts = [initializer.salt() for _ in self.norms]

    def __call__(self, mel_BTM: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the refined mel [B, T, M]."""
        x = mel_BTM
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < len(self.norms):
                x = dropout.apply(tf.nn.tanh(self.norms[index](x)), self.dropout_rate, self.salts[index])
        return mel_BTM + x if self.layers else mel_BTM


class MelDecoder(tf.Module):
    """Prenet, positions, decoder layers, then `frames_per_step` frames and one stop logit for each decoder step."""

    def __init__(self, initializer: Initializer, config: ModelConfig, mel_bins: int, max_steps: int) -> None:
        super().__init__(name="mel_decoder")
        self.frames_per_step, self.mel_bins, self.max_steps = config.frames_per_step, mel_bins, max_steps
        self.dropout_rate, self.salt = config.dropout, initializer.salt()
        self.prenet = Prenet(initializer, config, mel_bins)
        self.position_scale = tf.Variable(1.0, name="position_scale")
        self.positions_FD = sinusoid_positions(max_steps, config.width)
        self.layers = [DecoderLayer(initializer, config, index) for index in range(config.decoder_layers)]
        self.norm = LayerNorm(config.width, "norm")
        self.to_frames = Dense(initializer, config.width, config.frames_per_step * mel_bins, "to_frames")
        self.to_stop = Dense(initializer, config.width, 1, "to_stop")

    def decode_all(
        self, previous_BFM: tf.Tensor, text_BSD: tf.Tensor, text_mask_BS: tf.Tensor, dropout: Dropout
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return (frames [B, F * frames_per_step, M], stop logits [B, F], text attention [L, B, H, F, S])."""
        steps = previous_BFM.shape[1]
        x = self._embed(previous_BFM, self.positions_FD[None, :steps], dropout, 0)
        causal_FF = tf.range(steps)[:, None] >= tf.range(steps)[None, :]
        weights = []
        for layer in self.layers:
            x, weight_BHFS = layer.decode_all(x, text_BSD, text_mask_BS[:, None, None, :], causal_FF, dropout)
            weights.append(weight_BHFS)
        frames, stop_BF = self._emit(x)
        return frames, stop_BF, tf.stack(weights)

    def start_cache(self, text_BSD: tf.Tensor) -> DecoderCache:
        """Return an empty cache with the text's keys and values computed once."""
        text = [layer.text_attention.project_memory(text_BSD) for layer in self.layers]
        attention = self.layers[0].self_attention
        empty = tf.zeros([len(self.layers), text_BSD.shape[0], self.max_steps, attention.heads, attention.head_width])
        return DecoderCache(empty, empty, tf.stack([keys for keys, _ in text]), tf.stack([values for _, values in text]))

    def decode_step(
        self, previous_BM: tf.Tensor, step: tf.Tensor, cache: DecoderCache, text_mask_BS: tf.Tensor, dropout: Dropout
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, DecoderCache]:
        """Return (frames [B, frames_per_step, M], stop logit [B], text attention [L, B, H, S], cache) of one decoder step."""
        x = self._embed(previous_BM[:, None, :], tf.gather(self.positions_FD, step)[None, None, :], dropout, step)
        weights, keys, values = [], [], []
        for index, layer in enumerate(self.layers):
            text = (cache.text_keys[index], cache.text_values[index])
            own = (cache.keys[index], cache.values[index])
            x, weight_BH1S, own = layer.decode_step(x, step, own, text, text_mask_BS[:, None, None, :], dropout)
            weights.append(weight_BH1S[:, :, 0])
            keys.append(own[0])
            values.append(own[1])
        frames, stop_B1 = self._emit(x)
        return frames, stop_B1[:, 0], tf.stack(weights), cache._replace(keys=tf.stack(keys), values=tf.stack(values))

    def _embed(self, previous_BFM: tf.Tensor, positions_1FD: tf.Tensor, dropout: Dropout, step: tf.Tensor | int) -> tf.Tensor:
        x = self.prenet(previous_BFM, dropout, step) + self.position_scale * positions_1FD
        return dropout.apply(x, self.dropout_rate, self.salt, step)

    def _emit(self, x_BFD: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x_BFD = self.norm(x_BFD)
        batch, steps = x_BFD.shape[0], x_BFD.shape[1]
        frames = tf.reshape(self.to_frames(x_BFD), [batch, steps * self.frames_per_step, self.mel_bins])
        return frames, self.to_stop(x_BFD)[..., 0]

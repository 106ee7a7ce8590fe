"""The whole network: tokens and earlier frames to mel frames, stop logits and attention.

Knows the static shapes of a record, but no cache and no file.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config import ModelConfig
from xtts_pipeline.model.layers import Dropout, Initializer, length_mask
from xtts_pipeline.model.mel_decoder import DecoderCache, MelDecoder, Postnet
from xtts_pipeline.model.text_encoder import TextEncoder
from xtts_pipeline.schema import RecordSpec

# Natural-log mels lie between the floor, about -11.5, and about 2; the network works near zero.
MEL_CENTRE, MEL_SCALE = -5.0, 4.0


class Batch(NamedTuple):
    """What the step is given, in the order of its signature; `speaker` and `language` are None in a cache that has one of each.

    tokens int32 [B, S], mel float16 [B, T, M], text_length, mel_length, speaker, language int32 [B].
    """

    tokens: tf.Tensor
    mel: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor
    speaker: tf.Tensor | None = None
    language: tf.Tensor | None = None


class Prediction(NamedTuple):
    """What the network makes of a batch, in its own scale of mels.

    coarse and fine [B, T, M], before and after the postnet, T rounded up to whole decoder steps; stop_logit [B, F]; attention to the
    text [L, B, H, F, S].
    """

    coarse: tf.Tensor
    fine: tf.Tensor
    stop_logit: tf.Tensor
    attention: tf.Tensor


class Speech(NamedTuple):
    """What the network says by itself.

    mel [B, T, M] in natural log, silent after mel_length [B] frames; has_stopped [B] is False where the cap ended a row;
    attention to the text [L, B, H, F, S].
    """

    mel: tf.Tensor
    mel_length: tf.Tensor
    has_stopped: tf.Tensor
    attention: tf.Tensor


class _Utterance(NamedTuple):
    """What is being said: the decoder step to come, the last frame [B, M], what was said [F, B, R, M] and looked at [F, L, B, H, S]."""

    step: tf.Tensor
    previous: tf.Tensor
    cache: DecoderCache
    frames: tf.Tensor
    attention: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor


class Network(tf.Module):
    """Text encoder, mel decoder and postnet, with speaker and language vectors where there are several.

    `spec` fixes the longest text and mel; symbol_count is the size of the token table, pad, begin and end included.
    """

    def __init__(
        self, config: ModelConfig, spec: RecordSpec, symbol_count: int, speakers: int = 1, languages: int = 1, seed: int = 0
    ) -> None:
        super().__init__(name="network")
        initializer = Initializer(seed)
        self.frames_per_step, self.mel_bins = config.frames_per_step, spec.mel_bins
        self.max_steps = -(-spec.max_mel_frames // config.frames_per_step)
        self.silence = spec.pad_value
        self.text_encoder = TextEncoder(initializer, config, symbol_count, spec.max_text_length)
        self.speaker_embedding = initializer.normal((speakers, config.width), 0.1, "speaker_embedding") if speakers > 1 else None
        self.language_embedding = initializer.normal((languages, config.width), 0.1, "language_embedding") if languages > 1 else None
        self.mel_decoder = MelDecoder(initializer, config, spec.mel_bins, self.max_steps)
        self.postnet = Postnet(initializer, config, spec.mel_bins)

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained."""
        return sum(int(variable.shape.num_elements()) for variable in self.trainable_variables)

    def __call__(self, batch: Batch, dropout: Dropout) -> Prediction:
        """Predict each frame from the true frames before it (teacher forcing)."""
        target_BTM = self.to_network_scale(batch.mel)
        text_BSD, text_mask_BS = self._encode(batch, dropout)
        coarse_BTM, stop_logit_BF, attention = self.mel_decoder.decode_all(
            self._previous_frames(target_BTM), text_BSD, text_mask_BS, dropout
        )
        return Prediction(coarse_BTM, self.postnet(coarse_BTM, dropout), stop_logit_BF, attention)

    def speak(self, batch: Batch, dropout: Dropout, max_frames_B: tf.Tensor, stop_threshold: float) -> Speech:
        """Say the batch's tokens, each frame from the network's own frames before it; the batch's mels are not looked at.

        A row ends with the first decoder step whose stop probability is over the threshold, or after `max_frames_B` frames.
        """
        text_BSD, text_mask_BS = self._encode(batch, dropout)
        max_steps_B = tf.minimum(-(-max_frames_B // self.frames_per_step), self.max_steps)

        def is_anyone_speaking(now: _Utterance) -> tf.Tensor:
            return tf.reduce_any(~now.has_stopped & (now.step < max_steps_B))

        def decode(now: _Utterance) -> tuple[_Utterance]:
            frames_BRM, stop_logit_B, weights_LBHS, cache = self.mel_decoder.decode_step(
                now.previous, now.step, now.cache, text_mask_BS, dropout
            )
            is_now_F = tf.range(self.max_steps) == now.step
            is_speaking_B = ~now.has_stopped & (now.step < max_steps_B)
            following = _Utterance(
                step=now.step + 1,
                previous=frames_BRM[:, -1],
                cache=cache,
                frames=tf.where(is_now_F[:, None, None, None], frames_BRM[None], now.frames),
                attention=tf.where(is_now_F[:, None, None, None, None], weights_LBHS[None], now.attention),
                length=tf.minimum(now.length + tf.where(is_speaking_B, self.frames_per_step, 0), max_frames_B),
                has_stopped=now.has_stopped | (is_speaking_B & (tf.sigmoid(stop_logit_B) > stop_threshold)),
            )
            return (following,)

        (said,) = tf.while_loop(is_anyone_speaking, decode, (self._begin(text_BSD),))
        rows = text_BSD.shape[0]
        coarse_BTM = tf.reshape(tf.transpose(said.frames, [1, 0, 2, 3]), [rows, self.max_steps * self.frames_per_step, self.mel_bins])
        mel_BTM = self.from_network_scale(self.postnet(coarse_BTM, dropout))
        mel_BTM = tf.where(length_mask(said.length, mel_BTM.shape[1])[..., None], mel_BTM, self.silence)
        return Speech(mel_BTM, said.length, said.has_stopped, tf.transpose(said.attention, [1, 2, 3, 0, 4]))

    def _begin(self, text_BSD: tf.Tensor) -> "_Utterance":
        rows, symbols = text_BSD.shape[:2]
        layers, heads = len(self.mel_decoder.layers), self.mel_decoder.layers[0].text_attention.heads
        return _Utterance(
            step=tf.constant(0),
            previous=self._silent_frame(rows)[:, 0],
            cache=self.mel_decoder.start_cache(text_BSD),
            frames=tf.fill([self.max_steps, rows, self.frames_per_step, self.mel_bins], self._network_silence()),
            attention=tf.zeros([self.max_steps, layers, rows, heads, symbols]),
            length=tf.zeros([rows], tf.int32),
            has_stopped=tf.zeros([rows], tf.bool),
        )

    @staticmethod
    def to_network_scale(mel: tf.Tensor) -> tf.Tensor:
        """Return natural-log mels of any float type in the network's scale, float32."""
        return (tf.cast(mel, tf.float32) - MEL_CENTRE) / MEL_SCALE

    @staticmethod
    def from_network_scale(mel: tf.Tensor) -> tf.Tensor:
        """Return the network's mels in natural log."""
        return mel * MEL_SCALE + MEL_CENTRE

    def _encode(self, batch: Batch, dropout: Dropout) -> tuple[tf.Tensor, tf.Tensor]:
        text_BSD = self.text_encoder(batch.tokens, batch.text_length, dropout)
        if self.speaker_embedding is not None:
            text_BSD += tf.gather(self.speaker_embedding, batch.speaker)[:, None, :]
        if self.language_embedding is not None:
            text_BSD += tf.gather(self.language_embedding, batch.language)[:, None, :]
        return text_BSD, length_mask(batch.text_length, batch.tokens.shape[1])

    def _previous_frames(self, target_BTM: tf.Tensor) -> tf.Tensor:
        """Return what each decoder step sees: the last frame of the step before, silence for the first; [B, F, M]."""
        last_BFM = target_BTM[:, self.frames_per_step - 1 :: self.frames_per_step][:, : self._steps(target_BTM) - 1]
        return tf.concat([self._silent_frame(target_BTM.shape[0]), last_BFM], axis=1)

    def _steps(self, mel_BTM: tf.Tensor) -> int:
        return -(-mel_BTM.shape[1] // self.frames_per_step)

    def _network_silence(self) -> float:
        return (self.silence - MEL_CENTRE) / MEL_SCALE

    def _silent_frame(self, rows: int) -> tf.Tensor:
        return tf.fill([rows, 1, self.mel_bins], self._network_silence())

"""Speaking: the decoder runs on its own frames, one step at a time, until it stops.

Tensors in, tensors out; compiled once for the longest text and mel of a record.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.mel_decoder import KeysAndValues, Memory
from xtts_pipeline.model.network import Network


class Manner(NamedTuple):
    """How to speak.

    A row ends with the first decoder step whose stop probability is over the threshold. The heads that follow the text look at most
    `window_back` tokens behind and `window_ahead` tokens ahead of the furthest that they have looked at mostly.
    """

    stop_threshold: float
    window_back: int
    window_ahead: int


class Speech(NamedTuple):
    """What the network says by itself.

    mel [B, T, M] in natural log, silent after mel_length [B] frames; has_stopped [B] is False where the cap ended a row;
    attention to the text, the mean of the guided heads, [B, F, S].
    """

    mel: tf.Tensor
    mel_length: tf.Tensor
    has_stopped: tf.Tensor
    attention: tf.Tensor


class _Utterance(NamedTuple):
    """What is being said: the decoder step to come, the last frame [B, M], the token looked at [B], what was said [F, B, R, M]."""

    step: tf.Tensor
    previous: tf.Tensor
    token: tf.Tensor
    own: list[KeysAndValues]
    frames: tf.Tensor
    attention: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor


def speak(network: Network, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, manner: Manner) -> Speech:
    """Say what `Network.encode` made of the texts, each frame from the network's own frames before it; at most `max_frames` of them."""
    decoder = network.mel_decoder
    rows, symbols = memory.text.shape[:2]
    max_steps_B = tf.minimum(-(-max_frames_B // network.frames_per_step), network.max_steps)
    projected = decoder.project_memory(memory)
    symbol_S = tf.range(symbols)

    def is_anyone_speaking(now: _Utterance) -> tf.Tensor:
        return tf.reduce_any(~now.has_stopped & (now.step < max_steps_B))

    def decode(now: _Utterance) -> tuple[_Utterance]:
        token_B1 = now.token[:, None]
        window_BS = (symbol_S >= token_B1 - manner.window_back) & (symbol_S <= token_B1 + manner.window_ahead)
        frames_BRM, stop_logit_B, weight_BGS, own = decoder.decode_step(now.previous, now.step, now.own, projected, window_BS, dropout)
        weight_BS = tf.reduce_mean(weight_BGS, axis=1)
        is_now_F = tf.range(network.max_steps) == now.step
        is_speaking_B = ~now.has_stopped & (now.step < max_steps_B)
        following = _Utterance(
            step=now.step + 1,
            previous=frames_BRM[:, -1],
            token=tf.maximum(now.token, tf.argmax(weight_BS, axis=-1, output_type=tf.int32)),
            own=own,
            frames=tf.where(is_now_F[:, None, None, None], frames_BRM[None], now.frames),
            attention=tf.where(is_now_F[:, None, None], weight_BS[None], now.attention),
            length=tf.minimum(now.length + tf.where(is_speaking_B, network.frames_per_step, 0), max_frames_B),
            has_stopped=now.has_stopped | (is_speaking_B & (tf.sigmoid(stop_logit_B) > manner.stop_threshold)),
        )
        return (following,)

    beginning = _Utterance(
        step=tf.constant(0),
        previous=network.silent_frame(rows)[:, 0],
        token=tf.zeros([rows], tf.int32),
        own=decoder.start_cache(rows),
        frames=tf.fill([network.max_steps, rows, network.frames_per_step, network.mel_bins], network.network_silence),
        attention=tf.zeros([network.max_steps, rows, symbols]),
        length=tf.zeros([rows], tf.int32),
        has_stopped=tf.zeros([rows], tf.bool),
    )
    (said,) = tf.while_loop(is_anyone_speaking, decode, (beginning,))
    coarse_BTM = tf.reshape(
        tf.transpose(said.frames, [1, 0, 2, 3]), [rows, network.max_steps * network.frames_per_step, network.mel_bins]
    )
    mel_BTM = network.from_network_scale(network.refine(coarse_BTM, dropout))
    mel_BTM = tf.where(length_mask(said.length, mel_BTM.shape[1])[..., None], mel_BTM, network.silence)
    return Speech(mel_BTM, said.length, said.has_stopped, tf.transpose(said.attention, [1, 0, 2]))

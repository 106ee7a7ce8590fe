"""Speaking: the decoder runs on its own frames, one step at a time, until it stops.

Tensors in, tensors out. `begin_speech` and `continue_speech` say a text chunk by chunk; `speak` says it in one go, by the same steps.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.mel_decoder import DecoderCache, KeysAndValues, Memory, ProjectedMemory, write_position
from xtts_pipeline.model.network import Network
from xtts_pipeline.model.sharpening import sharpening_matrix

# Decoder steps that `speak` says between two times that it moves what is recent to what is past.
CHUNK_STEPS = 8


class Manner(NamedTuple):
    """How to speak.

    A row ends with the first decoder step whose stop probability is over the threshold. The heads that follow the text look at most
    `window_back` tokens behind and `window_ahead` tokens ahead of the furthest that they have looked at mostly. What is said, not what the
    network hears of itself, is sharpened by `sharpness`, see `sharpening_matrix`.
    """

    stop_threshold: float
    window_back: int
    window_ahead: int
    sharpness: float = 1.0

    @classmethod
    def of(cls, settings: SynthesisConfig) -> "Manner":
        """Return the manner that the settings ask for."""
        return cls(settings.stop_threshold, settings.attention_back, settings.attention_ahead, settings.sharpness)


class Speech(NamedTuple):
    """What the network says by itself.

    mel [B, T, M] in natural log, silent after mel_length [B] frames; has_stopped [B] is False where the cap ended a row;
    attention to the text, the mean of the guided heads, [B, F, S].
    """

    mel: tf.Tensor
    mel_length: tf.Tensor
    has_stopped: tf.Tensor
    attention: tf.Tensor


class Progress(NamedTuple):
    """How far rows are.

    step: the decoder step to come. previous [B, M]: the last frame. looked [B, S]: where the last step looked. token [B]: the furthest
    looked at mostly. length [B] and has_stopped [B] as in Speech.
    """

    step: tf.Tensor
    previous: tf.Tensor
    looked: tf.Tensor
    token: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor


class Utterance(NamedTuple):
    """Where rows stand in what they say between two chunks: all that the steps to come must know of those done.

    recent_frames [B, C, M]: the last frames before the postnet, as many of its context as there are, from the first place on.
    """

    progress: Progress
    cache: DecoderCache
    recent_frames: tf.Tensor


class Chunk(NamedTuple):
    """What the next decoder steps said: mel [B, N * R, M] in natural log, attention [B, N, S]; of no meaning in rows that are over."""

    mel: tf.Tensor
    attention: tf.Tensor


class _Steps(NamedTuple):
    """What the loop over a chunk's steps changes; of what is said, frames [N, B, R, M] and attention [N, B, S]."""

    progress: Progress
    recent: list[KeysAndValues]
    frames: tf.Tensor
    attention: tf.Tensor


def begin_speech(network: Network, memory: Memory, chunk_steps: int) -> tuple[ProjectedMemory, Utterance]:
    """Return what all decoder steps look at, and the utterance before the first of them, to be said in chunks of so many steps."""
    rows, symbols = memory.text_mask.shape
    progress = Progress(
        step=tf.constant(0),
        previous=network.silent_frame(rows)[:, 0],
        looked=tf.zeros([rows, symbols]),
        token=tf.zeros([rows], tf.int32),
        length=tf.zeros([rows], tf.int32),
        has_stopped=tf.zeros([rows], tf.bool),
    )
    cache = network.mel_decoder.start_cache(rows, chunk_steps, memory.text.dtype)
    utterance = Utterance(progress, cache, tf.zeros([rows, network.postnet.context_frames, network.mel_bins]))
    return network.mel_decoder.project_memory(memory), utterance


def is_speaking(network: Network, now: Progress, max_frames_B: tf.Tensor) -> tf.Tensor:
    """Return which rows go on, bool [B]: those that have neither stopped nor come to their cap."""
    return ~now.has_stopped & (now.step * network.frames_per_step < max_frames_B) & (now.step < network.max_steps)


def continue_speech(
    network: Network,
    projected: ProjectedMemory,
    utterance: Utterance,
    dropout: Dropout,
    max_frames_B: tf.Tensor,
    manner: Manner,
) -> tuple[Utterance, Chunk]:
    """Say the next chunk: its decoder steps, or fewer where all rows end before."""
    rows, symbols = projected.text_mask.shape
    steps = utterance.cache.recent[0][0].shape[1]
    first = utterance.progress.step

    def is_anyone_speaking(done: _Steps) -> tf.Tensor:
        return (done.progress.step < first + steps) & tf.reduce_any(is_speaking(network, done.progress, max_frames_B))

    def decode(done: _Steps) -> tuple[_Steps]:
        now, cache = done.progress, utterance.cache._replace(recent=done.recent)
        window_BS = _window(now.token, symbols, manner)
        said, recent = network.mel_decoder.decode_step(
            now.previous, now.looked, now.step, cache, projected, window_BS, dropout
        )
        weight_BS = tf.reduce_mean(said.attention[:, :, 0], axis=1)
        is_speaking_B = is_speaking(network, now, max_frames_B)
        following = Progress(
            step=now.step + 1,
            previous=said.frames[:, -1],
            looked=weight_BS,
            token=tf.maximum(now.token, tf.argmax(weight_BS, axis=-1, output_type=tf.int32)),
            length=tf.minimum(now.length + tf.where(is_speaking_B, network.frames_per_step, 0), max_frames_B),
            has_stopped=now.has_stopped | (is_speaking_B & (tf.sigmoid(said.stop_logit[:, 0]) > manner.stop_threshold)),
        )
        place = now.step - first
        frames, attention = (
            write_position(done.frames, place, said.frames),
            write_position(done.attention, place, weight_BS),
        )
        return (_Steps(following, recent, frames, attention),)

    beginning = _Steps(
        utterance.progress,
        utterance.cache.recent,
        frames=tf.fill([steps, rows, network.frames_per_step, network.mel_bins], network.network_silence),
        attention=tf.zeros([steps, rows, symbols]),
    )
    (said,) = tf.while_loop(is_anyone_speaking, decode, (beginning,))
    coarse_BTM = tf.reshape(
        tf.transpose(said.frames, [1, 0, 2, 3]), [rows, steps * network.frames_per_step, network.mel_bins]
    )
    fine_BTM, recent_frames = _refine_next(network, utterance, coarse_BTM, dropout)
    cache = network.mel_decoder.settle_cache(utterance.cache._replace(recent=said.recent))
    mel_BTM = network.from_network_scale(fine_BTM)
    if manner.sharpness != 1.0:
        mel_BTM = tf.matmul(mel_BTM, sharpening_matrix(network.mel_bins, manner.sharpness))
    chunk = Chunk(mel_BTM, tf.transpose(said.attention, [1, 0, 2]))
    return Utterance(said.progress, cache, recent_frames), chunk


def speak(network: Network, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, manner: Manner) -> Speech:
    """Say what `Network.encode` made of the texts, each frame from the network's own frames before it; at most `max_frames` of them."""
    rows, symbols = memory.text_mask.shape
    chunk_frames = CHUNK_STEPS * network.frames_per_step
    projected, utterance = begin_speech(network, memory, CHUNK_STEPS)
    chunks = -(-network.max_steps // CHUNK_STEPS)

    def is_anyone_speaking(now: Utterance, _mel: tf.Tensor, _attention: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(is_speaking(network, now.progress, max_frames_B))

    def say(now: Utterance, mel: tf.Tensor, attention: tf.Tensor) -> tuple[Utterance, tf.Tensor, tf.Tensor]:
        place = now.progress.step // CHUNK_STEPS
        now, chunk = continue_speech(network, projected, now, dropout, max_frames_B, manner)
        return now, write_position(mel, place, chunk.mel), write_position(attention, place, chunk.attention)

    mel = tf.zeros([chunks, rows, chunk_frames, network.mel_bins])
    attention = tf.zeros([chunks, rows, CHUNK_STEPS, symbols])
    said, mel, attention = tf.while_loop(is_anyone_speaking, say, (utterance, mel, attention))
    frames = network.max_steps * network.frames_per_step
    mel_BTM = tf.reshape(tf.transpose(mel, [1, 0, 2, 3]), [rows, chunks * chunk_frames, network.mel_bins])[:, :frames]
    mel_BTM = tf.where(length_mask(said.progress.length, frames)[..., None], mel_BTM, network.silence)
    attention_BFS = tf.reshape(tf.transpose(attention, [1, 0, 2, 3]), [rows, chunks * CHUNK_STEPS, symbols])
    return Speech(mel_BTM, said.progress.length, said.progress.has_stopped, attention_BFS[:, : network.max_steps])


def _window(token_B: tf.Tensor, symbols: int, manner: Manner) -> tf.Tensor:
    """Return the tokens that the guided heads may look at, bool [B, S]."""
    symbol_S, token_B1 = tf.range(symbols), token_B[:, None]
    return (symbol_S >= token_B1 - manner.window_back) & (symbol_S <= token_B1 + manner.window_ahead)


def _refine_next(
    network: Network, before: Utterance, coarse_BTM: tf.Tensor, dropout: Dropout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the chunk's frames after the postnet, and the recent frames for the chunk after it.

    The postnet runs over the frames said before, as many as have a say, and the new ones right behind them. There may be fewer in the
    beginning, and nothing may stand for those: the postnet pads each of its layers with zeros where an utterance begins.
    """
    context, new = before.recent_frames.shape[1], coarse_BTM.shape[1]
    known = tf.minimum(before.progress.step * network.frames_per_step, context)
    place_T = tf.range(context + new)
    # What stands behind the new frames is of no matter: the postnet is causal.
    source_T = tf.minimum(tf.where(place_T < known, place_T, place_T - known + context), context + new - 1)
    joined_BTM = tf.gather(tf.concat([before.recent_frames, coarse_BTM], axis=1), source_T, axis=1)
    fine_BTM = tf.gather(network.refine(joined_BTM, dropout), tf.range(new) + known, axis=1)
    first_recent = known + new - tf.minimum(known + new, context)
    return fine_BTM, tf.gather(joined_BTM, tf.range(context) + first_recent, axis=1)

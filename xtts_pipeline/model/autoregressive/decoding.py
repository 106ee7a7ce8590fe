"""Inference: the decoder runs on its own previous frames, one step at a time, until it stops.

Tensors in, tensors out. `begin_speech` and `continue_speech` decode in chunks; `speak` decodes whole texts by the same
steps.
"""

from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import SynthesisConfig
from xtts_pipeline.model.autoregressive.mel_decoder import DecoderCache, KeysAndValues, ProjectedMemory, write_position
from xtts_pipeline.model.decoding import Chunk, Speech
from xtts_pipeline.model.layers import Dropout, length_mask
from xtts_pipeline.model.network import Memory

if TYPE_CHECKING:
    # The network calls these functions.
    from xtts_pipeline.model.autoregressive.network import AutoregressiveNetwork

# Decoder steps between two times that `speak` moves recent keys and values to the past ones.
CHUNK_STEPS = 8


class DecodingProgress(NamedTuple):
    """Feedback and stop state of each row.

    step: the next decoder step. previous_frame [B, M] and previous_attention [B, S]: of the last step. furthest_token
    [B]: the furthest token that had the largest weight. length [B] and has_stopped [B] as in Speech.
    """

    step: tf.Tensor
    previous_frame: tf.Tensor
    previous_attention: tf.Tensor
    furthest_token: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor


class DecodingState(NamedTuple):
    """All that the next chunk needs of the chunks before it.

    recent_frames [B, C, M]: the last frames before the postnet, left-aligned, at most the C frames of its context.
    """

    progress: DecodingProgress
    cache: DecoderCache
    recent_frames: tf.Tensor


class _ChunkLoop(NamedTuple):
    """Loop variables of one chunk; frames [N, B, R, M] and attention [N, B, S] are its output so far."""

    progress: DecodingProgress
    recent: list[KeysAndValues]
    frames: tf.Tensor
    attention: tf.Tensor


def begin_speech(
    network: "AutoregressiveNetwork", memory: Memory, chunk_steps: int
) -> tuple[ProjectedMemory, DecodingState]:
    """Return the projected memory, and the state before the first chunk of `chunk_steps` decoder steps."""
    rows, symbols = memory.text_mask.shape
    progress = DecodingProgress(
        step=tf.constant(0),
        previous_frame=network.silent_frame(rows)[:, 0],
        previous_attention=tf.zeros([rows, symbols]),
        furthest_token=tf.zeros([rows], tf.int32),
        length=tf.zeros([rows], tf.int32),
        has_stopped=tf.zeros([rows], tf.bool),
    )
    cache = network.mel_decoder.start_cache(rows, chunk_steps, memory.text.dtype)
    state = DecodingState(progress, cache, tf.zeros([rows, network.postnet.context_frames, network.mel_bins]))
    return network.mel_decoder.project_memory(memory), state


def is_speaking(network: "AutoregressiveNetwork", now: DecodingProgress, max_frames_B: tf.Tensor) -> tf.Tensor:
    """Return bool [B]: True for rows that have neither stopped nor reached their frame limit."""
    return ~now.has_stopped & (now.step * network.frames_per_step < max_frames_B) & (now.step < network.max_steps)


def continue_speech(
    network: "AutoregressiveNetwork",
    projected: ProjectedMemory,
    state: DecodingState,
    dropout: Dropout,
    max_frames_B: tf.Tensor,
    settings: SynthesisConfig,
) -> tuple[DecodingState, Chunk]:
    """Decode the next chunk; it takes fewer steps if all rows end before its last one.

    A row stops at the first decoder step whose stop probability exceeds `stop_threshold`. Guided heads attend from
    `attention_back` tokens before to `attention_ahead` tokens after the furthest token attended to so far. `sharpness`
    changes the output alone, not the frames that the decoder feeds back; see `sharpening_matrix`.
    """
    rows, symbols = projected.text_mask.shape
    steps = state.cache.recent[0][0].shape[1]
    first = state.progress.step

    def is_any_row_speaking(loop: _ChunkLoop) -> tf.Tensor:
        return (loop.progress.step < first + steps) & tf.reduce_any(is_speaking(network, loop.progress, max_frames_B))

    def decode(loop: _ChunkLoop) -> tuple[_ChunkLoop]:
        now, cache = loop.progress, state.cache._replace(recent=loop.recent)
        window_BS = _attention_window(now.furthest_token, symbols, settings)
        output, recent = network.mel_decoder.decode_step(
            now.previous_frame, now.previous_attention, now.step, cache, projected, window_BS, dropout
        )
        weight_BS = tf.reduce_mean(output.attention[:, :, 0], axis=1)
        is_speaking_B = is_speaking(network, now, max_frames_B)
        stop_B = tf.sigmoid(output.stop_logit[:, 0]) > settings.stop_threshold
        following = DecodingProgress(
            step=now.step + 1,
            previous_frame=output.frames[:, -1],
            previous_attention=weight_BS,
            furthest_token=tf.maximum(now.furthest_token, tf.argmax(weight_BS, axis=-1, output_type=tf.int32)),
            length=tf.minimum(now.length + tf.where(is_speaking_B, network.frames_per_step, 0), max_frames_B),
            has_stopped=now.has_stopped | (is_speaking_B & stop_B),
        )
        place = now.step - first
        frames = write_position(loop.frames, place, output.frames)
        return (_ChunkLoop(following, recent, frames, write_position(loop.attention, place, weight_BS)),)

    beginning = _ChunkLoop(
        state.progress,
        state.cache.recent,
        frames=tf.fill([steps, rows, network.frames_per_step, network.mel_bins], network.network_silence),
        attention=tf.zeros([steps, rows, symbols]),
    )
    (end,) = tf.while_loop(is_any_row_speaking, decode, (beginning,))
    shape_BTM = [rows, steps * network.frames_per_step, network.mel_bins]
    coarse_BTM = tf.reshape(tf.transpose(end.frames, [1, 0, 2, 3]), shape_BTM)
    fine_BTM, recent_frames = _refine_chunk(network, state, coarse_BTM, dropout)
    cache = network.mel_decoder.settle_cache(state.cache._replace(recent=end.recent))
    chunk = Chunk(
        network.finish_frames(fine_BTM, settings),
        tf.transpose(end.attention, [1, 0, 2]),
        end.progress.length,
        end.progress.has_stopped,
        is_speaking(network, end.progress, max_frames_B),
    )
    return DecodingState(end.progress, cache, recent_frames), chunk


def speak(
    network: "AutoregressiveNetwork",
    memory: Memory,
    dropout: Dropout,
    max_frames_B: tf.Tensor,
    settings: SynthesisConfig,
) -> Speech:
    """Decode whole texts from the output of `Network.encode` as `continue_speech` does, at most `max_frames` a row."""
    rows, symbols = memory.text_mask.shape
    chunk_frames = CHUNK_STEPS * network.frames_per_step
    projected, state = begin_speech(network, memory, CHUNK_STEPS)
    chunks = -(-network.max_steps // CHUNK_STEPS)

    def is_any_row_speaking(now: DecodingState, _mel: tf.Tensor, _attention: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(is_speaking(network, now.progress, max_frames_B))

    def decode_chunk(
        now: DecodingState, mel: tf.Tensor, attention: tf.Tensor
    ) -> tuple[DecodingState, tf.Tensor, tf.Tensor]:
        place = now.progress.step // CHUNK_STEPS
        now, chunk = continue_speech(network, projected, now, dropout, max_frames_B, settings)
        return now, write_position(mel, place, chunk.mel), write_position(attention, place, chunk.attention)

    mel = tf.zeros([chunks, rows, chunk_frames, network.mel_bins])
    attention = tf.zeros([chunks, rows, CHUNK_STEPS, symbols])
    end, mel, attention = tf.while_loop(is_any_row_speaking, decode_chunk, (state, mel, attention))
    frames = network.max_steps * network.frames_per_step
    mel_BTM = tf.reshape(tf.transpose(mel, [1, 0, 2, 3]), [rows, chunks * chunk_frames, network.mel_bins])[:, :frames]
    mel_BTM = tf.where(length_mask(end.progress.length, frames)[..., None], mel_BTM, network.silence)
    attention_BFS = tf.reshape(tf.transpose(attention, [1, 0, 2, 3]), [rows, chunks * CHUNK_STEPS, symbols])
    return Speech(mel_BTM, end.progress.length, end.progress.has_stopped, attention_BFS[:, : network.max_steps])


def _attention_window(furthest_token_B: tf.Tensor, symbols: int, settings: SynthesisConfig) -> tf.Tensor:
    """Return the tokens that guided heads may attend to, bool [B, S]."""
    symbol_S, token_B1 = tf.range(symbols), furthest_token_B[:, None]
    return (symbol_S >= token_B1 - settings.attention_back) & (symbol_S <= token_B1 + settings.attention_ahead)


def _refine_chunk(
    network: "AutoregressiveNetwork", before: DecodingState, coarse_BTM: tf.Tensor, dropout: Dropout
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the chunk's frames after the postnet, and the recent frames for the next chunk.

    The postnet runs over its context of earlier frames and the new ones right after them. Near the beginning there are
    fewer earlier frames, and nothing may fill their place: each postnet layer pads with zeros before the first frame.
    """
    context, new = before.recent_frames.shape[1], coarse_BTM.shape[1]
    known = tf.minimum(before.progress.step * network.frames_per_step, context)
    place_T = tf.range(context + new)
    # Any frame will do after the new ones: the postnet is causal.
    source_T = tf.minimum(tf.where(place_T < known, place_T, place_T - known + context), context + new - 1)
    joined_BTM = tf.gather(tf.concat([before.recent_frames, coarse_BTM], axis=1), source_T, axis=1)
    fine_BTM = tf.gather(network.refine(joined_BTM, dropout), tf.range(new) + known, axis=1)
    first_recent = known + new - tf.minimum(known + new, context)
    return fine_BTM, tf.gather(joined_BTM, tf.range(context) + first_recent, axis=1)

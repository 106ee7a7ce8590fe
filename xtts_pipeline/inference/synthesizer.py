"""Synthesize speech from text with a checkpoint, whole or as a stream.

Settings and symbols come from the checkpoint, not from a config beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.reference import load_reference
from xtts_pipeline.cache.format.schema import pad_to
from xtts_pipeline.config.languages import find_language
from xtts_pipeline.errors import CheckpointError, ConfigError, did_you_mean
from xtts_pipeline.inference.pieces import Piece, SplitText, TextSplitter
from xtts_pipeline.inference.references import cut_windows, embed_windows
from xtts_pipeline.inference.timings import token_durations
from xtts_pipeline.inference.vocoders import choose_vocoder, offering_griffin_lim
from xtts_pipeline.inference.voice_folder import verify_voice
from xtts_pipeline.model.decoding import Chunk
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Batch
from xtts_pipeline.text.fallback import TextChanges
from xtts_pipeline.text.symbols import prepare_texts
from xtts_pipeline.text.tokens import BEGIN_ID, END_ID, FIRST_SYMBOL_ID, PAD_ID
from xtts_pipeline.training.checkpoints.files import (
    Checkpoint,
    load_checkpoint,
    load_generator,
    load_network,
)
from xtts_pipeline.training.checkpoints.run_folder import is_voice
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, Vocoder
from xtts_pipeline.vocoder.neural import NeuralVocoder
from xtts_pipeline.vocoder.streaming import open_stream

MOST_TOKENS_SHOWN = 4_000
MOST_VOICES_KEPT = 64
SLOWEST, FASTEST = 0.25, 4.0


@dataclass(frozen=True)
class SpokenText:
    """The speech of one text.

    tokens int32 [S]; mel float32 [T, mel_bins], natural log; attention float32 [F, S], the share of each token in each
    decoder step; durations float32 [S], frames of each token, pauses counted with the token before them, approximate
    with the autoregressive decoder; wave float32 [samples].

    has_stopped is False if a length limit ended the text or one of its pieces. The tokens of several pieces are
    concatenated, and attention is 0 in the pauses between them. With several pieces and more than MOST_TOKENS_SHOWN
    tokens attention is [F, 0], because it grows with the square of the text. text_changes counts the characters that
    the checkpoint lacks, as (character, replacement); the replacement of a dropped one is empty.
    """

    text: str
    tokens: np.ndarray
    mel: np.ndarray
    attention: np.ndarray
    durations: np.ndarray
    wave: np.ndarray
    sample_rate: int
    has_stopped: bool
    text_changes: TextChanges = field(default_factory=TextChanges)

    @property
    def seconds(self) -> float:
        """Duration of the wave."""
        return len(self.wave) / self.sample_rate


@dataclass(frozen=True)
class _Voice:
    """Speaker and language ids of the checkpoint's cache, the latents [V, D] of the references, if any, and speed."""

    speaker: int
    language: int
    latents: np.ndarray | None
    speed: float = 1.0


@dataclass(frozen=True)
class _SpokenPiece:
    """The speech of a piece or of one of its chunks: mel [T, mel_bins] and attention [F, S].

    has_stopped is False if the frame limit ended it.
    """

    mel: np.ndarray
    attention: np.ndarray
    has_stopped: bool


class SpeechStream(Iterator[np.ndarray]):
    """Yields the wave of a text in parts, float32 [samples], each as soon as it is final.

    mel_frames counts the frames so far; has_stopped is False once a length limit has ended a piece; text_changes is
    that of SpokenText.
    """

    def __init__(
        self, pieces: Iterator[_SpokenPiece | int], text_changes: TextChanges, synthesizer: "Synthesizer"
    ) -> None:
        self.sample_rate = synthesizer.checkpoint.config.audio.sample_rate
        self.mel_frames = 0
        self.has_stopped = True
        self.text_changes = text_changes
        self._waves = self._vocode(pieces, synthesizer)

    def __next__(self) -> np.ndarray:
        return next(self._waves)

    def _vocode(self, pieces: Iterator[_SpokenPiece | int], synthesizer: "Synthesizer") -> Iterator[np.ndarray]:
        vocoder = open_stream(synthesizer.vocoder)
        for piece in pieces:
            mel = synthesizer.silence(piece) if isinstance(piece, int) else piece.mel
            self.has_stopped &= isinstance(piece, int) or piece.has_stopped
            self.mel_frames += len(mel)
            wave = vocoder.push(mel)
            if wave.size:
                yield wave
        wave = vocoder.finish()
        if wave.size:
            yield wave


class Synthesizer:
    """Synthesizes speech with one trained network.

    Shapes are fixed, for texts up to the checkpoint's longest: the network is compiled for one text, and again for the
    first batch. Streams and whole texts use the same compiled functions, chunk by chunk, so they give the same speech.
    """

    def __init__(self, checkpoint: Checkpoint, vocoder: Vocoder | None = None, *, strict_text: bool = False) -> None:
        """Build the network; `vocoder` turns log-mel frames into sound, Griffin-Lim by default.

        A character that the checkpoint lacks is replaced or dropped; with `strict_text` it is a TextError.
        """
        self.checkpoint = checkpoint
        config = checkpoint.config
        self.vocoder = vocoder or GriffinLim.from_settings(config.audio, config.synthesis)
        self._network = load_network(checkpoint)
        self._latents_of_clips: dict[tuple[Path, int, int], np.ndarray] = {}
        self._splitter = TextSplitter(checkpoint, self._network.frames_per_step, strict=strict_text)
        compiled = {"jit_compile": config.training.jit_compile, "autograph": False}
        self._begin = tf.function(self._begin_batch, **compiled)
        self._continue = tf.function(self._continue_batch, **compiled)
        self._embed = tf.function(self._embed_windows, **compiled)

    @classmethod
    def load(
        cls,
        run: Path | str,
        overrides: Sequence[str] = (),
        *,
        vocoder: Path | str | None = None,
        strict_text: bool = False,
    ) -> "Synthesizer":
        """Load a run's newest checkpoint, the checkpoint at this path, or a voice folder.

        `overrides` such as `synthesis.sharpness=1.5` replace settings of the checkpoint. `vocoder` is a run or
        checkpoint of `xtts train-vocoder`, or "griffin-lim"; by default it is the one that the run remembers or that
        lies in the voice folder, else Griffin-Lim. Raises CheckpointError if either cannot be read or they do not fit,
        DamagedVoiceError for a voice folder with a changed file, ConfigError for an override that is invalid or of
        another section.
        """
        run = Path(run)
        if is_voice(run):
            verify_voice(run)
        checkpoint = load_checkpoint(run).with_synthesis(overrides)
        return cls(checkpoint, load_vocoder(run, vocoder), strict_text=strict_text)

    def warm_up(self, *, batch: bool = False) -> None:
        """Compile the functions for one text, and with `batch` also for a batch, so that the next call need not."""
        prepare_texts(["a"], [self.checkpoint.cache.languages[0]], self.checkpoint.config.text)
        piece = Piece(np.array([BEGIN_ID, FIRST_SYMBOL_ID, END_ID], np.int32), 1, 0)
        latents = None
        if self._network.voice_encoder is not None:
            latents = self._embed_reference(self.silence(self._network.reference_frames))
        for rows in {1, self._rows(2) if batch else 1}:
            for _ in self._decode([piece], _Voice(0, 0, latents), rows):
                pass
        stream = open_stream(self.vocoder)
        stream.push(self.silence(2))
        stream.finish()

    def synthesize(
        self,
        text: str,
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] = (),
        speed: float = 1.0,
    ) -> SpokenText:
        """Synthesize a text, in pieces if it is longer than the checkpoint's longest training text.

        `references` are sound files of the voice to use in place of a speaker of the cache. The first speaker and
        language are the defaults. A `speed` of 0.8 is slower; only the parallel decoder has another than 1. Raises

        - TextError for a text with nothing to speak, and with `strict_text` for a character that the checkpoint lacks,
        - AudioError for a reference without speech,
        - CheckpointError for an unknown speaker or language, or for references with a model that takes none,
        - ConfigError for a speaker together with references, or for a speed that the model does not have.
        """
        return self.synthesize_batch([text], speaker, language, references, speed)[0]

    def synthesize_batch(
        self,
        texts: Sequence[str],
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] = (),
        speed: float = 1.0,
        *,
        with_attention: bool = True,
    ) -> list[SpokenText]:
        """Synthesize several texts, `synthesis.batch_size` pieces at a time, each as by `synthesize`, with its errors.

        Errors are raised before decoding. Without `with_attention` attention is [F, 0], which saves much memory for
        long texts.
        """
        voice = self._voice(speaker, language, references, speed)
        split = [self._splitter.split(text, voice.language) for text in texts]
        pieces = [text.pieces for text in split]
        places = [(text, number) for text, parts in enumerate(pieces) for number in range(len(parts))]
        # Sorted by length, because a batch takes as long as its longest row.
        places.sort(key=lambda place: -len(pieces[place[0]][place[1]].tokens))
        rows = self._rows(len(places))
        spoken: dict[tuple[int, int], _SpokenPiece] = {}
        for group in (places[first : first + rows] for first in range(0, len(places), rows)):
            said = self._decode_whole([pieces[text][number] for text, number in group], voice, rows)
            spoken.update(zip(group, said, strict=True))
        return [
            self._join(
                text,
                parts,
                [spoken[index, number] for number in range(len(parts.pieces))],
                with_attention=with_attention,
            )
            for index, (text, parts) in enumerate(zip(texts, split, strict=True))
        ]

    def stream(
        self,
        text: str,
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] = (),
        speed: float = 1.0,
    ) -> SpeechStream:
        """Return the wave of `synthesize`, chunk by chunk as it is decoded; raises its errors at once."""
        voice = self._voice(speaker, language, references, speed)
        split = self._splitter.split(text, voice.language)
        return SpeechStream(self._decode_in_turn(split.pieces, voice), split.changes, self)

    def check_text(self, text: str, language: str | None = None) -> TextChanges:
        """Return the `text_changes` that `synthesize` would give. Raises its TextError."""
        languages = self.checkpoint.cache.languages
        return self._splitter.split(text, _index("language", languages, language, self.checkpoint.folder)).changes

    def vocode(self, mel: np.ndarray) -> np.ndarray:
        """Return the wave, float32 [samples], of natural-log mel frames [T, mel_bins], by the vocoder of the speech."""
        return self.vocoder(mel)

    @property
    def speeds(self) -> tuple[float, float]:
        """The slowest and the fastest speed of this model."""
        return (SLOWEST, FASTEST) if self.checkpoint.config.model.decoder == "parallel" else (1.0, 1.0)

    def silence(self, frames: int) -> np.ndarray:
        """Return silent mel frames, float32 [frames, mel_bins]."""
        return np.full((frames, self._network.mel_bins), self._network.silence, np.float32)

    def symbols(self, tokens: np.ndarray) -> list[str]:
        """Return each token's symbol, or a name such as `<begin>`."""
        return [self._splitter.tokenizer.name_of(int(token)) for token in tokens]

    def _voice(
        self, speaker: str | None, language: str | None, references: Sequence[Path | str], speed: float
    ) -> _Voice:
        cache, folder = self.checkpoint.cache, self.checkpoint.folder
        if not SLOWEST <= speed <= FASTEST:
            raise ConfigError(f"speed {speed:g}: expected {SLOWEST:g} to {FASTEST:g}; 0.8 is slower, 1.25 faster")
        slowest, fastest = self.speeds
        if not slowest <= speed <= fastest:
            decoder = self.checkpoint.config.model.decoder
            remedy = "leave the speed out, or train with model.decoder=parallel"
            raise ConfigError(f"speed {speed:g}: the model of {folder} has model.decoder={decoder}; {remedy}")
        speaker_id = _index("speaker", cache.speakers, speaker, folder)
        language_id = _index("language", cache.languages, language, folder)
        if not references:
            return _Voice(speaker_id, language_id, None, speed)
        if speaker is not None:
            raise ConfigError(
                f"speaker {speaker!r} and {len(references)} references: a reference takes the speaker's place; give one"
            )
        if self._network.voice_encoder is None:
            raise CheckpointError(
                f"{folder}: the model cannot clone a voice (model.voice_latents=0); train another, or give none"
            )
        latents = np.mean([self._embed_clip(Path(path)) for path in references], axis=0)
        return _Voice(speaker_id, language_id, latents, speed)

    def _embed_clip(self, path: Path) -> np.ndarray:
        """Return the latents of a sound file, float32 [V, D], cached for the last files while they do not change."""
        # Without a file, `load_reference` raises the error.
        file = path.stat() if path.is_file() else None
        key = (path, file.st_mtime_ns if file else 0, file.st_size if file else 0)
        if key not in self._latents_of_clips:
            self._latents_of_clips[key] = self._embed_reference(load_reference(path, self.checkpoint.config.audio))
            if len(self._latents_of_clips) > MOST_VOICES_KEPT:
                del self._latents_of_clips[next(iter(self._latents_of_clips))]
        return self._latents_of_clips[key]

    def _embed_reference(self, mel: np.ndarray) -> np.ndarray:
        """Return the mean of the latents of a reference's windows, float32 [V, D], as in XTTS."""
        windows = cut_windows(tf.constant(mel[None]), tf.constant([len(mel)]), self._network.reference_frames)
        latents: np.ndarray = self._embed(*windows).numpy()[0]
        return latents

    def _rows(self, pieces: int) -> int:
        return 1 if pieces == 1 else self.checkpoint.config.synthesis.batch_size

    def _decode_in_turn(self, pieces: Sequence[Piece], voice: _Voice) -> Iterator[_SpokenPiece | int]:
        """Yield the speech of the pieces chunk by chunk, and between two pieces the number of silent frames."""
        for piece in pieces:
            frames = 0
            for (part,) in self._decode([piece], voice, 1):
                frames += len(part.mel)
                yield part
            if piece is not pieces[-1]:
                yield self._silent_frames(piece, frames)

    def _decode_whole(self, pieces: Sequence[Piece], voice: _Voice, rows: int) -> list[_SpokenPiece]:
        parts = list(zip(*self._decode(pieces, voice, rows), strict=True))
        return [
            _SpokenPiece(
                np.concatenate([part.mel for part in row]),
                np.concatenate([part.attention for part in row]),
                all(part.has_stopped for part in row),
            )
            for row in parts
        ]

    def _decode(self, pieces: Sequence[Piece], voice: _Voice, rows: int) -> Iterator[list[_SpokenPiece]]:
        """Yield the next chunk of each piece, empty for a piece that has ended, until all have ended."""
        network, spec = self._network, self.checkpoint.cache.spec
        lengths, max_frames = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        tokens = np.full((rows, spec.max_text_length), PAD_ID, np.int32)
        for row, piece in enumerate(pieces):
            tokens[row] = pad_to(piece.tokens, spec.max_text_length, PAD_ID)
            lengths[row], max_frames[row] = len(piece.tokens), round(piece.max_frames / voice.speed)
        latents = None
        if network.null_voice is not None:
            latents = tf.zeros(network.null_voice.shape) if voice.latents is None else tf.constant(voice.latents)
        ids = (tf.fill([rows], value) for value in (voice.speaker, voice.language, voice.latents is not None))
        plan, state = self._begin(
            tf.constant(tokens), tf.constant(lengths), *ids, latents, tf.constant(voice.speed, tf.float32)
        )
        before, is_over = np.zeros(rows, np.int32), False
        while not is_over:
            state, chunk = self._continue(plan, state, tf.constant(max_frames))
            after, is_going_on, has_stopped = (
                each.numpy() for each in (chunk.length, chunk.is_speaking, chunk.has_stopped)
            )
            mel, attention = chunk.mel.numpy(), chunk.attention.numpy()
            parts = []
            for row, (piece, frames) in enumerate(zip(pieces, after - before, strict=False)):
                steps = -(-frames // network.frames_per_step)
                part = attention[row, :steps, : len(piece.tokens)]
                parts.append(_SpokenPiece(mel[row, :frames], part, bool(is_going_on[row] or has_stopped[row])))
            yield parts
            before, is_over = after, not is_going_on.any()

    def _silent_frames(self, piece: Piece, frames: int) -> int:
        """Return the silent frames after a piece of `frames` frames: the rest of its last step, then the pause."""
        return -frames % self._network.frames_per_step + piece.pause_steps * self._network.frames_per_step

    def _join(self, text: str, split: SplitText, spoken: Sequence[_SpokenPiece], *, with_attention: bool) -> SpokenText:
        pieces = split.pieces
        tokens = np.concatenate([piece.tokens for piece in pieces])
        mels, attentions, durations, start = [], [], [], 0
        is_shown = with_attention and (len(pieces) == 1 or len(tokens) <= MOST_TOKENS_SHOWN)
        for piece, said in zip(pieces, spoken, strict=True):
            pause = 0 if piece is pieces[-1] else self._silent_frames(piece, len(said.mel))
            pause_steps = 0 if piece is pieces[-1] else piece.pause_steps
            mels += [said.mel, self.silence(pause)]
            end = start + len(piece.tokens)
            steps = len(said.attention) + pause_steps
            padding = ((0, pause_steps), (start, len(tokens) - end))
            attentions.append(np.pad(said.attention, padding) if is_shown else np.zeros((steps, 0), np.float32))
            durations.append(token_durations(said.attention, len(said.mel), self._network.frames_per_step))
            durations[-1][-1] += pause
            start = end
        mel = np.concatenate(mels)
        has_stopped = all(said.has_stopped for said in spoken)
        sample_rate = self.checkpoint.config.audio.sample_rate
        attention, wave = np.concatenate(attentions), self.vocoder(mel)
        return SpokenText(
            text, tokens, mel, attention, np.concatenate(durations), wave, sample_rate, has_stopped, split.changes
        )

    def _dropout(self) -> Dropout:
        return Dropout.fixed(self.checkpoint.config.training.seed)

    def _begin_batch(
        self,
        tokens: tf.Tensor,
        text_length: tf.Tensor,
        speaker: tf.Tensor,
        language: tf.Tensor,
        has_reference: tf.Tensor,
        latents: tf.Tensor | None,
        speed: tf.Tensor,
    ) -> tuple[Any, Any]:
        unused_mel = tf.zeros([tokens.shape[0], 1, self._network.mel_bins], tf.float16)
        batch = Batch(tokens, unused_mel, text_length, text_length, speaker, language)
        voice = None if latents is None else latents[None]
        memory = self._network.encode(batch, voice, has_reference, self._dropout())
        return self._network.begin_speech(memory, self.checkpoint.config.synthesis, speed)

    def _continue_batch(self, plan: Any, state: Any, max_frames: tf.Tensor) -> tuple[Any, Chunk]:
        settings = self.checkpoint.config.synthesis
        return self._network.continue_speech(plan, state, self._dropout(), max_frames, settings)

    def _embed_windows(self, window_BNCM: tf.Tensor, length_BN: tf.Tensor) -> tf.Tensor:
        return embed_windows(self._network, window_BNCM, length_BN, self._dropout())


def load_vocoder(run: Path, named: Path | str | None = None) -> NeuralVocoder | None:
    """Return the vocoder that `choose_vocoder` chooses, None for Griffin-Lim. Raises its errors."""
    path = choose_vocoder(run, named)
    if path is None:
        return None
    with offering_griffin_lim(named):
        return NeuralVocoder(load_generator(load_checkpoint(path)))


def _index(kind: str, names: tuple[str, ...], wanted: str | None, folder: Path) -> int:
    if wanted is None:
        return 0
    if kind == "language":
        wanted = find_language(wanted, names) or wanted
    if wanted not in names:
        raise CheckpointError(f"{folder}: no {kind} {wanted!r}; {did_you_mean(wanted, names)}")
    return names.index(wanted)

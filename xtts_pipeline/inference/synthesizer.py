"""Synthesize speech from text with a checkpoint, whole or as a stream.

Settings and symbols come from the checkpoint, not from a config beside it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.load import MAX_FILE_BYTES
from xtts_pipeline.audio.reference import load_reference
from xtts_pipeline.cache.format.schema import pad_to
from xtts_pipeline.errors import CheckpointError, ConfigError
from xtts_pipeline.inference.delivery import check_delivery, number_of
from xtts_pipeline.inference.guard import (
    NO_FAULTS,
    Faults,
    PlannedSpeech,
    lengthen_words,
    planned_faults,
    spoken_faults,
)
from xtts_pipeline.inference.pieces import Piece, SplitText, TextSplitter
from xtts_pipeline.inference.references import cut_windows
from xtts_pipeline.inference.speech import SpeechStream, SpokenPiece, SpokenText, deal
from xtts_pipeline.inference.vocoders import choose_vocoder, offering_griffin_lim
from xtts_pipeline.inference.voice_folder import verify_voice
from xtts_pipeline.model.batch import Batch, to_network_scale
from xtts_pipeline.model.durations import cut_durations, whole_frames
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Chunk, SpeechPlan, mean_voice
from xtts_pipeline.system.regular_files import read_regular_file
from xtts_pipeline.system.terminal import counted
from xtts_pipeline.text.symbols import prepare_texts
from xtts_pipeline.text.tokens import BEGIN_ID, END_ID, FIRST_SYMBOL_ID, PAD_ID
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint, load_generator, load_network
from xtts_pipeline.training.checkpoints.run_folder import is_voice
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, Vocoder
from xtts_pipeline.vocoder.neural import NeuralVocoder
from xtts_pipeline.vocoder.streaming import open_stream

MOST_VOICES_KEPT = 64
# A chunk's window reaches far beyond it, so that a long chunk costs little more than a short one. The short ones at the
# start of a stream sound for longer than a long one takes.
SHORT_CHUNKS, LONG_CHUNK = 2, 8


@dataclass(frozen=True)
class _Voice:
    """Speaker and language ids of the checkpoint's cache, and the latents [V, D] of the references, if any.

    semitones: how much higher the voice speaks. seed: that of the noise.
    """

    speaker: int
    language: int
    latents: np.ndarray | None
    speed: float
    semitones: float
    seed: int


class _Opened(NamedTuple):
    """Pieces that are about to be decoded: the network's plan, and the frame limits [B].

    planned: what the guard compares with each piece.
    """

    plan: SpeechPlan
    max_frames: tf.Tensor
    planned: list[PlannedSpeech]


class Synthesizer:
    """Synthesizes speech with one trained network.

    Shapes are fixed, for texts up to the checkpoint's longest: the network is compiled for one text, and again for the
    first batch. Texts are decoded in chunks of LONG_CHUNK times `synthesis.chunk_frames`; a stream, which is to sound
    soon, begins with short ones. A frame does not depend on the chunk that it is in, so both give the same speech.
    """

    def __init__(self, checkpoint: Checkpoint, vocoder: Vocoder | None = None, *, strict_text: bool = False) -> None:
        """Build the network; `vocoder` turns log-mel frames into sound, Griffin-Lim by default.

        A character that the checkpoint lacks is replaced or dropped; with `strict_text` it is a TextError.
        """
        self.checkpoint = checkpoint
        config = checkpoint.config
        self.vocoder = vocoder or GriffinLim.from_settings(config.audio, config.synthesis)
        self._network = load_network(checkpoint)
        self._frame_seconds = config.audio.frame_seconds
        self._latents_of_clips: dict[bytes, np.ndarray] = {}
        self._splitter = TextSplitter(checkpoint, self._network.frames_per_step, strict=strict_text)
        self._short_frames, longest = config.synthesis.chunk_frames, checkpoint.cache.spec.max_mel_frames
        self._long_frames = max(self._short_frames, min(LONG_CHUNK * self._short_frames, longest))
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

        `overrides` such as `synthesis.flow_steps=8` replace settings of the checkpoint. `vocoder` is a run or
        checkpoint of `xtts train-vocoder`, or "griffin-lim"; by default it is the one that the run remembers or that
        lies in the voice folder, else Griffin-Lim. Raises CheckpointError if either cannot be read or they do not fit,
        DamagedVoiceError for a voice folder with a changed file, ConfigError for an override that is invalid or of
        another section.
        """
        run = Path(run)
        if is_voice(run):
            verify_voice(run)
        checkpoint = load_checkpoint(run).with_synthesis(overrides)
        path = choose_vocoder(run, vocoder)
        with offering_griffin_lim(vocoder):
            trained = None if path is None else load_checkpoint(path)
            speaking = None if trained is None else NeuralVocoder(load_generator(trained), trained.weights_sha256)
        return cls(checkpoint, speaking, strict_text=strict_text)

    def warm_up(self, *, batch: bool = False, streams: int = 1) -> None:
        """Compile the functions for one text, those for a batch with `batch`, and those for `streams` together."""
        prepare_texts(["a"], [self.checkpoint.cache.languages[0]], self.checkpoint.config.text)
        piece = Piece(np.array([BEGIN_ID, FIRST_SYMBOL_ID, END_ID], np.int32), 1, 0)
        latents = None
        if self._network.voice_encoder is not None:
            latents = self._embed_reference(self.silence(self._network.reference_frames))
        voice, whole_rows = _Voice(0, 0, latents, 1.0, 0.0, 0), self._rows(2) if batch else 1
        for rows, short_chunks in {(1, 1), (1, 0), (streams, 1), (streams, 0), (whole_rows, 0)}:
            for _ in self._decode([piece], self._open([piece], voice, rows), voice.seed, short_chunks):
                pass
        stream = open_stream(self.vocoder)
        stream.push(self.silence(2))
        stream.finish()

    def synthesize(
        self,
        text: str,
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] | Path | str = (),
        speed: float = 1.0,
        semitones: float = 0.0,
        seed: int | None = None,
    ) -> SpokenText:
        """Synthesize a text, in pieces if it is longer than the checkpoint's longest training text.

        `references` are sound files, or the path of one, of the voice to use in place of a speaker of the cache. The
        defaults are the first speaker, and the language of most clips of the speaker. `de-AT` is spoken as `de`. A
        `speed` of 0.8 is slower. The voice speaks `semitones` higher. Another `seed` than the default,
        `training.seed`, draws other noise. A piece with words that are skipped or repeated is decoded
        again with other noise and more time, `synthesis.max_attempts` times in all, and the best is kept. Raises

        - TextError for a text with nothing to speak, and with `strict_text` for a character that the checkpoint lacks,
        - AudioError for a reference without speech,
        - CheckpointError for an unknown speaker or language, or for references with a model that takes none,
        - ConfigError for a speaker together with references, or for a speed or pitch out of range.
        """
        return self.synthesize_batch([text], speaker, language, references, speed, semitones, seed)[0]

    def synthesize_batch(
        self,
        texts: Sequence[str],
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] | Path | str = (),
        speed: float = 1.0,
        semitones: float = 0.0,
        seed: int | None = None,
    ) -> list[SpokenText]:
        """Synthesize several texts, `synthesis.batch_size` pieces at a time, each as by `synthesize`, with its errors.

        Errors are raised before decoding.
        """
        voice = self._voice(speaker, language, references, speed, semitones, seed)
        split = [self._splitter.split(text, voice.language) for text in texts]
        pieces = [text.pieces for text in split]
        places = [(text, number) for text, parts in enumerate(pieces) for number in range(len(parts))]
        # Sorted by length, because a batch takes as long as its longest row.
        places.sort(key=lambda place: -len(pieces[place[0]][place[1]].tokens))
        rows = self._rows(len(places))
        spoken: dict[tuple[int, int], SpokenPiece] = {}
        for group in (places[first : first + rows] for first in range(0, len(places), rows)):
            said = self._decode_whole([pieces[text][number] for text, number in group], voice, rows)
            spoken.update(zip(group, said, strict=True))
        return [
            self._join(text, parts, [spoken[index, number] for number in range(len(parts.pieces))])
            for index, (text, parts) in enumerate(zip(texts, split, strict=True))
        ]

    def stream(
        self,
        text: str,
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] | Path | str = (),
        speed: float = 1.0,
        semitones: float = 0.0,
        seed: int | None = None,
    ) -> SpeechStream:
        """Return the wave of the first attempt by chunks, of other phases with Griffin-Lim; raises errors at once."""
        return self.stream_batch([text], speaker, language, references, speed, semitones, seed)[0]

    def stream_batch(
        self,
        texts: Sequence[str],
        speaker: str | None = None,
        language: str | None = None,
        references: Sequence[Path | str] | Path | str = (),
        speed: float = 1.0,
        semitones: float = 0.0,
        seed: int | None = None,
    ) -> list[SpeechStream]:
        """Return the streams of several texts, for one thread, each as by `stream`, with its errors.

        The texts are decoded together: the stream that first needs a chunk decodes it for all.
        """
        voice = self._voice(speaker, language, references, speed, semitones, seed)
        split = [self._splitter.split(text, voice.language) for text in texts]
        decoded = deal(self._decode_in_turn([each.pieces for each in split], voice), len(texts))
        return [SpeechStream(parts, each.changes, self) for parts, each in zip(decoded, split, strict=True)]

    def silence(self, frames: int) -> np.ndarray:
        """Return silent mel frames, float32 [frames, mel_bins]."""
        return np.full((frames, self._network.mel_bins), self._network.silence, np.float32)

    def symbols(self, tokens: np.ndarray) -> list[str]:
        """Return each token's symbol, or a name such as `<begin>`."""
        return [self._splitter.tokenizer.name_of(int(token)) for token in tokens]

    def _voice(
        self,
        speaker: str | None,
        language: str | None,
        references: Sequence[Path | str] | Path | str,
        speed: float,
        semitones: float,
        seed: int | None,
    ) -> _Voice:
        cache, folder = self.checkpoint.cache, self.checkpoint.folder
        check_delivery(speed, semitones)
        speaker_id = number_of("speaker", cache.speakers, speaker, folder)
        language_id = number_of("language", cache.languages, language or cache.default_language(speaker), folder)
        seed = self.checkpoint.config.training.seed if seed is None else seed
        if not references:
            return _Voice(speaker_id, language_id, None, speed, semitones, seed)
        paths = [references] if isinstance(references, str | Path) else references
        if speaker is not None:
            raise ConfigError(
                f"found the speaker {speaker!r} and {counted(len(paths), 'reference')}, expected one of the two: "
                "a reference takes the speaker's place; leave out the speaker"
            )
        if self._network.voice_encoder is None:
            raise CheckpointError(
                f"{folder}: the model cannot clone a voice (model.voice_latents=0); leave out the reference, "
                "or train a model with voice latents"
            )
        latents = mean_voice(np.stack([self._embed_clip(Path(path)) for path in paths])).numpy()
        return _Voice(speaker_id, language_id, latents, speed, semitones, seed)

    def _embed_clip(self, path: Path) -> np.ndarray:
        """Return the latents of a sound file, float32 [V, D]; those of the last sounds asked for are kept."""
        # By content: a server stores each request's sound anew.
        try:
            key = hashlib.sha256(read_regular_file(path, MAX_FILE_BYTES)).digest()
        except OSError:  # `load_reference` raises its own error, unless the file has just appeared
            return self._embed_reference(load_reference(path, self.checkpoint.config.audio))
        latents = self._latents_of_clips.pop(key, None)
        if latents is None:
            latents = self._embed_reference(load_reference(path, self.checkpoint.config.audio))
        self._latents_of_clips[key] = latents
        if len(self._latents_of_clips) > MOST_VOICES_KEPT:
            del self._latents_of_clips[next(iter(self._latents_of_clips))]
        return latents

    def _embed_reference(self, mel: np.ndarray) -> np.ndarray:
        """Return the mean of the latents of a reference's windows, float32 [V, D], as in XTTS."""
        windows = cut_windows(tf.constant(mel[None]), tf.constant([len(mel)]), self._network.reference_frames)
        latents: np.ndarray = self._embed(*windows).numpy()[0]
        return latents

    def _rows(self, pieces: int) -> int:
        return 1 if pieces == 1 else self.checkpoint.config.synthesis.batch_size

    def _decode_in_turn(
        self, texts: Sequence[Sequence[Piece]], voice: _Voice
    ) -> Iterator[tuple[int, SpokenPiece | int | None]]:
        """Decode the first pieces of all texts, then the second ones; yield a text's number and its next chunk.

        Between two pieces it is the number of silent frames, and None at the end of a text.
        """
        for number in range(max(map(len, texts))):
            rows = [row for row, pieces in enumerate(texts) if number < len(pieces)]
            pieces, frames = [texts[row][number] for row in rows], [0] * len(rows)
            opened = self._open(pieces, voice, 1 if len(rows) == 1 else len(texts))
            # Before later pieces there is sound to play.
            for parts in self._decode(pieces, opened, voice.seed, SHORT_CHUNKS if number == 0 else 0):
                for place, part in enumerate(parts):
                    frames[place] += len(part.mel)
                    yield rows[place], part
            for row, piece, count in zip(rows, pieces, frames, strict=True):
                is_last = piece is texts[row][-1]
                yield row, None if is_last else piece.silent_frames(count, self._network.frames_per_step)

    def _decode_whole(self, pieces: Sequence[Piece], voice: _Voice, rows: int) -> list[SpokenPiece]:
        """Return the speech of the pieces; those with skipped or repeated words are decoded again."""
        opened = self._open(pieces, voice, rows)
        best = self._attempt(pieces, opened, voice, 1)
        for attempt in range(2, self.checkpoint.config.synthesis.max_attempts + 1):
            wrong = [row for row, said in enumerate(best) if said.faults.skipped_words or said.faults.repeated_words]
            if not wrong:
                break
            opened = self._lengthen(opened, voice.speed) if attempt == 2 else opened
            again = self._attempt(pieces, opened, voice, attempt)
            for row in wrong:
                # A longer plan may reach the limit of frames.
                better = min(best[row], again[row], key=lambda said: (not said.has_stopped, sum(said.faults)))
                best[row] = better._replace(attempts=attempt)
        return best

    def _lengthen(self, opened: _Opened, speed: float) -> _Opened:
        """Return the start with the least time for each word."""
        planned, durations = [lengthen_words(plan) for plan in opened.planned], np.array(opened.plan.timing.duration)
        for row, plan in enumerate(planned):
            durations[row, : len(plan.seconds)] = plan.seconds / (speed * self._frame_seconds)
        longer = SpeechPlan.of(opened.plan.tokens, whole_frames(tf.constant(durations)))
        return opened._replace(plan=longer, planned=planned)

    def _attempt(self, pieces: Sequence[Piece], opened: _Opened, voice: _Voice, attempt: int) -> list[SpokenPiece]:
        """Return the speech of the pieces with the noise of an attempt."""
        spoken = []
        for row, parts in enumerate(zip(*self._decode(pieces, opened, voice.seed + attempt - 1), strict=True)):
            mel, has_stopped = np.concatenate([part.mel for part in parts]), all(part.has_stopped for part in parts)
            frames = to_network_scale(mel).numpy()
            faults = spoken_faults(opened.planned[row], frames, self._frame_seconds, voice.speed)
            spoken.append(SpokenPiece(mel, has_stopped, cut_durations(parts[0].durations, len(mel)), faults))
        return spoken

    def _open(self, pieces: Sequence[Piece], voice: _Voice, rows: int) -> _Opened:
        """Return the start of the pieces' decoding, in a batch of `rows`."""
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
        plan, mean_frames = self._begin(
            tf.constant(tokens),
            tf.constant(lengths),
            *ids,
            latents,
            tf.constant(voice.speed, tf.float32),
            tf.constant(voice.semitones, tf.float32),
        )
        planned, durations = [], plan.timing.duration.numpy()
        for piece, frames, means in zip(pieces, durations, mean_frames.numpy(), strict=False):
            seconds = frames[: len(piece.tokens)] * voice.speed * self._frame_seconds
            planned.append(PlannedSpeech.of(seconds, means[: len(piece.tokens)], self.symbols(piece.tokens)))
        return _Opened(plan, tf.constant(max_frames), planned)

    def _decode(
        self, pieces: Sequence[Piece], opened: _Opened, seed: int, short_chunks: int = 0
    ) -> Iterator[list[SpokenPiece]]:
        """Yield the next chunk of each piece, empty for a piece that has ended, until all have ended."""
        faults, durations = [planned_faults(plan) for plan in opened.planned], opened.plan.timing.duration.numpy()
        step, noise = tf.constant(0), tf.constant(seed & 0xFFFFFFFF, tf.uint32)
        before, is_over = np.zeros(len(opened.max_frames), np.int32), False
        while not is_over:
            chunk_frames = self._short_frames if short_chunks > 0 else self._long_frames
            step, chunk = self._continue(opened.plan, step, opened.max_frames, noise, chunk_frames)
            short_chunks -= 1
            after, is_going_on, has_stopped = (
                each.numpy() for each in (chunk.length, chunk.is_speaking, chunk.has_stopped)
            )
            mel, parts = chunk.mel.numpy(), []
            for row, (piece, frames) in enumerate(zip(pieces, after - before, strict=False)):
                is_whole = bool(is_going_on[row] or has_stopped[row])
                planned = durations[row, : len(piece.tokens)]
                parts.append(SpokenPiece(mel[row, :frames], is_whole, planned, faults[row]))
            yield parts
            before, is_over, faults = after, not is_going_on.any(), [NO_FAULTS] * len(pieces)

    def _join(self, text: str, split: SplitText, spoken: Sequence[SpokenPiece]) -> SpokenText:
        pieces, mels, durations = split.pieces, [], []
        for piece, said in zip(pieces, spoken, strict=True):
            pause = 0 if piece is pieces[-1] else piece.silent_frames(len(said.mel), self._network.frames_per_step)
            mels += [said.mel, self.silence(pause)]
            durations += [said.durations[:-1], said.durations[-1:] + pause]
        mel = np.concatenate(mels)
        return SpokenText(
            text,
            tokens=np.concatenate([piece.tokens for piece in pieces]),
            mel=mel,
            durations=np.concatenate(durations),
            wave=self.vocoder(mel),
            sample_rate=self.checkpoint.config.audio.sample_rate,
            has_stopped=all(said.has_stopped for said in spoken),
            text_changes=split.changes,
            attempts=max(said.attempts for said in spoken),
            faults=reduce(Faults.plus, (said.faults for said in spoken)),
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
        semitones: tf.Tensor,
    ) -> tuple[SpeechPlan, tf.Tensor]:
        """Return the plan of the speech, and each token's mean frame [B, S, M]."""
        unused_mel = tf.zeros([tokens.shape[0], 1, self._network.mel_bins], tf.float16)
        batch = Batch(tokens, unused_mel, text_length, text_length, speaker, language)
        voice = None if latents is None else latents[None]
        memory = self._network.encode(batch, voice, has_reference, self._dropout())
        plan = self._network.begin_speech(memory, self.checkpoint.config.synthesis, speed, semitones)
        return plan, self._network.aligner.mean_frames(tokens, text_length, memory.voice_vector)

    def _continue_batch(
        self, plan: SpeechPlan, step: tf.Tensor, max_frames: tf.Tensor, seed: tf.Tensor, chunk_frames: int
    ) -> tuple[tf.Tensor, Chunk]:
        settings = self.checkpoint.config.synthesis
        return self._network.continue_speech(plan, step, Dropout.fixed(seed), max_frames, chunk_frames, settings)

    def _embed_windows(self, window_BNCM: tf.Tensor, length_BN: tf.Tensor) -> tf.Tensor:
        return self._network.embed_voice(window_BNCM, length_BN, self._dropout())

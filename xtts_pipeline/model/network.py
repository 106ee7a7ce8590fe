"""What every acoustic network has, and the interface of its decoder: the losses of a batch, the frames of a text.

It knows the static shapes of a record, but no cache and no file.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import AudioConfig, ModelConfig, SynthesisConfig, TrainingConfig
from xtts_pipeline.model.aligner import Aligner
from xtts_pipeline.model.decoding import Chunk, Speech, sharpen
from xtts_pipeline.model.encoders import TextEncoder, VoiceEncoder
from xtts_pipeline.model.layers import Dropout, Initializer, length_mask

# Natural-log mels lie between the floor, about -11.5, and about 2; the network's own scale is near zero.
MEL_CENTRE, MEL_SCALE = -5.0, 4.0


class Batch(NamedTuple):
    """Input of a compiled step, in the order of its signature; ids are None if the cache has only one of the kind.

    tokens int32 [B, S], mel float16 [B, T, M], text_length, mel_length, speaker, language int32 [B].
    reference [B, C, M], reference_length int32 [B]: frames of another clip of the speaker, 0 for a row without; no
    signature has them, `Network.with_other_clips` sets them inside a step.
    """

    tokens: tf.Tensor
    mel: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor
    speaker: tf.Tensor | None = None
    language: tf.Tensor | None = None
    reference: tf.Tensor | None = None
    reference_length: tf.Tensor | None = None


class Crop(NamedTuple):
    """The frames of each clip that are its own reference, int32 [B] each; length 0 is none, so the null voice."""

    first_frame: tf.Tensor
    length: tf.Tensor


class Memory(NamedTuple):
    """The encoders' output: text [B, S, D], its mask [B, S], and voice latents [B, V, D] if the network has them."""

    text: tf.Tensor
    text_mask: tf.Tensor
    voice: tf.Tensor | None


class Schedules(NamedTuple):
    """The values of a training step's schedules, which the autoregressive decoder has; validation has none."""

    guidance: tf.Tensor | float = 0.0
    scheduled_sampling_share: tf.Tensor | None = None


NO_SCHEDULES = Schedules()


class Network(tf.Module, ABC):
    """Text encoder, voice encoder and aligner, speaker and language vectors if there are several, and a decoder.

    `spec` fixes the longest text and mel. `symbol_count` is the size of the token table, with pad, begin and end.
    Matrices are multiplied in `dtype`.

    frames_per_step: the frames of one decoder step; one row of attention belongs to each step.
    LOSS_METRICS: what `losses` returns. SCHEDULES: metrics of the decoder's schedules.
    EXTRA_SALTS: names of the decoder's own random numbers.
    """

    LOSS_METRICS: ClassVar[tuple[str, ...]]
    SCHEDULES: ClassVar[tuple[str, ...]] = ()
    EXTRA_SALTS: ClassVar[tuple[str, ...]] = ()
    frames_per_step: int

    def __init__(
        self,
        config: ModelConfig,
        spec: RecordSpec,
        symbol_count: int,
        speakers: int = 1,
        languages: int = 1,
        seed: int = 0,
        dtype: tf.DType = tf.float32,
        audio: AudioConfig | None = None,
    ) -> None:
        super().__init__(name="network")
        self.audio = audio or AudioConfig().model_copy(update={"mel_bins": spec.mel_bins})
        initializer = Initializer(seed)
        self.dtype = dtype
        self.mel_bins, self.max_mel_frames = spec.mel_bins, spec.max_mel_frames
        self.silence = spec.pad_value
        self.reference_frames = min(config.reference_frames, spec.max_mel_frames)
        self.text_encoder = TextEncoder(initializer, config, symbol_count, spec.max_text_length)
        self.speaker_embedding = self.language_embedding = None
        if speakers > 1:
            self.speaker_embedding = initializer.normal((speakers, config.width), 0.1, "speaker_embedding")
        if languages > 1:
            self.language_embedding = initializer.normal((languages, config.width), 0.5, "language_embedding")
        self.build_decoder(initializer, config)
        self.voice_encoder = self.null_voice = None
        if config.voice_latents:
            self.voice_encoder = VoiceEncoder(initializer, config, spec.mel_bins)
            self.null_voice = initializer.normal((config.voice_latents, config.width), 0.5, "null_voice")
        self.aligner = Aligner(initializer, symbol_count, spec.mel_bins)
        self.salts = {name: initializer.salt() for name in ("crop_start", "crop_used", *self.EXTRA_SALTS)}

    @abstractmethod
    def build_decoder(self, initializer: Initializer, config: ModelConfig) -> None:
        """Create the decoder's variables."""

    @abstractmethod
    def batch_totals(self, batch: Batch, crop: Crop, config: TrainingConfig) -> Any:
        """Return the denominators of a whole batch's averages."""

    @abstractmethod
    def losses(
        self,
        batch: Batch,
        crop: Crop,
        dropout: Dropout,
        config: TrainingConfig,
        totals: Any,
        schedules: Schedules = NO_SCHEDULES,
    ) -> dict[str, tf.Tensor]:
        """Return the LOSS_METRICS: `objective`, which training minimises, its parts, and metrics.

        `loss` has the same parts in training and in validation. `mel_l1` is in natural log units. `token_error` is the
        aligner's loss.
        """

    @abstractmethod
    def predict_known(self, batch: Batch, crop: Crop, dropout: Dropout, settings: SynthesisConfig) -> tf.Tensor:
        """Return the frames [B, T, M] in natural log, predicted with the timing of the recorded ones."""

    @abstractmethod
    def begin_speech(
        self,
        memory: Memory,
        settings: SynthesisConfig,
        speed: tf.Tensor | float = 1.0,
        semitones: tf.Tensor | float = 0.0,
    ) -> tuple[Any, Any]:
        """Return what does not change while the texts are spoken, and the state before the first chunk."""

    def planned_durations(self, plan: Any) -> tf.Tensor | None:  # noqa: ARG002
        """Return the frames of each token [B, S] that the frames will have; None if nothing plans them."""
        return None

    @abstractmethod
    def continue_speech(
        self, plan: Any, state: Any, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig
    ) -> tuple[Any, Chunk]:
        """Return the next state and the next chunk of at least `chunk_frames` frames."""

    @abstractmethod
    def speak(self, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig) -> Speech:
        """Decode whole texts, equal to their chunks, at most `max_frames` a row."""

    def speech_metrics(self, speech: Speech, text_length_B: tf.Tensor) -> dict[str, tf.Tensor]:  # noqa: ARG002
        """Return metrics of spoken sentences; rows of length 0 have no weight."""
        return {}

    @property
    def parameter_count(self) -> int:
        """The number of trained parameters."""
        return sum(int(variable.shape.num_elements()) for variable in self.trainable_variables)

    def choose_reference(self, mel_length_B: tf.Tensor, dropout: Dropout, reference_dropout: float) -> Crop:
        """Return a random crop of each clip as its own reference: `reference_frames` long, at most half of the clip.

        A share `reference_dropout` of the rows gets none, so that the null voice is trained too.
        """
        rows = mel_length_B.shape[0]
        none_B = tf.zeros([rows], tf.int32)
        if self.voice_encoder is None:
            return Crop(none_B, none_B)
        length_B = tf.minimum(mel_length_B // 2, self.reference_frames)
        start_B = dropout.draw(self.salts["crop_start"], rows, 1)[:, 0] * tf.cast(
            mel_length_B - length_B + 1, tf.float32
        )
        is_used_B = dropout.draw(self.salts["crop_used"], rows, 1)[:, 0] >= reference_dropout
        return Crop(tf.cast(start_B, tf.int32), tf.where(is_used_B, length_B, 0))

    def with_other_clips(self, batch: Batch, crop: Crop, dropout: Dropout) -> tuple[Batch, Crop]:
        """Return the batch with a random crop of another of its clips, of the same speaker, as each row's reference.

        A clip's own frames tell its level and its prosody, which no reference of a user does. The other clip is the
        next of the speaker in the batch; a row without one keeps its crop, and a row without a reference has none.
        """
        if self.voice_encoder is None or batch.speaker is None:
            return batch, crop
        rows = batch.speaker.shape[0]
        number_B, is_real_B = tf.range(rows), batch.mel_length > 0
        ahead_BB = tf.math.floormod(number_B[None, :] - number_B[:, None], rows)
        is_other_BB = (batch.speaker[:, None] == batch.speaker[None, :]) & is_real_B[None, :] & (ahead_BB > 0)
        other_B = tf.argmin(tf.where(is_other_BB, ahead_BB, rows), axis=1, output_type=tf.int32)
        has_other_B = tf.reduce_any(is_other_BB, axis=1) & (crop.length > 0)
        other_length_B = tf.gather(batch.mel_length, other_B)
        length_B = tf.minimum(other_length_B, self.reference_frames)
        start_B = dropout.draw(self.salts["crop_start"], rows, 1)[:, 0] * tf.cast(
            other_length_B - length_B + 1, tf.float32
        )
        reference_BCM = self._window(tf.gather(batch.mel, other_B), tf.cast(start_B, tf.int32))
        return (
            batch._replace(reference=reference_BCM, reference_length=tf.where(has_other_B, length_B, 0)),
            crop._replace(length=tf.where(has_other_B, 0, crop.length)),
        )

    def encode_clips(self, batch: Batch, crop: Crop, dropout: Dropout) -> Memory:
        """Return the memory of clips with the references of the batch, or with their own crops if it has none."""
        if self.voice_encoder is None:
            return self.encode(batch, None, crop.length > 0, dropout)
        reference_BCM, length_B = self._window(batch.mel, crop.first_frame), crop.length
        if batch.reference is not None and batch.reference_length is not None:
            is_other_B = batch.reference_length > 0
            reference_BCM = tf.where(is_other_B[:, None, None], batch.reference, reference_BCM)
            length_B = tf.where(is_other_B, batch.reference_length, length_B)
        return self.encode(batch, self.embed_voice(reference_BCM, length_B, dropout), length_B > 0, dropout)

    def _window(self, mel_BTM: tf.Tensor, first_frame_B: tf.Tensor) -> tf.Tensor:
        """Return `reference_frames` frames of each clip, [B, C, M]; its last one again after its end."""
        frame_BC = tf.minimum(first_frame_B[:, None] + tf.range(self.reference_frames)[None, :], mel_BTM.shape[1] - 1)
        return tf.gather(mel_BTM, frame_BC, batch_dims=1)

    def embed_voice(self, reference_BCM: tf.Tensor, length_B: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the voice latents [B, V, D] of references, natural-log mels of `length` frames each."""
        if self.voice_encoder is None:
            raise ValueError("this network has no voice encoder; model.voice_latents is 0")
        return self.voice_encoder(tf.cast(self.to_network_scale(reference_BCM), self.dtype), length_B, dropout)

    def encode(self, batch: Batch, voice_BVD: tf.Tensor | None, has_reference_B: tf.Tensor, dropout: Dropout) -> Memory:
        """Return the memory that the decoder attends to; rows without a reference have the null voice.

        Only those rows get the speaker's vector, since a reference describes a voice better than its name.
        """
        language_BD = None if self.language_embedding is None else tf.gather(self.language_embedding, batch.language)
        text_BSD = self.text_encoder(batch.tokens, batch.text_length, dropout, self.dtype, language_BD)
        has_reference_B11 = has_reference_B[:, None, None]
        if self.speaker_embedding is not None:
            speaker_B1D = tf.gather(self.speaker_embedding, batch.speaker)[:, None, :]
            text_BSD += tf.cast(tf.where(has_reference_B11, 0.0, speaker_B1D), self.dtype)
        if voice_BVD is not None:
            voice_BVD = tf.where(has_reference_B11, voice_BVD, tf.cast(self.null_voice, self.dtype)[None])
        return Memory(text_BSD, length_mask(batch.text_length, batch.tokens.shape[1]), voice_BVD)

    @staticmethod
    def to_network_scale(mel: tf.Tensor) -> tf.Tensor:
        """Return natural-log mels in the network's scale, float32."""
        return (tf.cast(mel, tf.float32) - MEL_CENTRE) / MEL_SCALE

    @staticmethod
    def from_network_scale(mel: tf.Tensor) -> tf.Tensor:
        """Return mels of the network's scale in natural log."""
        return mel * MEL_SCALE + MEL_CENTRE

    @property
    def network_silence(self) -> float:
        """The mel floor in the network's scale."""
        return (self.silence - MEL_CENTRE) / MEL_SCALE

    def finish_frames(self, frames_BTM: tf.Tensor, settings: SynthesisConfig) -> tf.Tensor:
        """Return decoded frames as the vocoder takes them: natural log, with the `sharpness` of the settings."""
        return sharpen(self.from_network_scale(frames_BTM), settings.sharpness)

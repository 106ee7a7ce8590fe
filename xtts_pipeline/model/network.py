"""The acoustic network: how long each token lasts and how it sounds, from text and voice, then all frames at once.

After FastPitch (Lancucki 2021), with the aligner's durations in place of a teacher's. It knows the static shapes of a
record, but no cache and no file.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.config.schema import AudioConfig, ModelConfig, SynthesisConfig
from xtts_pipeline.model.aligner import Aligner
from xtts_pipeline.model.architecture import PROSODY_FEATURES, NetworkSizes
from xtts_pipeline.model.batch import (
    Batch,
    Crop,
    References,
    from_network_scale,
    next_of_speaker,
    to_network_scale,
    without_others,
)
from xtts_pipeline.model.durations import LEAST_DURATION, Timing, spoken_durations, timing_of
from xtts_pipeline.model.encoders import TextEncoder, VoiceEncoder
from xtts_pipeline.model.flow_head import FlowHead
from xtts_pipeline.model.frame_decoder import DecodedFrames, FrameDecoder, Prosody, ProsodyPredictor
from xtts_pipeline.model.layers import Dense, Dropout, Initializer, embed, length_mask
from xtts_pipeline.model.losses import (
    BatchTotals,
    Prediction,
    decoder_steps,
    rows_with_path,
    target_frames,
    training_losses,
)
from xtts_pipeline.model.pitch import Pitch, PitchFinder, harmonics, stretched_octaves

SEMITONES_PER_OCTAVE = 12.0


class Memory(NamedTuple):
    """The encoders' output: text [B, S, D] and its mask [B, S].

    voice: latents [B, V, D], if the network has them; see `Network.embed_voice`. speaker: vectors float32 [B, D], if
    there are several speakers; zero for rows with a reference, which describes a voice better than its name.
    """

    text: tf.Tensor
    text_mask: tf.Tensor
    voice: tf.Tensor | None
    speaker: tf.Tensor | None

    @property
    def voice_vector(self) -> tf.Tensor | None:
        """All that is known of the voice, float32 [B, D]; None for a network of one voice."""
        parts = [] if self.voice is None else [tf.cast(tf.reduce_mean(self.voice, axis=1), tf.float32)]
        parts += [] if self.speaker is None else [self.speaker]
        return tf.add_n(parts) if parts else None


class SpeechPlan(NamedTuple):
    """All that frames are decoded from: tokens [B, S, D], their timing, and the frames of each row, int32 [B]."""

    tokens: tf.Tensor
    timing: Timing
    length: tf.Tensor

    @classmethod
    def of(cls, tokens_BSD: tf.Tensor, duration_BS: tf.Tensor) -> "SpeechPlan":
        """Return the plan of tokens with these durations, of which each row sums to a whole number."""
        length_B = tf.cast(tf.round(tf.reduce_sum(duration_BS, axis=1)), tf.int32)
        return cls(tokens_BSD, timing_of(duration_BS), length_B)


class Speech(NamedTuple):
    """Decoded speech.

    mel [B, T, M] in natural log, silent after mel_length [B] frames. has_stopped [B] is False for a row that reached
    its frame limit. duration [B, S]: the planned frames of each token.
    """

    mel: tf.Tensor
    mel_length: tf.Tensor
    has_stopped: tf.Tensor
    duration: tf.Tensor


class Chunk(NamedTuple):
    """The next N decoder steps: mel [B, N * R, M] in natural log.

    length [B]: the frames of each row so far. has_stopped [B] is that of Speech. is_speaking [B] is False for rows that
    have ended, whose frames after `length` are undefined.
    """

    mel: tf.Tensor
    length: tf.Tensor
    has_stopped: tf.Tensor
    is_speaking: tf.Tensor


class Network(tf.Module):
    """Text encoder, voice encoder and aligner, speaker and language vectors if there are several, and a decoder.

    `sizes.spec` fixes the longest text and mel. Matrices are multiplied in `dtype`.

    frames_per_step: the frames of one decoder step.
    """

    def __init__(
        self,
        config: ModelConfig,
        audio: AudioConfig,
        sizes: NetworkSizes,
        seed: int = 0,
        dtype: tf.DType = tf.float32,
    ) -> None:
        super().__init__(name="network")
        initializer, spec = Initializer(seed), sizes.spec
        self.dtype, self.audio = dtype, audio
        self.mel_bins, self.max_mel_frames = spec.mel_bins, spec.max_mel_frames
        self.silence = spec.pad_value
        self.reference_frames = min(config.reference_frames, spec.max_mel_frames)
        self.frames_per_step = config.frames_per_step
        self.text_encoder = TextEncoder(initializer, config, sizes.symbols, spec.max_text_length)
        self.speaker_embedding = self.language_embedding = None
        if sizes.speakers > 1:
            self.speaker_embedding = initializer.normal((sizes.speakers, config.width), 0.1, "speaker_embedding")
        if sizes.languages > 1:
            self.language_embedding = initializer.normal((sizes.languages, config.width), 0.5, "language_embedding")
        self.voice_to_tokens = None
        if config.voice_latents:
            self.voice_to_tokens = Dense(initializer, config.width, config.width, "voice_to_tokens")
        self.predictor = ProsodyPredictor(initializer, config)
        self.pitch_finder = PitchFinder(audio)
        self.prosody_to_tokens = Dense(initializer, PROSODY_FEATURES, config.width, "prosody_to_tokens")
        self.frame_decoder = FrameDecoder(initializer, config, spec.mel_bins)
        self.flow_head = FlowHead(initializer, config, audio) if config.flow_layers else None
        self.voice_encoder = self.null_voice = None
        if config.voice_latents:
            self.voice_encoder = VoiceEncoder(initializer, config, spec.mel_bins)
            self.null_voice = initializer.normal((config.voice_latents, config.width), 0.5, "null_voice")
        voice_width = config.width if config.voice_latents or sizes.speakers > 1 else None
        self.aligner = Aligner(initializer, sizes.symbols, spec.mel_bins, voice_width)
        self.crop_start_salt, self.crop_used_salt = initializer.salt(), initializer.salt()

    @property
    def parameter_count(self) -> int:
        """The number of trained parameters."""
        return sum(int(variable.shape.num_elements()) for variable in self.trainable_variables)

    def __call__(self, batch: Batch, reference: References | None, dropout: Dropout) -> Prediction:
        """Predict the frames of recorded clips from their own durations, energies and pitches, and predict those."""
        memory = self.encode_clips(batch, reference, dropout)
        mel_BTM = to_network_scale(batch.mel)
        alignment = self.aligner(batch.tokens, batch.text_length, mel_BTM, batch.mel_length, memory.voice_vector)
        duration_BS = tf.reduce_sum(alignment.posterior, axis=1)
        level_BS = tf.einsum("BTS,BT->BS", alignment.posterior, tf.reduce_mean(mel_BTM, axis=-1))
        present_BS = tf.maximum(duration_BS, LEAST_DURATION)
        pitch = self.pitch_finder(mel_BTM, alignment.posterior)
        measured = Prosody(tf.math.log(present_BS), level_BS / present_BS, *pitch)
        tokens_BSD = self.add_voice(memory)
        predicted = self._predict_prosody(tokens_BSD, memory, dropout)
        tokens_BSD = self._add_prosody(tokens_BSD, measured)
        step_F = tf.range(decoder_steps(batch.mel.shape[1], self.frames_per_step))
        decoded = self.frame_decoder(tokens_BSD, timing_of(duration_BS), batch.mel_length, dropout, step_F)
        return Prediction(decoded, predicted, measured, alignment)

    def losses(
        self, batch: Batch, crop: Crop, reference: References | None, dropout: Dropout, totals: BatchTotals
    ) -> dict[str, tf.Tensor]:
        """Return the losses with the aligner's durations; see `training_losses`."""
        batch, crop = rows_with_path(batch, crop)
        prediction = self(batch, reference, dropout)
        target_BTM = target_frames(batch, self.frames_per_step, self.silence)
        velocities = None
        if self.flow_head is not None:
            velocities = self.flow_head.velocities(prediction.decoded, target_BTM, dropout)
        return training_losses(batch, crop, target_BTM, prediction, velocities, totals)

    def predict_known(
        self, batch: Batch, reference: References | None, dropout: Dropout, settings: SynthesisConfig
    ) -> tf.Tensor:
        """Return the frames [B, T, M] in natural log, with the durations, energies and pitches of the recording."""
        decoded = self(batch, reference, dropout).decoded
        return self._finish_frames(decoded, dropout, 0, settings)[:, : batch.mel.shape[1]]

    def begin_speech(
        self,
        memory: Memory,
        settings: SynthesisConfig,
        speed: tf.Tensor | float = 1.0,
        semitones: tf.Tensor | float = 0.0,
    ) -> SpeechPlan:
        """Return the plan of the speech of texts."""
        tokens_BSD = self.add_voice(memory)
        predicted = self._predict_prosody(tokens_BSD, memory, Dropout.fixed(0))
        duration_BS = spoken_durations(predicted.log_duration, memory.text_mask, speed)
        pitch = Pitch(predicted.voicing, predicted.octaves)
        octaves_BS = stretched_octaves(pitch, duration_BS, settings.pitch_range) + semitones / SEMITONES_PER_OCTAVE
        predicted = predicted._replace(octaves=octaves_BS)
        return SpeechPlan.of(self._add_prosody(tokens_BSD, predicted), duration_BS)

    def continue_speech(
        self,
        plan: SpeechPlan,
        first_step: tf.Tensor,
        dropout: Dropout,
        max_frames_B: tf.Tensor,
        chunk_frames: int,
        settings: SynthesisConfig,
    ) -> tuple[tf.Tensor, Chunk]:
        """Decode `chunk_frames` frames, in whole steps from `first_step` on; return the next step and the chunk.

        They are decoded in a window that holds all that they depend on, so chunks equal whole speech.
        """
        steps = decoder_steps(chunk_frames, self.frames_per_step)
        reach = self.frame_decoder.reach
        if self.flow_head is not None:
            reach += self.flow_head.reach * settings.flow_steps
        length_B, first = tf.minimum(plan.length, max_frames_B), first_step - reach
        decoded = self.frame_decoder(
            plan.tokens, plan.timing, length_B, dropout, first + tf.range(reach + steps + reach)
        )
        inside = slice(reach * self.frames_per_step, (reach + steps) * self.frames_per_step)
        following = first_step + steps
        is_speaking_B = length_B > following * self.frames_per_step
        return following, Chunk(
            self._finish_frames(decoded, dropout, first, settings)[:, inside],
            tf.minimum(length_B, following * self.frames_per_step),
            ~is_speaking_B & (plan.length <= max_frames_B),
            is_speaking_B,
        )

    def speak(self, memory: Memory, dropout: Dropout, max_frames_B: tf.Tensor, settings: SynthesisConfig) -> Speech:
        """Decode all frames of the texts at once, at most `max_frames` a row."""
        plan = self.begin_speech(memory, settings)
        max_frames_B = tf.minimum(max_frames_B, self.max_mel_frames)
        length_B = tf.minimum(plan.length, max_frames_B)
        step_F = tf.range(decoder_steps(self.max_mel_frames, self.frames_per_step))
        decoded = self.frame_decoder(plan.tokens, plan.timing, length_B, dropout, step_F)
        mel_BTM = self._finish_frames(decoded, dropout, 0, settings)[:, : self.max_mel_frames]
        mel_BTM = tf.where(length_mask(length_B, self.max_mel_frames)[..., None], mel_BTM, self.silence)
        return Speech(mel_BTM, length_B, plan.length <= max_frames_B, plan.timing.duration)

    def choose_crops(self, mel_length_B: tf.Tensor, dropout: Dropout, reference_dropout: float) -> Crop:
        """Return a random crop of each clip as its own reference: `reference_frames` long, at most half of the clip.

        A share `reference_dropout` of the rows gets none, so that the null voice is trained too.
        """
        rows = mel_length_B.shape[0]
        none_B = tf.zeros([rows], tf.int32)
        if self.voice_encoder is None:
            return Crop(none_B, none_B)
        length_B = tf.minimum(mel_length_B // 2, self.reference_frames)
        start_B = self._crop_start(mel_length_B - length_B, dropout)
        is_used_B = dropout.draw(self.crop_used_salt, rows) >= reference_dropout
        return Crop(start_B, tf.where(is_used_B, length_B, 0))

    def own_references(self, batch: Batch, crop: Crop) -> References | None:
        """Return the crops of the clips, None if the network takes no references."""
        return (
            None if self.voice_encoder is None else References(self._window(batch.mel, crop.first_frame), crop.length)
        )

    def other_references(self, batch: Batch, crop: Crop, dropout: Dropout) -> tuple[Crop, References | None]:
        """Return references from other clips of the same speakers, and the crops that are still used.

        A clip's own frames tell its level and its prosody, which no reference of a user does. The other clip is the
        next of the speaker in the batch; a row without one keeps its crop, and a row without a reference has none.
        """
        if self.voice_encoder is None or batch.speaker is None:
            return crop, self.own_references(batch, crop)
        other_B = next_of_speaker(batch.speaker, batch.mel_length)
        return without_others(crop, other_B), self.choose_references(
            batch, crop, other_B, self.shared_references(batch, dropout)
        )

    def shared_references(self, batch: Batch, dropout: Dropout) -> References:
        """Return a random crop of each clip as the reference of other clips, `reference_frames` long if the clip is."""
        length_B = tf.minimum(batch.mel_length, self.reference_frames)
        return References(self._window(batch.mel, self._crop_start(batch.mel_length - length_B, dropout)), length_B)

    def choose_references(self, batch: Batch, crop: Crop, other_B: tf.Tensor, shared: References) -> References:
        """Return the shared reference at row `other` of each row that hears one and has another clip, else its crop."""
        has_other_B, row_B = (other_B >= 0) & (crop.length > 0), tf.maximum(other_B, 0)
        return References(
            tf.where(
                has_other_B[:, None, None], tf.gather(shared.mel, row_B), self._window(batch.mel, crop.first_frame)
            ),
            tf.where(has_other_B, tf.gather(shared.length, row_B), crop.length),
        )

    def _crop_start(self, last_B: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        share_B = dropout.draw(self.crop_start_salt, last_B.shape[0])
        return tf.cast(share_B * tf.cast(last_B + 1, tf.float32), tf.int32)

    def _window(self, mel_BTM: tf.Tensor, first_frame_B: tf.Tensor) -> tf.Tensor:
        """Return `reference_frames` frames of each clip, [B, C, M]; its last one again after its end."""
        frame_BC = tf.minimum(first_frame_B[:, None] + tf.range(self.reference_frames)[None, :], mel_BTM.shape[1] - 1)
        return tf.gather(mel_BTM, frame_BC, batch_dims=1)

    def encode_clips(self, batch: Batch, reference: References | None, dropout: Dropout) -> Memory:
        """Return the memory of texts with these references."""
        if reference is None:
            return self.encode(batch, None, tf.fill([batch.tokens.shape[0]], False), dropout)
        # The pitch is that of the clip itself. A predictor that learns to correct the pitch of a short reference by who
        # speaks draws new voices to those of the training.
        octaves_B = self._clip_octaves(batch.mel, batch.mel_length)
        voice_BVD = _with_octaves(self._latents(reference, dropout), octaves_B)
        return self.encode(batch, voice_BVD, reference.length > 0, dropout)

    def embed_voice(self, window_BNCM: tf.Tensor, length_BN: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the mean of the latents of each reference's windows, [B, V, D], as in XTTS.

        Windows are natural-log mels of `length` frames each; 0 is none. The first number of each latent is the pitch,
        mean over the windows with voice, in octaves above 150 Hz.
        """
        rows, windows, *window_shape = window_BNCM.shape
        flat = References(tf.reshape(window_BNCM, [rows * windows, *window_shape]), tf.reshape(length_BN, [-1]))
        latents = self._latents(flat, dropout)
        latent_BNVD = tf.reshape(latents, [rows, windows, *latents.shape[1:]])
        octaves_BN = tf.reshape(self._clip_octaves(*flat), [rows, windows])
        is_voiced_BN = tf.cast(octaves_BN != 0.0, tf.float32)
        latent_BVD = _mean_where(tf.cast(length_BN > 0, latents.dtype)[..., None, None], latent_BNVD)
        return _with_octaves(latent_BVD, _mean_where(is_voiced_BN, octaves_BN))

    def _clip_octaves(self, mel_BTM: tf.Tensor, length_B: tf.Tensor) -> tf.Tensor:
        return self.pitch_finder.of_clips(to_network_scale(mel_BTM), length_mask(length_B, mel_BTM.shape[1]))

    def _latents(self, reference: References, dropout: Dropout) -> tf.Tensor:
        if self.voice_encoder is None:
            raise ValueError("this network has no voice encoder; model.voice_latents is 0")
        return self.voice_encoder(tf.cast(to_network_scale(reference.mel), self.dtype), reference.length, dropout)

    def encode(self, batch: Batch, voice_BVD: tf.Tensor | None, has_reference_B: tf.Tensor, dropout: Dropout) -> Memory:
        """Return the memory that the decoder reads; rows without a reference have the null voice."""
        language_BD = None if self.language_embedding is None else embed(self.language_embedding, batch.language)
        text_BSD = self.text_encoder(batch.tokens, batch.text_length, dropout, self.dtype, language_BD)
        speaker_BD = None
        if self.speaker_embedding is not None:
            speaker_BD = tf.where(has_reference_B[:, None], 0.0, embed(self.speaker_embedding, batch.speaker))
            text_BSD += tf.cast(speaker_BD, self.dtype)[:, None, :]
        if voice_BVD is not None:
            null_BVD = _with_octaves(tf.cast(self.null_voice, self.dtype)[None], tf.zeros([1]))
            voice_BVD = tf.where(has_reference_B[:, None, None], voice_BVD, null_BVD)
        return Memory(text_BSD, length_mask(batch.text_length, batch.tokens.shape[1]), voice_BVD, speaker_BD)

    def add_voice(self, memory: Memory) -> tf.Tensor:
        """Return the text with the mean of the voice's latents, [B, S, D]: the input of the predictor."""
        if self.voice_to_tokens is None:
            return memory.text
        return memory.text + self.voice_to_tokens(tf.reduce_mean(memory.voice, axis=1))[:, None, :]

    def _predict_prosody(self, tokens_BSD: tf.Tensor, memory: Memory, dropout: Dropout) -> Prosody:
        """Return the prosody of tokens; their pitch is predicted as a distance from that of the reference."""
        predicted = self.predictor(tokens_BSD, memory.text_mask, dropout)
        if memory.voice is None:
            return predicted
        return predicted._replace(octaves=predicted.octaves + tf.cast(memory.voice[:, :1, 0], tf.float32))

    def _add_prosody(self, tokens_BSD: tf.Tensor, prosody: Prosody) -> tf.Tensor:
        features_BS3 = tf.stack([prosody.energy, prosody.voicing, prosody.voicing * prosody.octaves], axis=-1)
        features_BSP = tf.concat([features_BS3, harmonics(Pitch(prosody.voicing, prosody.octaves))], axis=-1)
        return tokens_BSD + self.prosody_to_tokens(tf.cast(features_BSP, tokens_BSD.dtype))

    def _finish_frames(
        self, decoded: DecodedFrames, dropout: Dropout, first_step: tf.Tensor | int, settings: SynthesisConfig
    ) -> tf.Tensor:
        """Return decoded frames with their detail, [B, F * R, M] in natural log."""
        frames_BFN = decoded.coarse
        if self.flow_head is not None:
            frames_BFN = self.flow_head.draw(decoded, dropout, first_step, settings.flow_steps, settings.guidance)
        frames_BTM = tf.reshape(frames_BFN, [frames_BFN.shape[0], -1, self.mel_bins])
        return tf.maximum(from_network_scale(frames_BTM), self.silence)


def mean_voice(voice_NVD: tf.Tensor) -> tf.Tensor:
    """Return the mean of the voices of clips, [V, D]; that of the pitch is over the clips with voice."""
    octaves_1N = voice_NVD[None, :, 0, 0]
    is_voiced_1N = tf.cast(octaves_1N != 0.0, voice_NVD.dtype)
    return _with_octaves(tf.reduce_mean(voice_NVD, axis=0, keepdims=True), _mean_where(is_voiced_1N, octaves_1N))[0]


def _with_octaves(latent_BVD: tf.Tensor, octaves_B: tf.Tensor) -> tf.Tensor:
    """Return the latents with these octaves in place of the first number of each."""
    is_first_D = tf.range(latent_BVD.shape[-1]) == 0
    return tf.where(is_first_D, tf.cast(octaves_B, latent_BVD.dtype)[:, None, None], latent_BVD)


def _mean_where(is_kept_BN: tf.Tensor, value_BN: tf.Tensor) -> tf.Tensor:
    """Return the mean over axis 1 of the values at ones of `is_kept`, which has zeros elsewhere; 0 if there is none."""
    return tf.math.divide_no_nan(tf.reduce_sum(value_BN * is_kept_BN, axis=1), tf.reduce_sum(is_kept_BN, axis=1))

"""The whole network: predict mel frames, stop logits and attention from tokens, a voice and earlier frames.

It knows the static shapes of a record, but no cache and no file.
"""

from typing import NamedTuple

import tensorflow as tf

from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import ModelConfig
from xtts_pipeline.model.aligner import Aligner, Alignment, pool_to_decoder_steps
from xtts_pipeline.model.encoders import TextEncoder, VoiceEncoder
from xtts_pipeline.model.layers import Dropout, Initializer, length_mask
from xtts_pipeline.model.mel_decoder import DecoderOutputs, MelDecoder, Memory, Postnet

# Natural-log mels lie between the floor, about -11.5, and about 2; the network's own scale is near zero.
MEL_CENTRE, MEL_SCALE = -5.0, 4.0


class Batch(NamedTuple):
    """Input of a compiled step, in the order of its signature; ids are None if the cache has only one of the kind.

    tokens int32 [B, S], mel float16 [B, T, M], text_length, mel_length, speaker, language int32 [B].
    """

    tokens: tf.Tensor
    mel: tf.Tensor
    text_length: tf.Tensor
    mel_length: tf.Tensor
    speaker: tf.Tensor | None = None
    language: tf.Tensor | None = None


class Crop(NamedTuple):
    """The frames of each clip that are its own reference, int32 [B] each; length 0 selects the null voice."""

    first_frame: tf.Tensor
    length: tf.Tensor


class Prediction(NamedTuple):
    """Output of teacher forcing, float32; mels are in the network's scale.

    coarse and fine [B, T, M], before and after the postnet, T rounded up to whole decoder steps. text_frames [B, T, M],
    the part of `coarse` predicted from the text alone. stop_logit [B, F]. attention [B, G, F, S] of the guided heads to
    the text. alignment of the ground-truth frames, and token_shares [B, F, S], its posterior averaged over each decoder
    step.
    """

    coarse: tf.Tensor
    fine: tf.Tensor
    text_frames: tf.Tensor
    stop_logit: tf.Tensor
    attention: tf.Tensor
    alignment: Alignment
    token_shares: tf.Tensor


class DecoderInputs(NamedTuple):
    """Feedback to each decoder step: the last frame [B, F, M] and the attention [B, F, S] of the step before it."""

    previous_frames: tf.Tensor
    previous_attention: tf.Tensor


class Network(tf.Module):
    """Text encoder, voice encoder, mel decoder, postnet and aligner; speaker and language vectors if there are several.

    `spec` fixes the longest text and mel. `symbol_count` is the size of the token table, with pad, begin and end.
    Matrices are multiplied in `dtype`.
    """

    def __init__(
        self,
        config: ModelConfig,
        spec: RecordSpec,
        symbol_count: int,
        speakers: int = 1,
        languages: int = 1,
        seed: int = 0,
        dtype: tf.DType = tf.float32,
    ) -> None:
        super().__init__(name="network")
        initializer = Initializer(seed)
        self.dtype = dtype
        self.frames_per_step, self.mel_bins = config.frames_per_step, spec.mel_bins
        self.max_steps = -(-spec.max_mel_frames // config.frames_per_step)
        self.silence = spec.pad_value
        self.reference_frames = min(config.reference_frames, spec.max_mel_frames)
        self.text_encoder = TextEncoder(initializer, config, symbol_count, spec.max_text_length)
        self.speaker_embedding = self.language_embedding = None
        if speakers > 1:
            self.speaker_embedding = initializer.normal((speakers, config.width), 0.1, "speaker_embedding")
        if languages > 1:
            self.language_embedding = initializer.normal((languages, config.width), 0.5, "language_embedding")
        self.mel_decoder = MelDecoder(initializer, config, spec.mel_bins, self.max_steps)
        self.postnet = Postnet(initializer, config, spec.mel_bins)
        self.voice_encoder = self.null_voice = None
        if config.voice_latents:
            self.voice_encoder = VoiceEncoder(initializer, config, spec.mel_bins)
            self.null_voice = initializer.normal((config.voice_latents, config.width), 0.5, "null_voice")
        self.aligner = Aligner(initializer, symbol_count, spec.mel_bins)
        self.salts = {name: initializer.salt() for name in ("crop_start", "crop_used", "scheduled_sampling")}

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

    def __call__(
        self, batch: Batch, crop: Crop, dropout: Dropout, scheduled_sampling_share: tf.Tensor | None = None
    ) -> Prediction:
        """Predict each frame from the ground-truth frames before it, or with scheduled sampling from predicted ones."""
        memory = self.encode(batch, self.crop_voice(batch.mel, crop, dropout), crop.length > 0, dropout)
        mel_BTM = self.to_network_scale(batch.mel)
        alignment = self.aligner(batch.tokens, batch.text_length, mel_BTM, batch.mel_length)
        token_shares_BFS = pool_to_decoder_steps(alignment.posterior, self.frames_per_step)
        inputs = DecoderInputs(self._previous_frames(mel_BTM), _shift_one_step(token_shares_BFS))
        if scheduled_sampling_share is not None:
            inputs = self._sample_inputs(inputs, memory, scheduled_sampling_share, dropout)
        outputs = self._decode(inputs, memory, dropout)
        return Prediction(
            outputs.frames,
            self.refine(outputs.frames, dropout),
            outputs.text_frames,
            outputs.stop_logit,
            outputs.attention,
            alignment,
            token_shares_BFS,
        )

    def crop_voice(self, mel_BTM: tf.Tensor, crop: Crop, dropout: Dropout) -> tf.Tensor | None:
        """Return the voice latents [B, V, D] of each clip's own reference; None without a voice encoder."""
        if self.voice_encoder is None:
            return None
        frame_BC = tf.minimum(
            crop.first_frame[:, None] + tf.range(self.reference_frames)[None, :], mel_BTM.shape[1] - 1
        )
        return self.embed_voice(tf.gather(mel_BTM, frame_BC, batch_dims=1), crop.length, dropout)

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

    def refine(self, coarse_BTM: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Return the frames after the postnet, float32, in the network's scale."""
        return tf.cast(self.postnet(tf.cast(coarse_BTM, self.dtype), dropout), tf.float32)

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

    def silent_frame(self, rows: int) -> tf.Tensor:
        """Return the frame before the first decoder step, [rows, 1, M]."""
        return tf.fill([rows, 1, self.mel_bins], self.network_silence)

    def _previous_frames(self, frames_BTM: tf.Tensor) -> tf.Tensor:
        """Return the last frame of the step before each decoder step, silence for the first: [B, F, M]."""
        steps = -(-frames_BTM.shape[1] // self.frames_per_step)
        last_BFM = frames_BTM[:, self.frames_per_step - 1 :: self.frames_per_step][:, : steps - 1]
        return tf.concat([self.silent_frame(frames_BTM.shape[0]), last_BFM], axis=1)

    def _decode(self, inputs: DecoderInputs, memory: Memory, dropout: Dropout) -> DecoderOutputs:
        frames_BFM = tf.cast(inputs.previous_frames, self.dtype)
        return self.mel_decoder.decode_all(frames_BFM, inputs.previous_attention, memory, dropout)

    def _sample_inputs(self, true: DecoderInputs, memory: Memory, share: tf.Tensor, dropout: Dropout) -> DecoderInputs:
        """Scheduled sampling: a random share of the steps gets the output of a first pass instead of ground truth.

        Parallel scheduled sampling (Duckworth et al. 2019): one more forward pass without gradient, instead of a loop
        over steps.
        """
        rows, steps = true.previous_frames.shape[:2]

        def mix() -> DecoderInputs:
            outputs = self._decode(true, memory, dropout)
            is_sampled_BF1 = (dropout.draw(self.salts["scheduled_sampling"], rows, steps) < share)[..., None]
            attention_BFS = _shift_one_step(tf.reduce_mean(outputs.attention, axis=1))
            frames_BFM = tf.where(is_sampled_BF1, self._previous_frames(outputs.frames), true.previous_frames)
            return DecoderInputs(frames_BFM, tf.where(is_sampled_BF1, attention_BFS, true.previous_attention))

        # A condition, not a share of 0: before sampling starts the first pass must cost nothing.
        return DecoderInputs(*map(tf.stop_gradient, tf.cond(share > 0.0, mix, lambda: true)))


def _shift_one_step(x_BFS: tf.Tensor) -> tf.Tensor:
    """Return each decoder step's value at the step after it; 0 at the first step."""
    return tf.pad(x_BFS, [[0, 0], [1, 0], [0, 0]])[:, :-1]

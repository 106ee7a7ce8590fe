"""A checkpoint that speaks: text in, mel and sound out. Settings and symbols come from the checkpoint, never from a config beside it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.audio.vocoder import GriffinLim, Vocoder
from xtts_pipeline.errors import CheckpointError, Reason, TextError
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.model.network import Batch
from xtts_pipeline.model.speech import Manner, Speech, speak
from xtts_pipeline.schema import PAD_ID, pad_to
from xtts_pipeline.text.tokens import Tokenizer, prepare_texts
from xtts_pipeline.training.checkpoint import Checkpoint, load_checkpoint, load_network

QUOTED_CHARACTERS = 40
REMEDIES = {
    Reason.EMPTY_TEXT: "say something",
    Reason.UNKNOWN_SYMBOL: "leave it out, or train on a corpus that has it",
    Reason.PHONEMIZER_FAILED: "check the language",
}


@dataclass(frozen=True)
class SpokenText:
    """One text as it was spoken.

    tokens int32 [S]; mel float32 [T, mel_bins], natural log; attention float32 [F, S], the mean of the heads that follow the text;
    wave float32 [samples]. has_stopped is False where the length cap ended it.
    """

    text: str
    tokens: np.ndarray
    mel: np.ndarray
    attention: np.ndarray
    wave: np.ndarray
    sample_rate: int
    has_stopped: bool

    @property
    def seconds(self) -> float:
        """Duration of the sound."""
        return len(self.wave) / self.sample_rate


class Synthesizer:
    """Speaks with one trained network; compiled once, for texts up to the checkpoint's longest."""

    def __init__(self, checkpoint: Checkpoint, vocoder: Vocoder | None = None) -> None:
        self.checkpoint = checkpoint
        config, cache = checkpoint.config, checkpoint.cache
        self._network = load_network(checkpoint)
        self._tokenizer = Tokenizer(cache.symbols, config.text.blank)
        self._vocoder = vocoder or GriffinLim(config.audio, config.synthesis.griffin_lim_iterations, config.synthesis.griffin_lim_momentum)
        self._speak = tf.function(self._speak_batch, jit_compile=True, autograph=False)

    @classmethod
    def load(cls, run: Path) -> "Synthesizer":
        """Load a run's newest checkpoint, or the checkpoint at this path."""
        return cls(load_checkpoint(run))

    def synthesize(self, text: str, speaker: str | None = None, language: str | None = None) -> SpokenText:
        """Say a text.

        Raises TextError if it is empty, too long, or has a character that the checkpoint's corpus did not have, and CheckpointError for
        an unknown speaker or language.
        """
        cache, config = self.checkpoint.cache, self.checkpoint.config
        speaker_id = _index("speaker", cache.speakers, speaker, self.checkpoint.folder)
        language_id = _index("language", cache.languages, language, self.checkpoint.folder)
        tokens = self._encode(text, cache.languages[language_id])
        max_frames = min(round(config.synthesis.max_frames_per_token * len(tokens)), cache.spec.max_mel_frames)
        speech = self._speak(
            tf.constant(pad_to(tokens, cache.spec.max_text_length, PAD_ID)[None]),
            tf.constant([len(tokens)]),
            tf.constant([speaker_id]),
            tf.constant([language_id]),
            tf.constant([max_frames]),
        )
        frames = int(speech.mel_length[0])
        mel = speech.mel[0, :frames].numpy()
        steps = -(-frames // self._network.frames_per_step)
        attention = speech.attention[0, :steps, : len(tokens)].numpy()
        return SpokenText(text, tokens, mel, attention, self._vocoder(mel), config.audio.sample_rate, bool(speech.has_stopped[0]))

    def vocode(self, mel: np.ndarray) -> np.ndarray:
        """Return the sound of natural-log mel frames, [T, mel_bins], by the vocoder that speech goes through: copy synthesis."""
        return self._vocoder(mel)

    def symbols(self, tokens: np.ndarray) -> list[str]:
        """Return how each token is written, for people: its symbol, or a name such as `<begin>`."""
        return [self._tokenizer.name_of(int(token)) for token in tokens]

    def _encode(self, text: str, language: str) -> np.ndarray:
        config = self.checkpoint.config
        try:
            prepared = prepare_texts([text], [language], config.text)[0]
            if isinstance(prepared, TextError):
                raise prepared
            tokens = self._tokenizer.encode(prepared)
        except TextError as error:
            start = text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}..."
            raise TextError(error.reason, f"text {start!r}: {error.detail}; {REMEDIES.get(error.reason, 'say it otherwise')}") from None
        if len(tokens) > config.limits.max_text_length:
            found = f"{len(tokens)} tokens, the model was trained on {config.limits.max_text_length} at most"
            raise TextError(Reason.TEXT_TOO_LONG, f"text of {len(text)} characters: {found}; split it")
        return tokens

    def _speak_batch(
        self, tokens: tf.Tensor, text_length: tf.Tensor, speaker: tf.Tensor, language: tf.Tensor, max_frames: tf.Tensor
    ) -> Speech:
        network, config = self._network, self.checkpoint.config
        unused_mel = tf.zeros([tokens.shape[0], 1, network.mel_bins], tf.float16)
        batch = Batch(tokens, unused_mel, text_length, max_frames, speaker, language)
        dropout = Dropout.fixed(config.training.seed)
        voice = None if network.null_voice is None else network.null_voice[None]
        memory = network.encode(batch, voice, tf.zeros([tokens.shape[0]], tf.bool), dropout)
        settings = config.synthesis
        return speak(
            network, memory, dropout, max_frames, Manner(settings.stop_threshold, settings.attention_back, settings.attention_ahead)
        )


def _index(kind: str, names: tuple[str, ...], wanted: str | None, folder: Path) -> int:
    if wanted is None:
        return 0
    if wanted not in names:
        raise CheckpointError(f"{folder}: no {kind} {wanted!r}; it knows {', '.join(names)}")
    return names.index(wanted)

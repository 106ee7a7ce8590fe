"""Speak a text with espeak-ng: the reference with known word times to which a recording is aligned."""

from dataclasses import dataclass, replace

import numpy as np

from xtts_pipeline.audio.mel import pcm_to_wave
from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.corpus.segment.speech import HOPS_PER_FRAME, find_speech, hop_length, mel_hops
from xtts_pipeline.errors import CorpusError, TextError
from xtts_pipeline.text.normalize import normalize
from xtts_pipeline.text.sentences import split_sentences


@dataclass(frozen=True)
class Reference:
    """A text as words, and its speech without pauses.

    mels: float32 [U, M]. word_starts: the first frame of each word and U, int [words + 1]; words without a time of
    their own share one. sentence_ends: the number of words up to the end of each sentence, with 0 before the first.
    """

    words: list[str]
    mels: np.ndarray
    word_starts: np.ndarray
    sentence_ends: np.ndarray

    @property
    def word_at(self) -> np.ndarray:
        """The word that starts at each frame, int [U + 1]; -1 where none or, outside sentence ends, several do."""
        words = np.full(len(self.mels) + 1, -1)
        starts, first, counts = np.unique(self.word_starts, return_index=True, return_counts=True)
        words[starts[counts == 1]] = first[counts == 1]
        words[self.word_starts[self.sentence_ends]] = self.sentence_ends
        return words

    def at_pace(self, pace: float) -> "Reference":
        """Return the reference as if it had been spoken so many times faster, from half to twice."""
        pace = float(np.clip(pace, 0.5, 2.0))
        places = (np.arange(int(len(self.mels) / pace)) * pace).astype(int)
        return replace(self, mels=self.mels[places], word_starts=np.searchsorted(places, self.word_starts))


def speak_reference(text: str, language: str, max_hz: float) -> Reference:
    """Return a text spelled out and spoken; numbers and abbreviations become words as `xtts preprocess` reads them.

    Raises CorpusError if espeak-ng is missing or lacks the language.
    """
    words: list[str] = []
    mels, starts, sentence_ends, frames = [], [], [0], 0
    config = TextConfig(lowercase=False)
    with EspeakVoice.of_language(language) as voice:
        for sentence in split_sentences(text, language, lambda _: True):
            try:
                spoken = normalize(sentence, config, language).split()
            except TextError:  # a row of asterisks
                continue
            wave, samples = voice.speak_words(spoken)
            hops = mel_hops(pcm_to_wave(wave), voice.sample_rate, max_hz)
            hop_seconds = hop_length(voice.sample_rate) / voice.sample_rate
            speech = find_speech(hops, hop_seconds)
            half_frame = hop_seconds * HOPS_PER_FRAME / 2
            begins = np.searchsorted(speech.frame_seconds, samples / voice.sample_rate - half_frame)
            starts.append(frames + np.concatenate([[0], begins[1:]]))
            words += spoken
            mels.append(speech.mels)
            frames += len(speech.mels)
            sentence_ends.append(len(words))
    if not words:
        raise CorpusError("no words")
    return Reference(words, np.concatenate(mels), np.concatenate([*starts, [frames]]), np.array(sentence_ends))

"""Speak the demo's sentences through espeak-ng into a corpus of LJSpeech's layout.

espeak-ng comes from the `espeakng-loader` wheel and is called through ctypes. It is under the GPL, so it is an extra
that is imported only to make a corpus.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Self
from xml.sax.saxutils import escape

import numpy as np
import soundfile

from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.errors import CorpusError
from xtts_pipeline.system.installation import install_command
from xtts_pipeline.text.phonemes import espeak_names

SENTENCES_FILE = Path(__file__).parent / "sentences.txt"

# Values of espeak-ng's speak_lib.h, version 1.52.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
# Report phonemes (1), in IPA (2), and return errors in place of ending the process (0x8000).
_INITIALIZE_OPTIONS = 0x0001 | 0x0002 | 0x8000
_CHARS_UTF8 = 1
_POSITION_CHARACTER = 1
_PARAMETER_RATE = 1
_OK = 0

_SSML = 0x10
_EVENT_END, _EVENT_MARK, _EVENT_PHONEME = 0, 3, 7
_PHONEME_BYTES = 8


class _Event(ctypes.Structure):
    """espeak-ng's report of a place in its speech; `id` points to a mark's name, or is itself a phoneme's."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char_p),
    )


_SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class EspeakVoice:
    """One espeak-ng voice; use as a context manager, one at a time in a process, since the library's state is global.

    Raises CorpusError if the library is not installed, cannot start, or does not know the voice.
    """

    def __init__(self, name: str = "en-us", words_per_minute: int = 165) -> None:
        self._names: tuple[str, ...] = (name,)
        self.words_per_minute = words_per_minute

    @classmethod
    def of_language(cls, language: str) -> Self:
        """Return the voice of a language tag such as `de`, `pt-BR` or `fa`; without a voice of its region, another."""
        voice = cls()
        # French is `fr-fr` in the list of voices, and `fr` here.
        voice._names = *espeak_names(language), primary_language(language)
        return voice

    def __enter__(self) -> Self:
        try:
            import espeakng_loader
        except ImportError:
            raise CorpusError(f"espeak-ng: not installed; {install_command('demo')}") from None
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        folder = espeakng_loader.get_data_path()
        rate = self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, folder.encode(), _INITIALIZE_OPTIONS)
        if rate <= 0:
            # espeak-ng keeps its data's path in a buffer of fixed size; a deeply nested environment does not fit.
            found = f"cannot read {folder} ({len(folder)} characters)"
            raise CorpusError(f"espeak-ng: {found}; install into a shorter path")
        self.sample_rate = int(rate)
        self._chunks: list[np.ndarray] = []
        self._marks: dict[int, int] = {}
        self._phonemes: list[tuple[str, int]] = []
        # The library keeps the pointer alone, so the callback must live as long as the voice.
        self._callback = _SynthCallback(self._collect)
        self._library.espeak_SetSynthCallback(self._callback)
        if all(self._library.espeak_SetVoiceByName(name.encode()) != _OK for name in self._names):
            self._library.espeak_Terminate()
            remedy = "expected one such as en-us; `espeak-ng --voices` lists all"
            raise CorpusError(f"espeak-ng: unknown voice {self._names[0]!r}; {remedy}")
        self._library.espeak_SetParameter(_PARAMETER_RATE, self.words_per_minute, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()

    def speak(self, text: str) -> np.ndarray:
        """Return the text spoken: int16 [samples] at `sample_rate`.

        Raises CorpusError if espeak-ng fails or says nothing.
        """
        return self._synthesize(text, text, 0)

    def speak_phonemes(self, text: str) -> tuple[np.ndarray, list[tuple[str, int]]]:
        """Return the text spoken, int16 [samples], and each phoneme in IPA with its first sample.

        A stress mark belongs to the phoneme after it; a pause has an empty name. Raises CorpusError as `speak`.
        """
        return self.speak(text), list(self._phonemes)

    def speak_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return words spoken as one text, int16 [samples], and the first sample of each word, int [words].

        Words that espeak-ng merges, such as "of the", share the start of the next one. Raises CorpusError as `speak`.
        """
        # The library's own word events have wrong positions after merged words; its marks have right ones.
        marked = " ".join(f'<mark name="{place}"/>{escape(word)}' for place, word in enumerate(words))
        wave = self._synthesize(f"<speak>{marked}</speak>", " ".join(words), _SSML)
        starts = np.full(len(words) + 1, len(wave))
        for place, sample in self._marks.items():
            starts[place] = sample
        return wave, np.minimum.accumulate(starts[::-1])[::-1][:-1]

    def _synthesize(self, text: str, shown: str, flags: int) -> np.ndarray:
        self._chunks.clear()
        self._marks.clear()
        self._phonemes.clear()
        encoded = text.encode() + b"\0"
        size = ctypes.c_size_t(len(encoded))
        status = self._library.espeak_Synth(encoded, size, 0, _POSITION_CHARACTER, 0, _CHARS_UTF8 | flags, None, None)
        if status != _OK or not self._chunks:
            found = f"status {status} and {len(self._chunks)} pieces of sound"
            raise CorpusError(f"espeak-ng: {found} for {shown!r}, expected speech")
        return np.concatenate(self._chunks)

    def _collect(
        self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, events: "ctypes._Pointer[_Event]"
    ) -> int:
        if count > 0:  # at the end of a text there is none
            # A copy: the library reuses its buffer.
            self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        place = 0
        while events[place].type != _EVENT_END:
            if events[place].type == _EVENT_MARK:
                self._marks[int(events[place].id)] = events[place].sample
            elif events[place].type == _EVENT_PHONEME:
                name = ctypes.string_at(ctypes.addressof(events[place]) + _Event.id.offset, _PHONEME_BYTES)
                self._phonemes.append((name.partition(b"\0")[0].decode(errors="replace"), events[place].sample))
            place += 1
        return 0


def demo_sentences() -> list[str]:
    """Return the sentences of the demo's corpus."""
    return SENTENCES_FILE.read_text(encoding="utf-8").splitlines()


def make_corpus(folder: Path) -> int:
    """Speak every sentence into `folder`, as `metadata.csv` beside `wavs/ID.wav`; return the number of clips.

    Every fresh process writes the same bytes; a second corpus of one process differs by the voice's
    flutter. A complete corpus is kept, so that its cache stays valid: metadata.csv is written last.
    """
    sentences = demo_sentences()
    rows = [f"demo-{number:04d}|{text}|{text}" for number, text in enumerate(sentences, start=1)]
    table = "\n".join(rows) + "\n"
    metadata = folder / "metadata.csv"
    if metadata.is_file() and metadata.read_text(encoding="utf-8") == table:
        return len(sentences)
    wavs = folder / "wavs"
    wavs.mkdir(parents=True, exist_ok=True)
    with EspeakVoice() as voice:
        for row, text in zip(rows, sentences, strict=True):
            clip_id = row.partition("|")[0]
            soundfile.write(wavs / f"{clip_id}.wav", voice.speak(text), voice.sample_rate, subtype="PCM_16")
    metadata.write_text(table, encoding="utf-8")
    return len(sentences)

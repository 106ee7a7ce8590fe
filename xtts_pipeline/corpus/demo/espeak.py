"""Speak the demo's sentences through espeak-ng into a corpus of LJSpeech's layout.

espeak-ng comes from the `espeakng-loader` wheel and is called through ctypes. It is under the GPL, so it is an extra
that is imported only to make a corpus.
"""

import ctypes
from pathlib import Path
from typing import Self

import numpy as np
import soundfile

from xtts_pipeline.errors import CorpusError
from xtts_pipeline.system.installation import install_command

SENTENCES_FILE = Path(__file__).parent / "sentences.txt"
PERSIAN_SENTENCES_FILE = Path(__file__).parent / "sentences_fa.txt"

# Values of espeak-ng's speak_lib.h, version 1.52.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_POSITION_CHARACTER = 1
_PARAMETER_RATE = 1
_OK = 0

_SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class EspeakVoice:
    """One espeak-ng voice; use as a context manager, one at a time in a process, since the library's state is global.

    Raises CorpusError if the library is not installed, cannot start, or does not know the voice.
    """

    def __init__(self, name: str = "en-us", words_per_minute: int = 165) -> None:
        self.name = name
        self.words_per_minute = words_per_minute

    def __enter__(self) -> Self:
        try:
            import espeakng_loader
        except ImportError:
            remedy = f"{install_command('demo')}, or give a corpus with --data"
            raise CorpusError(f"espeak-ng: not installed; {remedy}") from None
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        folder = espeakng_loader.get_data_path()
        rate = self._library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, 0, folder.encode(), _INITIALIZE_DONT_EXIT)
        if rate <= 0:
            # espeak-ng keeps its data's path in a buffer of fixed size; a deeply nested environment does not fit.
            found = f"cannot read {folder} ({len(folder)} characters)"
            raise CorpusError(f"espeak-ng: {found}; install into a shorter path")
        self.sample_rate = int(rate)
        self._chunks: list[np.ndarray] = []
        # The library keeps the pointer alone, so the callback must live as long as the voice.
        self._callback = _SynthCallback(self._collect)
        self._library.espeak_SetSynthCallback(self._callback)
        if self._library.espeak_SetVoiceByName(self.name.encode()) != _OK:
            self._library.espeak_Terminate()
            raise CorpusError(f"espeak-ng: unknown voice {self.name!r}; expected one such as en-us")
        self._library.espeak_SetParameter(_PARAMETER_RATE, self.words_per_minute, 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()

    def speak(self, text: str) -> np.ndarray:
        """Return the text spoken: int16 [samples] at `sample_rate`.

        Raises CorpusError if espeak-ng fails or says nothing.
        """
        self._chunks.clear()
        encoded = text.encode() + b"\0"
        size = ctypes.c_size_t(len(encoded))
        status = self._library.espeak_Synth(encoded, size, 0, _POSITION_CHARACTER, 0, _CHARS_UTF8, None, None)
        if status != _OK or not self._chunks:
            found = f"status {status} and {len(self._chunks)} pieces of sound"
            raise CorpusError(f"espeak-ng: {found} for {text!r}, expected speech")
        return np.concatenate(self._chunks)

    def _collect(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _events: int | None) -> int:
        if count > 0:  # at the end of a text there is none
            # A copy: the library reuses its buffer.
            self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0


def demo_sentences() -> list[str]:
    """Return the sentences of the demo's corpus."""
    return SENTENCES_FILE.read_text(encoding="utf-8").splitlines()


def persian_sentences() -> list[str]:
    """Return 400 Persian sentences, written for this project; the demo does not speak them."""
    return PERSIAN_SENTENCES_FILE.read_text(encoding="utf-8").splitlines()


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

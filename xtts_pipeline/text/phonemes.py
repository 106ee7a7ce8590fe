"""Convert texts to phonemes of the International Phonetic Alphabet with espeak-ng.

Needs the extra `phonemes`, which is under the GPL and therefore imported only on use. Each clause between two
punctuation marks is converted separately, so phonemes and punctuation stay aligned. Letters never replace phonemes.
"""

import re
import tempfile
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from xtts_pipeline.config.languages import primary_language
from xtts_pipeline.errors import ConfigError, Reason, TextError, did_you_mean
from xtts_pipeline.system.installation import install_command

_MARKS = '!"(),.:;?[]-'
_PLAIN_MARKS = str.maketrans(
    "\u060c\u061b\u061f\u06d4\u3001\u3002\uff0c\uff01\uff1a\uff1b\uff1f\u00bf\u00a1", ",;?.,.,!:;?  "
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz\u00e6\u00e7\u00f0\u00f8\u0127\u014b\u0153\u03b2\u03b8\u03c7\u1d7b\u1d4a\u207f"
_IPA_LETTERS = "".join(map(chr, range(0x0250, 0x02B0)))
_MODIFIERS = "\u02b0\u02b1\u02b2\u02b7\u02bc\u02c8\u02cc\u02d0\u02d1\u02de\u02e0\u02e4"
_COMBINING = "".join(map(chr, range(0x0303, 0x0362)))
_TONES = "0123456789\u02e5\u02e6\u02e7\u02e8\u02e9"
# Every symbol of any language, so that no text brings a new symbol to a trained model.
PHONEME_SYMBOLS = tuple(dict.fromkeys(f" {_MARKS}{_LETTERS}{_IPA_LETTERS}{_MODIFIERS}{_COMBINING}{_TONES}"))

# A point, comma or colon within a number is no pause; a hyphen within a word is none either.
_CLAUSE_END = re.compile(r"(?<!\d)([.,:])|([.,:])(?!\d)|([!\"();?\[\]])|(?:(?<=\s)|^)(-+)(?=\s|$)")
# A single quote beside no word, as at the end of `'Come this way.'`; espeak-ng skips one beside a word.
_LONE_QUOTE = re.compile(r"(?<!\w)'(?!\w)")
# Words in capitals for emphasis, of which espeak-ng spells many. It knows the letter words of this length in small
# letters too, and of the shorter ones only these are no letter words.
_EMPHASIZED = re.compile(r"(?<!\w)(?:[A-Z]{3,}|AM|HI|IF|OH|TO)(?!\w)")
# The letter a of `a m` and `u s a`; with spaces espeak-ng takes it for the article.
_SPELLED_A = re.compile(
    r"(?<![\w'])(?:a(?: [efhlmnorsx])(?: [b-hj-z])*|a(?: [b-hj-z]){2,}|[b-hj-z](?: [b-hj-z])+ a)(?![\w'-])",
    re.IGNORECASE,
)
_KANJI = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_LANGUAGE_FLAG = re.compile(r"\([a-z][a-z0-9-]*\)")
# espeak-ng reads out the name of the doubling mark if a vowel mark precedes it, which is NFC's order.
_DOUBLED_VOWEL = re.compile("([\u064b-\u0650])\u0651")
# espeak-ng writes some phonemes by internal names, which would be unknown symbols or marks: the retroflex `s.` of
# Chinese, the dental `t[` of Kyrgyz, the ejective "t`" of Amharic.
_IPA_OF_NAMES = str.maketrans(
    {
        **dict(zip("SZNXA\u03a6\u03b5\u1d5d", "\u0283\u0292\u014b\u03c7\u0251\u0278\u025b\u03b2", strict=True)),
        **dict(zip(".[#`^?:", "\u0322\u032a\u0325\u02bc\u02b2\u0294\u02d0", strict=True)),
        **{letter: unicodedata.normalize("NFD", letter) for letter in "\u00e3\u00e4\u1ebd\u0129\u00f5\u0169"},
    }
)
_PERSIAN_QAF, _QAF = "q1", "q"
_VOICES = {"en": "en-us", "fr": "fr-fr", "zh": "cmn", "no": "nb"}


def phonemize(texts: Sequence[str], language: str) -> list[str | TextError]:
    """Return each normalised text's phonemes with stress and punctuation, or the error that rejects it.

    `language` is a tag such as `en`, `pt-BR` or `fa`. Raises ConfigError if the phonemizer is not installed or has no
    voice for it.
    """
    if not texts:
        return []
    espeak = _espeak()
    voice = _voice(language)
    # To set a voice takes longer than the phonemes of a short text.
    if espeak.voice is None or espeak.voice.language != voice:
        espeak.set_voice(voice)
    return [_phonemize_text(text, language, espeak) for text in texts]


def _phonemize_text(text: str, language: str, espeak: Any) -> str | TextError:
    pieces = []
    primary = primary_language(language)
    # Splitting by a pattern with groups yields clauses, marks, and None for groups that did not match.
    for piece in filter(None, _CLAUSE_END.split(_LONE_QUOTE.sub("", text.translate(_PLAIN_MARKS)))):
        if not any(map(str.isalnum, piece)):
            pieces.append(piece)
            continue
        if primary == "ja" and _KANJI.search(piece):
            return TextError(Reason.PHONEMIZER_FAILED, f"espeak-ng reads no kanji, found in {piece!r}; write kana")
        written = _DOUBLED_VOWEL.sub("\u0651\\1", piece)
        if primary == "en":
            written = _EMPHASIZED.sub(lambda word: word[0].lower(), written)
            written = _SPELLED_A.sub(lambda letters: letters[0].replace(" ", "."), written)
        try:
            phonemes = espeak.text_to_phonemes(written)
        except RuntimeError as error:
            return TextError(Reason.PHONEMIZER_FAILED, f"espeak-ng failed on {piece!r} ({error})")
        phonemes = _LANGUAGE_FLAG.sub("", phonemes).replace("_", "").translate(_IPA_OF_NAMES)
        if primary == "fa":
            phonemes = phonemes.replace(_PERSIAN_QAF, _QAF)
        if not phonemes.strip():
            return TextError(
                Reason.PHONEMIZER_FAILED, f"espeak-ng has no phonemes for {piece!r}; expected words in {language}"
            )
        before, after = piece[: len(piece) - len(piece.lstrip())], piece[len(piece.rstrip()) :]
        pieces.append(f"{before}{' '.join(phonemes.split())}{after}")
    return " ".join("".join(pieces).split())


@lru_cache(maxsize=1)
def _espeak() -> Any:
    """Return the process's only espeak-ng, since the library's state is global."""
    try:
        import espeakng_loader
        from phonemizer.backend.espeak.wrapper import EspeakWrapper
    except ImportError as error:
        raise ConfigError(
            f"text.tokens=phonemes: {error.name} is not installed; {install_command('phonemes')}"
        ) from None
    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    try:
        return EspeakWrapper()
    except RuntimeError as error:
        raise ConfigError(
            f"text.tokens=phonemes: espeak-ng does not start ({error}); reinstall it: {install_command('phonemes')}"
        ) from None
    except OSError as error:
        # phonemizer copies the library into the folder of temporary files, and loads the copy.
        raise ConfigError(
            f"{tempfile.gettempdir()}: espeak-ng does not start there ({error.strerror or error}); "
            "set TMPDIR to a folder with 10 MB free that is not mounted noexec"
        ) from None


def espeak_names(language: str) -> tuple[str, str]:
    """Return what espeak-ng may call a language tag: the whole, and the language without its region."""
    tag = language.lower().replace("_", "-")
    primary = primary_language(tag)
    return _VOICES.get(tag, tag), _VOICES.get(primary, primary)


@lru_cache(maxsize=64)
def _voice(language: str) -> str:
    """Return espeak-ng's name of a language. Raises ConfigError if it has none."""
    known = sorted({str(voice.language) for voice in _espeak().available_voices()})
    found = next((name for name in espeak_names(language) if name in known), None)
    if found is None:
        raise ConfigError(
            f"language {language}: espeak-ng has no such voice; {did_you_mean(espeak_names(language)[0], known)}"
        )
    return found

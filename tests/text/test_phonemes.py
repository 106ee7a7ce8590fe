"""Phonemes come from espeak-ng only; texts that it cannot convert are rejected."""

import errno
import re
import shutil
import sys
import tempfile

import pytest

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.errors import ConfigError, Reason, TextError
from xtts_pipeline.text import phonemes
from xtts_pipeline.text.phonemes import PHONEME_SYMBOLS, phonemize
from xtts_pipeline.text.symbols import build_symbols, prepare_texts

PHONEMES = TextConfig(tokens="phonemes")


class StubbornEspeak:
    """Fails on some words, in each of the ways espeak-ng can."""

    voice = None

    def text_to_phonemes(self, text: str) -> str:
        if "fail" in text:
            raise RuntimeError("failed to phonemize")
        return "" if "silent" in text else "h_\u0259_l_\u02c8o\u028a"

    def set_voice(self, voice: str) -> None:
        assert voice == "en-us"


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phonemes, "_espeak", StubbornEspeak)
    monkeypatch.setattr(phonemes, "_voice", lambda language: f"{language}-us")


@pytest.mark.usefixtures("stubborn")
def test_a_failure_rejects_its_text_and_mixes_no_letters_in() -> None:
    good, failed, silent, good_again = phonemize(["hello, hello", "hello, fail", "silent; hello", "hello."], "en")
    assert (good, good_again) == ("h\u0259l\u02c8o\u028a, h\u0259l\u02c8o\u028a", "h\u0259l\u02c8o\u028a.")
    for error in (failed, silent):
        assert isinstance(error, TextError)
        assert error.reason == Reason.PHONEMIZER_FAILED


@pytest.mark.usefixtures("stubborn")
def test_a_single_quote_beside_no_word_is_silent() -> None:
    word = "h\u0259l\u02c8o\u028a"
    found = phonemize(["hello, 'hello.'", "'hello!' hello. 'hello'", "hello. '"], "en")
    assert found == [f"{word}, {word}.", f"{word}! {word}. {word}", f"{word}."]


def test_a_missing_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    phonemes._espeak.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install .*\[phonemes\]"):
        phonemize(["hello"], "en")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        # Those of a full disk and of a folder that is mounted noexec.
        (OSError(errno.ENOSPC, "No space left on device", "lib.so", None, "copy.so"), "No space left on device"),
        (OSError("copy.so: failed to map segment from shared object"), "copy.so: failed to map segment"),
    ],
)
def test_a_folder_of_temporary_files_that_espeak_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, error: OSError, found: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    phonemes._espeak.cache_clear()
    monkeypatch.setattr(shutil, "copy", fail)
    expected = f"{tempfile.gettempdir()}: espeak-ng does not start there ({found}"
    with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
        phonemize(["hello"], "en")
    assert "set TMPDIR" in str(caught.value)


def test_the_inventory_is_fixed() -> None:
    assert build_symbols(["anything"], PHONEMES) == PHONEME_SYMBOLS
    assert len(set(PHONEME_SYMBOLS)) == len(PHONEME_SYMBOLS)
    assert all(len(symbol) == 1 for symbol in PHONEME_SYMBOLS)


def test_the_voice_is_set_only_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    phonemize(["bonjour"], "fr")
    espeak, chosen = phonemes._espeak(), []
    set_voice = espeak.set_voice
    monkeypatch.setattr(espeak, "set_voice", lambda voice: chosen.append(voice) or set_voice(voice))
    spoken = [phonemize(["hallo"], language) for language in ("en", "en", "de", "de-DE", "en")]
    assert chosen == ["en-us", "de", "en-us"]
    assert spoken[0] == spoken[1] == spoken[4] != spoken[2] == spoken[3]


def test_espeak_speaks_many_languages_within_the_inventory() -> None:
    texts = {
        "en": '"Hello, (world)!"',
        "fa": "سلام دنیا\u060c کتاب\u200cها\u061f",
        "ar": "كتاب جديد",
        "de": "\u00c4pfel \u00fcber Stra\u00dfe",
        "ru": "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440",
        "zh": "\u6211\u662f\u4e2d\u56fd\u4eba\u3002",
        "fr": "c'est un week-end",
        "pt-BR": "n\u00e3o",
        "ja": "さくらのはな",
        "da": "klokken er fem",
        "ga": "ocht leabhar",
        "is": "takk fyrir núll",
        "ky": "беш жашыл тоң",
        "uz": "uch kishi",
        "am": "ዘጠኝ ጤና",
    }
    prepared = prepare_texts(list(texts.values()), list(texts), PHONEMES)
    for language, spoken in zip(texts, prepared, strict=True):
        assert isinstance(spoken, str), spoken
        assert set(spoken) <= set(PHONEME_SYMBOLS), language
    assert "." not in prepared[list(texts).index("zh")][:-1], "a retroflex sound is no full stop"
    assert prepared[0] == '"h\u0259l\u02c8o\u028a, (w\u02c8\u025c\u02d0ld)!"'
    with pytest.raises(ConfigError, match="language xx: espeak-ng has no such voice"):
        phonemize(["a"], "xx")


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("en", "At 9 a.m. we met.", "\u02c8e\u026a\u02cc\u025bm|\u02cce\u026a\u02c8\u025bm"),
        ("en", "The U.S.A. won.", "j\u02ccu\u02d0|\u02cc\u025bs\u02c8e\u026a"),
        ("en", "the US army", "j\u02ccu\u02d0\u02c8\u025bs"),
        ("en", "SHE CAME WITH US TO IT", "w\u026a\u00f0 .?\u028cs"),
        ("en", "MR. SMITH GAVE US 5 THINGS", "\u0261.?\u02c8e\u026av .?\u028cs"),
        ("en", "UN 1325", "j\u02ccu\u02d0\u02c8\u025bn"),
        ("en", "It is NOT a BIG day.", "b\u02c8\u026a\u0261 d\u02c8e\u026a"),
        ("en", "NASA's plan", "n\u02c8\u00e6s\u0250z"),
        ("de", "der Weg", "v\u02c8e\u02d0k"),
        ("de", "Die USA sind nicht in der EU.", "\u02cce\u02d0\u02c8u\u02d0"),
    ],
)
def test_letters_are_spelled_and_capitals_count(language: str, text: str, spoken: str) -> None:
    (phonemes,) = prepare_texts([text], [language], PHONEMES)
    assert re.search(spoken, str(phonemes)), phonemes


def test_kanji_are_refused_since_espeak_names_them_in_english() -> None:
    (refused,) = prepare_texts(["東京です"], ["ja"], PHONEMES)
    assert isinstance(refused, TextError)
    assert "espeak-ng reads no kanji, found in '東京です'; write kana" in str(refused)

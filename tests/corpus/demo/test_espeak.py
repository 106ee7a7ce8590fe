import re
import string
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile

from xtts_pipeline.config.schema import TextConfig
from xtts_pipeline.corpus.demo import espeak
from xtts_pipeline.corpus.demo.espeak import EspeakVoice, demo_sentences, make_corpus
from xtts_pipeline.errors import CorpusError
from xtts_pipeline.text.normalize import normalize

ROOT = Path(__file__).parents[3]


@pytest.fixture
def three_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    sentences = ["The rain came early.", "A small boat waits.", "Hold the rope."]
    table = tmp_path / "sentences.txt"
    table.write_text("\n".join(sentences) + "\n", encoding="utf-8")
    monkeypatch.setattr(espeak, "SENTENCES_FILE", table)
    return sentences


def test_the_sentences_are_about_sixty_short_plain_and_all_different():
    sentences = demo_sentences()

    assert len(sentences) == 60
    assert len(set(sentences)) == 60
    assert all(10 <= len(sentence) <= 60 for sentence in sentences)
    assert all(sentence.isascii() and "|" not in sentence and sentence[-1] in ".?!" for sentence in sentences)


def test_the_sentences_hold_each_letter_and_mark_three_times_and_so_speak_the_examples_of_the_pages():
    sentences = [normalize(sentence, TextConfig(), "en") for sentence in demo_sentences()]
    holding = Counter(character for sentence in sentences for character in set(sentence))
    assert set(holding) == set(string.ascii_lowercase + " ,.?!'-")
    assert min(holding.values()) >= 3

    page = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = ["Hello, world!", *re.findall(r'--text "(.+?)"', page)]
    assert len(examples) > 1
    for example in examples:
        assert set(normalize(example, TextConfig(), "en")) <= set(holding)


def test_speech_is_22050_hz_and_loud_enough_and_longer_for_a_longer_text():
    with EspeakVoice() as voice:
        short = voice.speak("Good morning.")
        long = voice.speak("Good morning, and welcome to the little harbour by the sea.")

    assert voice.sample_rate == 22_050
    assert short.dtype == np.int16
    assert np.abs(short).max() > 3_000
    assert 2 * len(short) < len(long)


def test_words_start_in_order_and_merged_words_start_together():
    words = ["At", "the", "end", "of", "the", "day,", "Tom", "&", "Ann", "<said>", "no."]
    with EspeakVoice() as voice:
        _, starts = voice.speak_words(words)

    assert len(starts) == len(words)
    assert starts[0] == 0
    assert np.all(np.diff(starts) >= 0)
    assert len(np.unique(starts)) > len(words) / 2
    # espeak-ng pauses at the comma.
    assert np.diff(starts).argmax() == words.index("day,")


def test_phonemes_start_in_order_and_spell_the_text():
    with EspeakVoice() as voice:
        wave, phonemes = voice.speak_phonemes("A small boat waits.")
        assert len(voice.speak_phonemes("Hold.")[1]) < len(phonemes)

    assert "".join(name for name, _ in phonemes) == "ɐsmˈɔːlbˈoʊtwˈeɪts"
    starts = [sample for _, sample in phonemes]
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] <= len(wave)


def test_more_words_a_minute_are_shorter():
    lengths = []
    for words_per_minute in (120, 240):
        with EspeakVoice(words_per_minute=words_per_minute) as voice:
            lengths.append(len(voice.speak("The library has a tall green door.")))

    assert lengths[1] < 0.75 * lengths[0]


@pytest.mark.parametrize(("tag", "same_as"), [("de-AT", "de"), ("en_AU", "en-us"), ("fr", "fr-fr"), ("fr-BE", "fr-be")])
def test_a_language_without_a_voice_of_its_region_has_another(tag: str, same_as: str):
    names = []
    for language in (tag, same_as):
        with EspeakVoice.of_language(language) as voice:
            names.append([name for name, _ in voice.speak_phonemes("Anna")[1]])

    assert names[0] == names[1]


def test_an_unknown_voice_is_an_error_that_names_it():
    message = "unknown voice 'nobody'; expected one such as en-us; `espeak-ng --voices` lists all"
    with pytest.raises(CorpusError, match=message), EspeakVoice("nobody"):
        pass


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)

    with pytest.raises(CorpusError, match=r"pip install .*\[demo\]"), EspeakVoice():
        pass


def test_the_corpus_has_ljspeechs_layout(tmp_path: Path, three_sentences: list[str]):
    corpus = tmp_path / "corpus"

    assert make_corpus(corpus) == 3

    rows = [line.split("|") for line in (corpus / "metadata.csv").read_text(encoding="utf-8").splitlines()]
    assert [row[1:] for row in rows] == [[text, text] for text in three_sentences]
    for clip_id, *_ in rows:
        info = soundfile.info(corpus / "wavs" / f"{clip_id}.wav")
        assert (info.samplerate, info.channels, info.subtype) == (22_050, 1, "PCM_16")
        assert 0.5 < info.duration < 4


@pytest.mark.usefixtures("three_sentences")
def test_a_whole_corpus_is_left_as_it_is_and_a_half_made_one_is_completed(tmp_path: Path):
    corpus = tmp_path / "corpus"
    make_corpus(corpus)
    clip = corpus / "wavs" / "demo-0002.wav"

    clip.write_bytes(b"kept")
    make_corpus(corpus)
    assert clip.read_bytes() == b"kept"

    (corpus / "metadata.csv").unlink()
    make_corpus(corpus)
    assert soundfile.info(clip).frames > 0


def test_two_fresh_processes_speak_the_same_bytes():
    program = (
        "import sys; from xtts_pipeline.corpus.demo.espeak import EspeakVoice\n"
        "with EspeakVoice() as voice:\n"
        "    sys.stdout.buffer.write(voice.speak('Two.').tobytes() + voice.speak('Three.').tobytes())"
    )
    spoken = [subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout for _ in range(2)]

    assert len(spoken[0]) > 10_000
    assert spoken[0] == spoken[1]

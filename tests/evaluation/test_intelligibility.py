"""Phoneme errors; the recogniser itself is an extra and stays outside."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xtts_pipeline.errors import ConfigError
from xtts_pipeline.evaluation.intelligibility import PhonemeErrors, Recogniser, count_errors, pool_errors

PHONEMES = st.lists(st.sampled_from("aəkt"), max_size=8)


def test_the_errors_are_the_value_worked_out_by_hand():
    # k i t ə n -> s i t i ŋ: kitten and sitting, two replaced at the ends and one within
    assert count_errors(list("sitiŋ"), list("kitən")) == PhonemeErrors(3, 5)
    assert count_errors(list("sitiŋ"), list("kitən")).rate == 0.6


def test_each_kind_of_edit_costs_one():
    assert count_errors(list("kat"), list("kt")) == PhonemeErrors(1, 2)
    assert count_errors(list("kt"), list("kat")) == PhonemeErrors(1, 3)
    assert count_errors(list("kət"), list("kat")) == PhonemeErrors(1, 3)


def test_silence_deletes_every_phoneme():
    assert count_errors([], list("kat")).rate == 1.0
    assert count_errors(list("kat"), []).rate == 3.0


@given(PHONEMES, PHONEMES)
def test_errors_are_symmetric_and_bounded(heard: list[str], reference: list[str]):
    edits = count_errors(heard, reference).edits

    assert edits == count_errors(reference, heard).edits
    assert abs(len(heard) - len(reference)) <= edits <= max(len(heard), len(reference))
    assert (edits == 0) == (heard == reference)


def test_a_corpus_weighs_utterances_by_their_length():
    assert pool_errors([PhonemeErrors(1, 1), PhonemeErrors(0, 9)]).rate == pytest.approx(0.1)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "hama", None)

    message = r"--phoneme-error-rate: hama is not installed; pip install .*\[eval\]"
    with pytest.raises(ConfigError, match=message):
        Recogniser()


def test_waves_are_heard_at_one_rate_and_loudness_and_very_short_ones_not_at_all(monkeypatch: pytest.MonkeyPatch):
    heard: list[np.ndarray] = []

    class Model:
        def __call__(self, wave: np.ndarray, rate: int) -> SimpleNamespace:
            assert rate == 16_000
            heard.append(wave)
            return SimpleNamespace(phonemes=("k", "a"))

    module = ModuleType("hama")
    module.ASRModel = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hama", module)
    recogniser = Recogniser()
    wave = 0.01 * np.sin(np.arange(8_000) / 20)

    assert recogniser.transcribe(wave, 8_000) == ["k", "a"]
    assert recogniser.transcribe(0.5 * wave, 8_000) == ["k", "a"]
    assert recogniser.transcribe(wave[:799], 8_000) == []
    assert recogniser.transcribe(np.zeros(8_000), 8_000) == ["k", "a"]
    assert len(heard[0]) == 16_000
    assert np.abs(heard[0]).max() == pytest.approx(0.7)
    np.testing.assert_allclose(heard[0], heard[1], atol=1e-5)

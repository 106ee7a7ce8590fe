"""Judges of sound: with stand-ins for their packages, and with the packages where they are installed."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from xtts_pipeline.errors import ConfigError
from xtts_pipeline.evaluation.judges import JudgedSound, Judges, mean_judgements

RATE = 8_000


class FakePesqError(RuntimeError):
    """What PESQ raises where it finds no speech."""


def make_module(name: str, **members: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(members)
    return module


def fake_pesq(rate: int, true: np.ndarray, copy: np.ndarray, band: str) -> float:
    assert (rate, band) == (16_000, "wb")
    assert len(true) == len(copy)
    if len(true) < 4_000:
        raise FakePesqError("Buffer needs to be at least 1/4 of a second long")
    return 4.5 if np.array_equal(true, copy) else 2.0


class FakeEncoder:
    def __init__(self, device: str, *, verbose: bool) -> None:
        assert (device, verbose) == ("cpu", False)

    def embed_utterance(self, wave: np.ndarray) -> np.ndarray:
        return np.array([0.6, 0.8]) if len(wave) < 20_000 else np.array([1.0, 0.0])


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Install stand-ins of the packages, and return the waves that DNSMOS gets."""
    heard: list[np.ndarray] = []

    def run(wave: np.ndarray, rate: int) -> dict[str, Any]:
        assert rate == 16_000
        heard.append(wave)
        return {"p808_mos": np.float32(3.5), "ovrl_mos": np.float64(2.5), "sig_mos": 1.0, "bak_mos": 1.0}

    modules = {
        "speechmos.dnsmos": {"run": run},
        "pystoi": {"stoi": lambda true, copy, _rate: 1.0 if np.array_equal(true, copy) else 0.5},
        "pesq": {"pesq": fake_pesq, "PesqError": FakePesqError},
        "resemblyzer": {"VoiceEncoder": FakeEncoder, "preprocess_wav": lambda wave: wave},
    }
    for name, members in modules.items():
        monkeypatch.setitem(sys.modules, name, make_module(name, **members))
    return heard


def make_voice(seconds: float = 1.5, rate: int = RATE) -> np.ndarray:
    """Return harmonics of 120 Hz in syllables, float32: enough like speech for a voice detector."""
    time = np.arange(round(seconds * rate)) / rate
    harmonics = sum(np.sin(2 * np.pi * 120 * number * time) / number for number in range(1, 20))
    wave: np.ndarray = 0.2 * harmonics * np.clip(np.sin(2 * np.pi * 3 * time), 0, None)
    return wave.astype(np.float32)


def with_noise(wave: np.ndarray, level: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=len(wave)).astype(np.float32)
    return wave + np.float32(level) * noise


def test_each_sound_has_the_figures_that_make_sense_for_it(heard: list[np.ndarray]):
    voice = make_voice()
    waves = {"spoken": voice[:8_000], "true": voice, "copy": voice, "copy_griffin_lim": with_noise(voice, 0.1)}

    judgements = Judges().judge(waves, RATE)

    assert judgements == {
        "spoken": JudgedSound(3.5, 2.5, speaker_similarity=pytest.approx(0.6)),
        "true": JudgedSound(3.5, 2.5),
        "copy": JudgedSound(3.5, 2.5, 4.5, 1.0, 1.0),
        "copy_griffin_lim": JudgedSound(3.5, 2.5, 2.0, 0.5, 1.0),
    }
    assert all(type(figure) is float for figure in vars(judgements["copy"]).values())


def test_without_a_recording_only_dnsmos_judges(heard: list[np.ndarray]):
    judgements = Judges().judge({"spoken": make_voice(), "copy": make_voice()}, RATE)

    assert set(judgements.values()) == {JudgedSound(3.5, 2.5)}


def test_waves_are_judged_at_one_rate_and_level(heard: list[np.ndarray]):
    voice = make_voice()

    Judges().judge({"spoken": voice, "copy": 0.25 * voice}, RATE)

    assert [len(wave) for wave in heard] == [2 * len(voice)] * 2
    assert [np.abs(wave).max() for wave in heard] == [pytest.approx(0.9)] * 2
    np.testing.assert_allclose(heard[0], heard[1], atol=1e-3)  # each was rounded to 16 bits at its own level


def test_a_sound_that_a_judge_cannot_judge_has_no_figure(heard: list[np.ndarray]):
    voice = make_voice()
    waves = {"spoken": voice[:799], "true": voice[:1_600], "copy": np.zeros(1_600), "copy_griffin_lim": voice[:1_600]}

    judgements = Judges().judge(waves, RATE)

    assert judgements["spoken"] == judgements["copy"] == JudgedSound()
    assert judgements["copy_griffin_lim"] == JudgedSound(3.5, 2.5, None, 1.0, 1.0)


@pytest.mark.parametrize("package", ["speechmos.dnsmos", "pystoi"])
def test_without_the_extra_the_error_says_what_to_install(
    heard: list[np.ndarray], package: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)

    message = rf"--judges: {package} is not installed; pip install .*\[eval\].*, or leave the option out"
    with pytest.raises(ConfigError, match=message):
        Judges()


def test_judges_beside_the_extra_may_be_missing(heard: list[np.ndarray], monkeypatch: pytest.MonkeyPatch):
    assert Judges().missing == []
    for name in ("pesq", "resemblyzer"):
        monkeypatch.setitem(sys.modules, name, None)

    judges, voice = Judges(), make_voice()

    assert judges.missing == ["pesq", "resemblyzer"]
    assert judges.judge({"true": voice, "copy": voice}, RATE)["copy"] == JudgedSound(3.5, 2.5, None, 1.0, None)


def test_the_mean_is_of_the_utterances_that_have_the_figure():
    rows = [{"copy": JudgedSound(3.0, stoi=0.5)}, {"copy": JudgedSound(4.0)}]

    assert mean_judgements(rows) == {"copy": JudgedSound(3.5, stoi=0.5)}
    assert mean_judgements([]) == {}


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Judges:
    for package in ("speechmos", "onnxruntime", "pystoi"):
        pytest.importorskip(package)
    monkeypatch.setitem(sys.modules, "resemblyzer", None)  # its import of PyTorch costs seconds
    return Judges()


@pytest.mark.parametrize("rate", [16_000, 22_050])
def test_the_packages_find_noise_in_a_copy(packages: Judges, rate: int):
    voice = make_voice(rate=rate)

    judged = packages.judge({"true": voice, "copy": voice, "copy_griffin_lim": with_noise(voice, 0.05)}, rate)

    clean, noisy = judged["copy"], judged["copy_griffin_lim"]
    assert clean.stoi == pytest.approx(1.0)
    assert noisy.stoi < 0.95
    assert judged["true"].dnsmos_p808 == clean.dnsmos_p808
    assert all(1 <= found <= 5 for each in judged.values() for found in (each.dnsmos_p808, each.dnsmos_overall))
    if "pesq" not in packages.missing:
        assert clean.pesq_wideband > 4.5
        assert noisy.pesq_wideband < 3


def test_the_packages_say_nothing_of_a_clip_that_is_too_short_for_them(packages: Judges):
    voice = make_voice(0.2)

    copy = packages.judge({"true": voice, "copy": voice}, RATE)["copy"]

    assert copy.dnsmos_p808 is not None
    assert copy.stoi is None
    assert copy.pesq_wideband is None

"""Corpora of made-up sound at several sample rates, and their cache and survey."""

from pathlib import Path

import numpy as np
import soundfile

from tests.cache.corpora import build, make_config, write_corpus
from xtts_pipeline.cache.build.plan import index_corpora
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.data.survey import Survey, survey_corpus


def tone(seconds: float, rate: int, hz: float = 440.0, seed: int = 0) -> np.ndarray:
    """Return a tone that grows and fades, with a little noise so that no mel bin is at its floor."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(0.0, 0.01, len(time))
    return 0.4 * np.sin(2 * np.pi * hz * time) * np.sin(np.pi * time / seconds) + noise


def write_mixed_corpus(root: Path, count: int = 40) -> Path:
    """Write a corpus of which every third clip has another sample rate and every fifth two channels."""
    write_corpus(root, count)
    for number in range(count):
        rate = (8_000, 16_000, 11_025)[number % 3]
        wave = tone(0.3 + 0.005 * number, rate, 200.0 + 10 * number, number)
        channels = np.stack([wave, 0.5 * wave], axis=1) if number % 5 == 0 else wave
        soundfile.write(root / "wavs" / f"clip-{number:03d}.wav", channels, rate, "PCM_16")
    return root


def survey(data: Path, config: Config) -> Survey:
    """Return the survey of a corpus."""
    return survey_corpus(index_corpora([read_corpus(data)], config), config, lambda _rows: None)


def surveyed_and_built(data: Path, cache: Path, *overrides: str) -> tuple[Survey, Manifest, Config]:
    """Return the survey of a corpus, and the manifest of its cache."""
    config = make_config(*overrides)
    return survey(data, config), build(data, cache, config).manifest, config

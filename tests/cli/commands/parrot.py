"""A speaker that returns a cache's own mels in place of a network."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.cache.corpora import make_config
from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.manifest import load_manifest, record_spec
from xtts_pipeline.config.schema import DataConfig
from xtts_pipeline.evaluation.ground_truth import read_true_mels, split_entries
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.vocoder.griffin_lim import GriffinLim, Vocoder

# Bins enough for the cepstrum; a pitch in the range of voices.
CONFIG = make_config("audio.mel_bins=20")


class Parrot:
    """A synthesizer that returns the cache's own mel of a text, optionally changed."""

    def __init__(self, cache: Path, change: Callable[[SpokenText], SpokenText] = lambda spoken: spoken) -> None:
        manifest = load_manifest(cache)
        identity = CacheIdentity(
            manifest.fingerprint, record_spec(manifest), manifest.symbols, manifest.speakers, manifest.languages
        )
        data = DataConfig(buckets=manifest.buckets or None)
        settings = SimpleNamespace(
            audio=manifest.audio,
            text=manifest.text,
            limits=manifest.limits,
            data=data,
            model=CONFIG.model,
            synthesis=CONFIG.synthesis,
        )
        self.checkpoint: Any = SimpleNamespace(
            folder=Path("run/checkpoints/step-00000007"),
            step=7,
            weights_sha256="5e" * 32,
            config=settings,
            cache=identity,
        )
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.references: list[Sequence[Path]] = []
        self.vocoder: Vocoder = GriffinLim(manifest.audio, 10, 0.9)
        self._manifest, self._change = manifest, change
        self._tokenizer = Tokenizer(manifest.symbols)
        entries = [entry for split in ("train", "val") for entry in split_entries(cache, manifest, split, None)]
        self._mels = {entry.raw_text: (entry.text, mel) for entry, mel in read_true_mels(cache, manifest, entries)}

    def synthesize(
        self, text: str, speaker: str | None = None, language: str | None = None, references: Sequence[Path] = ()
    ) -> SpokenText:
        self.references.append(references)
        self.asked.append((text, speaker, language))
        prepared, mel = self._mels[text]
        tokens = self._tokenizer.encode(prepared)
        return self._change(
            SpokenText(
                text,
                tokens,
                mel,
                np.ones(len(tokens), np.float32),
                self.vocoder(mel),
                self._manifest.audio.sample_rate,
                True,
            )
        )

    def symbols(self, tokens: np.ndarray) -> list[str]:
        return [self._tokenizer.name_of(int(token)) for token in tokens]

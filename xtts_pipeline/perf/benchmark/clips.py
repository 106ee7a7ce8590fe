"""Clips to measure with: records of a cache, and their sound as 16-bit WAV files, from the corpus or from the mels.

No TensorFlow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import read_utterances
from xtts_pipeline.cache.format.manifest import Manifest
from xtts_pipeline.cache.format.schema import Example, without_padding
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.config.schema import Config
from xtts_pipeline.corpus.options import AUTO, ReadOptions
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.errors import AudioError, CacheError, CorpusError
from xtts_pipeline.vocoder.griffin_lim import GriffinLim

# Few rounds: the benchmark measures reading the sound, not its quality.
RENDERING_ROUNDS, RENDERING_MOMENTUM = 2, 0.99


@dataclass(frozen=True)
class Clip:
    """A written clip: its features in the cache, and its 16-bit mono WAV file at the cache's rate."""

    example: Example
    wave: Path


def read_examples(cache: Path, manifest: Manifest, count: int) -> list[Example]:
    """Return up to `count` training records without padding, from each shard in proportion to its records.

    Raises CacheError if there is none or a record is damaged.
    """
    shards = [shard for shard in manifest.shards if shard.split == "train"]
    total = sum(shard.records for shard in shards)
    if not total:
        raise CacheError(f"{cache}: there are 0 training records, expected at least one; preprocess a larger corpus")
    examples: list[Example] = []
    count, passed = min(count, total), 0
    for shard in shards:
        spec, passed = manifest.spec_of_shard[shard.name], passed + shard.records
        wanted = count * passed // total - len(examples)
        examples += [
            without_padding(decode_example(payload, spec))
            for payload in islice(read_records(cache / shard.name), wanted)
        ]
    return examples


def write_clips(
    folder: Path, cache: Path, manifest: Manifest, examples: Sequence[Example], data: Path | None
) -> list[Clip]:
    """Write the clips as a corpus in LJSpeech's layout, with sound from the corpus `data`, or else from Griffin-Lim.

    Raises CorpusError if `data` lacks one of them, AudioError if it cannot be decoded.
    """
    texts = {entry.id: entry.raw_text for entry in read_utterances(cache)}
    corpus = None if data is None else read_corpus(data, manifest.first_reading, manifest.text.language)
    sources = {} if corpus is None else {utterance.id: corpus.root / utterance.audio for utterance in corpus.utterances}
    render = GriffinLim(manifest.audio, RENDERING_ROUNDS, RENDERING_MOMENTUM)

    def wave_of(example: Example) -> np.ndarray:
        if data is None:
            return render(example.mel.astype(np.float32))
        if example.id not in sources:
            found = f"{data}: holds no clip {example.id}, which is in {cache}"
            raise CorpusError(f"{found}; name the corpus of that cache with --data")
        return load_wave(sources[example.id], manifest.audio, manifest.limits)

    waves = ((texts.get(example.id, example.id), wave_of(example)) for example in examples)
    paths = write_corpus(folder, waves, manifest.audio.sample_rate)
    return [Clip(example, path) for example, path in zip(examples, paths, strict=True)]


def copy_corpus(folder: Path, data: Path, config: Config, count: int, reading: ReadOptions = AUTO) -> int:
    """Write the first `count` clips that can be decoded as a corpus in LJSpeech's layout, and return their number.

    All benchmarks then read the same plain files, whatever the corpus's format. Raises CorpusError if there is none.
    """
    corpus = read_corpus(data, reading, config.text.language)

    def readable() -> Iterable[tuple[str, np.ndarray]]:
        for utterance in corpus.utterances:
            try:
                wave = load_wave(corpus.root / utterance.audio, config.audio, config.limits)
            except AudioError:
                continue
            yield utterance.text, wave

    paths = write_corpus(folder, islice(readable(), count), config.audio.sample_rate)
    if not paths:
        raise CorpusError(f"{data}: 0 clips can be decoded, expected at least one; xtts preprocess --dry-run says why")
    return len(paths)


def write_corpus(folder: Path, clips: Iterable[tuple[str, np.ndarray]], sample_rate: int) -> list[Path]:
    """Write texts and waves as a corpus in LJSpeech's layout, and return the paths of the WAV files."""
    (folder / "wavs").mkdir(parents=True)
    paths, rows = [], []
    for number, (text, wave) in enumerate(clips):
        path = folder / "wavs" / f"clip-{number:05d}.wav"
        write_wave(path, wave, sample_rate)
        line = " ".join(text.replace("|", " ").split())
        rows.append(f"{path.stem}|{line}|{line}\n")
        paths.append(path)
    (folder / "metadata.csv").write_text("".join(rows), encoding="utf-8")
    return paths

"""Synthesize held-out sentences with their language id and with another; compare the phoneme error rates.

    python benchmarks/languages.py --run R --cache C --data CORPUS --language en --sentences 60 --vocoder V

The tokens are the same both times; two rows of the language embedding are swapped. Needs the extra `eval`, whose
recogniser knows English only.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import soundfile
import tensorflow as tf

from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.evaluation.ground_truth import split_entries
from xtts_pipeline.evaluation.intelligibility import Recogniser, count_errors, pool_errors
from xtts_pipeline.inference.speech import SpokenText
from xtts_pipeline.inference.synthesizer import Synthesizer


class MisledSynthesizer(Synthesizer):
    """Tokenises texts in their own language and gives the network the id of another."""

    def mislead(self, language: str, other: str) -> None:
        """Swap two languages' rows of the embedding."""
        names = list(self.checkpoint.cache.languages)
        order = list(range(len(names)))
        first, second = names.index(language), names.index(other)
        order[first], order[second] = second, first
        embedding = self._network.language_embedding
        embedding.assign(tf.gather(embedding, order))


def error_rate(spoken: Sequence[SpokenText], truths: Sequence[list[str]], recogniser: Recogniser) -> float:
    """Return the phoneme error rate of the speech."""
    heard = (recogniser.transcribe(one.wave, one.sample_rate) for one in spoken)
    return pool_errors([count_errors(phonemes, truth) for phonemes, truth in zip(heard, truths, strict=True)]).rate


def rates(arguments: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each error rate."""
    manifest = load_manifest(arguments.cache)
    entries = split_entries(arguments.cache, manifest, "val", None)
    entries = [entry for entry in entries if entry.language == arguments.language][: arguments.sentences]
    recogniser = Recogniser()
    truths = [
        recogniser.transcribe(*soundfile.read(arguments.data / entry.source.path, dtype="float32")) for entry in entries
    ]
    texts = [entry.raw_text for entry in entries]
    synthesizer = Synthesizer.load(arguments.run, vocoder=arguments.vocoder)
    yield "sentences", len(texts)
    yield (
        f"PER, id {arguments.language}",
        error_rate(synthesizer.synthesize_batch(texts, language=arguments.language), truths, recogniser),
    )
    for other in synthesizer.checkpoint.cache.languages:
        if other != arguments.language:
            misled = MisledSynthesizer.load(arguments.run, vocoder=arguments.vocoder)
            misled.mislead(arguments.language, other)
            spoken = misled.synthesize_batch(texts, language=arguments.language)
            yield f"PER, id {other}", error_rate(spoken, truths, recogniser)


def main() -> None:
    """Print the rates, and all of them as JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--run", "--cache", "--data"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--language", default="en")
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--vocoder", help="by default the one that the run remembers, or Griffin-Lim")
    found = {}
    for name, value in rates(parser.parse_args()):
        found[name] = value
        print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

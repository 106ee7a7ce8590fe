"""Compare the aligner's times of phonemes with those of espeak-ng, which spoke the corpus.

    python benchmarks/alignment.py --run runs/eight --cache cache-eight

For a corpus of make_corpora.py with English voices. espeak-ng speaks the held-out texts again and says when each
phoneme begins. The aligner's time is the begin of the phoneme's first token; a space, a point or a stress mark before
it may belong to either side, so any time within them is right. A run that clones voices takes the first clip of each
speaker as the reference of the others.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from error_sources import as_reference, one_clip

from xtts_pipeline.cache.format.example import decode_example
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest, record_spec
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.evaluation.ground_truth import split_entries
from xtts_pipeline.model.batch import References
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.text.tokens import FIRST_SYMBOL_ID
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

STRESS = "ˈˌ"
BETWEEN_PHONEMES = frozenset(" .,;:!?-()\"'" + STRESS)
FAR_FRAMES = (3, 5, 10)
# A clip that espeak-ng now speaks in another time has other times of phonemes.
MOST_FRAMES_OFF = 2.0
# The aligner gives each token about one frame or more.
SQUEEZED_FRAMES = 1.15


def speak_again(entries: Sequence[UtteranceEntry], manifest: Manifest) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Yield the id of each text, and its phonemes with the frame at which each begins."""
    hop = manifest.audio.hop_samples
    for speaker in sorted({entry.speaker for entry in entries}):
        with EspeakVoice("en-us" if speaker == "plain" else f"en-us+{speaker}") as voice:
            for entry in entries:
                if entry.speaker == speaker:
                    wave, phonemes = voice.speak_phonemes(entry.raw_text)
                    if abs(len(wave) / hop + 1 - entry.frames) <= MOST_FRAMES_OFF:
                        yield entry.id, [(name.lstrip(STRESS), sample / hop) for name, sample in phonemes if name]


def frames_off(symbols: Sequence[str], durations: np.ndarray, phonemes: Sequence[tuple[str, float]]) -> list[float]:
    """Return how far the begin of each phoneme is from its token's; empty if the tokens are not these phonemes."""
    begin, token, found = np.append(0.0, np.cumsum(durations)), 0, []
    for name, frame in phonemes:
        first = token
        while token < len(symbols) and symbols[token] in BETWEEN_PHONEMES:
            token += 1
        if "".join(symbols[token : token + len(name)]) != name:
            return []
        found.append(frame - np.clip(frame, begin[first], begin[token]))
        token += len(name)
    return found


def main() -> None:
    """Align, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    asked = parser.parse_args()
    manifest, checkpoint = load_manifest(asked.cache), load_checkpoint(asked.run)
    network, dropout = load_network(checkpoint), Dropout.fixed(0)
    entries = split_entries(asked.cache, manifest, "val", asked.limit)
    truth = dict(speak_again(entries, manifest))
    wanted = {entry.id: entry.speaker for entry in entries}
    references: dict[str, References] = {}
    off, squeezed, clips = defaultdict(list), [], 0
    for name in manifest.shard_names("val"):
        spec = record_spec(manifest, manifest.bucket_of_shard(name) if manifest.buckets else None)
        for record in read_records(asked.cache / name):
            values = decode_example(record, spec)
            if values["id"] not in wanted:
                continue
            speaker, mel = wanted[values["id"]], values["mel"][: values["mel_length"]]
            if network.voice_encoder is not None and speaker not in references:
                references[speaker] = as_reference(mel, checkpoint)
                continue
            tokens = values["tokens"][: values["text_length"]]
            batch = one_clip(tokens, mel, values["speaker"], checkpoint)
            measured = network(batch, references.get(speaker), dropout).measured
            durations = np.exp(measured.log_duration[0, : len(tokens)].numpy())
            # The begin of the text may belong to either side as well.
            symbols = [" ", *(manifest.symbols[token - FIRST_SYMBOL_ID] for token in tokens[1:-1])]
            found = frames_off(symbols, durations[:-1], truth.get(values["id"], []))
            if found:
                off[speaker] += found
                squeezed.append(float(np.mean(durations[1:-1] < SQUEEZED_FRAMES)))
                clips += 1
    everything = np.concatenate([np.array(found) for found in off.values()])
    # Tokens may begin early or late in all clips alike, which does no harm.
    usual = np.median(everything)
    print(f"{clips} of {len(entries)} clips, {len(everything)} phonemes, usually {usual:+.2f} frames off")
    for speaker, found in {"all": everything, **off}.items():
        distance = np.abs(np.array(found) - usual)
        far = ", ".join(f"over {frames} frames {np.mean(distance > frames):.2%}" for frames in FAR_FRAMES)
        print(f"{speaker:<12} {distance.mean():.2f} frames off in the mean, {far}")
    print(f"tokens of a single frame {np.mean(squeezed):.1%}")


if __name__ == "__main__":
    main()

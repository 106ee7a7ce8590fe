"""Compare the aligner's times of phonemes with those of espeak-ng, which spoke the corpus.

    python benchmarks/alignment.py --run runs/eight --cache cache-eight

For a run and a cache of phonemes of a corpus by make_corpora.py with English voices; needs the extra `demo`. espeak-ng
speaks the held-out texts again and says when each phoneme begins. The aligner's time is the begin of the phoneme's
first token. A space, a point or a stress mark before it may belong to either side, so any time within them is right.
The median of the other differences is taken off first, since an equal shift of all tokens does no harm. A run that
clones voices takes the first clip of each speaker as the reference of the others.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from error_sources import check_cache_of, held_out_clips

from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.corpus.demo.espeak import EspeakVoice
from xtts_pipeline.evaluation.ground_truth import split_entries
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.text.tokens import Tokenizer
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

STRESS = "ˈˌ"
BETWEEN_PHONEMES = frozenset(" .,;:!?-()\"'" + STRESS) | {"<begin>", "<blank>", "<end>"}
FAR_FRAMES = (3, 5, 10)
# A clip that espeak-ng now speaks in another time has other times of phonemes.
MOST_FRAMES_OFF = 2.0
# No path gives a token less than one frame.
LONE_FRAMES = 1.15


def speak_again(entries: Sequence[UtteranceEntry], manifest: Manifest) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """Yield the id of each text, and its phonemes with the frame at which each begins."""
    hop = manifest.audio.hop_samples
    for speaker in sorted({entry.speaker for entry in entries}):
        with EspeakVoice("en-us" if speaker == "plain" else f"en-us+{speaker}") as voice:
            if voice.sample_rate != manifest.audio.sample_rate:
                raise SystemExit(f"espeak-ng has {voice.sample_rate} Hz, the cache {manifest.audio.sample_rate}")
            for entry in entries:
                if entry.speaker == speaker:
                    wave, phonemes = voice.speak_phonemes(entry.raw_text)
                    if abs(len(wave) / hop + 1 - entry.frames) <= MOST_FRAMES_OFF:
                        yield entry.id, [(name.lstrip(STRESS), sample / hop) for name, sample in phonemes if name]


def compare(
    symbols: Sequence[str], durations: np.ndarray, phonemes: Sequence[tuple[str, float]]
) -> list[tuple[float, float, float]]:
    """Return the frame at which each phoneme begins, and the first and the last one that its tokens allow.

    Empty if the tokens are not these phonemes.
    """
    begin, token, found = np.append(0.0, np.cumsum(durations)), 0, []
    for name, frame in phonemes:
        first = token
        while token < len(symbols) and symbols[token] in BETWEEN_PHONEMES:
            token += 1
        if "".join(symbols[token : token + len(name)]) != name:
            return []
        found.append((frame, float(begin[first]), float(begin[token])))
        token += len(name)
    return found if BETWEEN_PHONEMES.issuperset(symbols[token:]) else []


def main() -> None:
    """Align, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    asked = parser.parse_args()
    manifest, checkpoint = load_manifest(asked.cache), load_checkpoint(asked.run)
    check_cache_of(asked.run, checkpoint, asked.cache, manifest)
    network, dropout = load_network(checkpoint), Dropout.fixed(0)
    tokenizer = Tokenizer(manifest.symbols, manifest.text.blank)
    entries = split_entries(asked.cache, manifest, "val", asked.limit)
    truth = dict(speak_again(entries, manifest))
    compared, lone_tokens, tokens_in_all = defaultdict(list), 0, 0
    for entry, tokens, batch, reference in held_out_clips(asked.cache, manifest, checkpoint, entries):
        measured = network(batch, reference, dropout).measured
        durations = np.exp(measured.log_duration[0, : len(tokens)].numpy())
        found = compare([tokenizer.name_of(int(token)) for token in tokens], durations, truth.get(entry.id, []))
        if found:
            compared[entry.speaker] += found
            lone_tokens += int(np.sum(durations[1:-1] < LONE_FRAMES))
            tokens_in_all += len(durations) - 2
    if not compared:
        raise SystemExit(f"{asked.cache}: no held-out clip has the phonemes and the length that espeak-ng speaks")
    everything = np.array([each for found in compared.values() for each in found])
    is_sure = everything[:, 1] == everything[:, 2]
    shift = np.median(everything[is_sure, 0] - everything[is_sure, 1])
    print(f"{len(everything)} phonemes, {shift:+.2f} frames after their tokens in the median")
    for speaker, found in {"all": everything, **compared}.items():
        frame, first, last = np.array(found).T
        distance = np.abs(frame - shift - np.clip(frame - shift, first, last))
        far = ", ".join(f"over {frames} frames {np.mean(distance > frames):.2%}" for frames in FAR_FRAMES)
        print(f"{speaker:<12} {distance.mean():.2f} frames off in the mean, {far}")
    print(f"tokens of a single frame {lone_tokens / tokens_in_all:.1%}")


if __name__ == "__main__":
    main()

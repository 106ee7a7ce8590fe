"""Compare takes of the same text: how far the figures of `xtts evaluate` are apart for a speaker who reads twice.

    python benchmarks/repeated_takes.py --data kathleen --limit 160

Speech that is as good as a recording has these figures too, so they are the limit of what a voice can reach. Each text
with several takes by one speaker counts once: its first take is the truth, its second one the speech. Case and
punctuation of a text do not count. Hashes choose the texts where --limit is lower. Prints means and medians; the PER is
that of all phonemes. Needs the extra `eval`.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
from hold_out_texts import digest

from xtts_pipeline.audio.load import load_wave
from xtts_pipeline.audio.mel import log_mel
from xtts_pipeline.config.schema import AudioConfig, LimitsConfig
from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Corpus, Utterance
from xtts_pipeline.evaluation.intelligibility import Recogniser, compare_phonemes, pool_errors
from xtts_pipeline.evaluation.metrics import Sound, measure_speech, summarize
from xtts_pipeline.inference.guard import NO_FAULTS
from xtts_pipeline.quality.duplicates import words_of

UNMEASURED = ("skipped_words", "repeated_words", "real_time_factor", "phoneme_error_rate")


def repeated_takes(corpus: Corpus) -> list[tuple[Utterance, Utterance]]:
    """Return the first two takes of each text that a speaker reads several times, in the order of hashes."""
    takes: defaultdict[tuple[str, tuple[str, ...]], list[Utterance]] = defaultdict(list)
    for clip in corpus.utterances:
        takes[clip.speaker, words_of(clip.text)].append(clip)
    pairs = [(spoken[0], spoken[1]) for spoken in takes.values() if len(spoken) > 1]
    return sorted(pairs, key=lambda pair: digest(pair[0].text))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    asked = parser.parse_args()
    audio, limits, recogniser, corpus = AudioConfig(), LimitsConfig(), Recogniser(), read_corpus(asked.data)
    measured, errors = [], []
    for pair in repeated_takes(corpus)[: asked.limit]:
        waves = [load_wave(corpus.root / clip.audio, audio, limits) for clip in pair]
        phonemes = compare_phonemes(recogniser, dict(zip(("true", "spoken"), waves, strict=True)), audio.sample_rate)
        sounds = [Sound(log_mel(wave, audio), wave) for wave in waves]
        measured.append(measure_speech(sounds[0], sounds[1], NO_FAULTS, 0.0, audio, phonemes))
        errors.append(phonemes["to_truth"])
    if not measured:
        raise SystemExit(f"{asked.data}: no speaker reads a text twice")
    pooled, alike = pool_errors(errors), sum(error.edits == 0 for error in errors)
    print(f"{len(measured)} texts, {pooled.length:,} phonemes, {alike} texts without an error")
    print(f"  {'PER':<32} {pooled.rate:.3f}")
    print(f"  {'deviation of log durations':<32} {np.std(np.log([each.duration_ratio for each in measured])):.3f}")
    for summary in summarize(measured):
        if summary.metric.name not in UNMEASURED:
            print(f"  {summary.metric.label:<32} mean {summary.mean:.3f}  median {summary.median:.3f}")


if __name__ == "__main__":
    main()

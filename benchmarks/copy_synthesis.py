"""Judge vocoders by copy synthesis: clips of a cache with stored waves, their mels through each vocoder.

    python benchmarks/copy_synthesis.py --cache cache --limit 60 --output copies griffin-lim:20 runs/vocoder
    python benchmarks/copy_synthesis.py --cache voices-cache --output copies --by-speaker --pitch runs/vocoder

Needs the extra `eval`; PESQ and speaker similarity come with their packages. Prints the means of the judges for the
recordings and for each vocoder, and the phoneme error rate of the copies against the recordings; with `--pitch` also
the median of F0 in Hz and the voiced share of the frames. The sounds stay in one folder a vocoder. `griffin-lim:N` has
N iterations; a folder is a run of `xtts train-vocoder`, `RUN/best` or a checkpoint.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from xtts_pipeline.audio.save import write_wave
from xtts_pipeline.cache.format.contents import require_waves
from xtts_pipeline.cache.format.listings import UtteranceEntry
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import AudioConfig, SynthesisConfig
from xtts_pipeline.evaluation.ground_truth import read_ground_truth, split_entries
from xtts_pipeline.evaluation.intelligibility import PhonemeErrors, Recogniser, count_errors, pool_errors
from xtts_pipeline.evaluation.judges import Judgements, Judges, mean_judgements
from xtts_pipeline.evaluation.pitch import find_pitch
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_generator
from xtts_pipeline.vocoder.griffin_lim import GriffinLim
from xtts_pipeline.vocoder.neural import NeuralVocoder

Vocode = Callable[[np.ndarray], np.ndarray]


def make_vocoder(name: str, audio: AudioConfig) -> Vocode:
    """Return the vocoder of an argument."""
    kind, _, iterations = name.partition(":")
    if kind == "griffin-lim":
        settings = SynthesisConfig()
        count = int(iterations or settings.griffin_lim_iterations)
        return GriffinLim(audio, count, settings.griffin_lim_momentum)
    return NeuralVocoder(load_generator(load_checkpoint(Path(name))))


def print_table(
    title: str,
    entries: Sequence[UtteranceEntry],
    judged: Sequence[Judgements],
    errors: Sequence[dict[str, PhonemeErrors]],
    pitches: Sequence[dict[str, np.ndarray]],
) -> None:
    """Print one line a sound with the means of its figures; `pitches` in Hz, NaN where unvoiced, may be empty."""
    print(f"{title}: {len(entries)} clips")
    for label, sound in mean_judgements(judged).items():
        figures = [f"{name} {value:.3f}" for name, value in vars(sound).items() if value is not None]
        if label in errors[0]:
            figures.append(f"per {pool_errors([row[label] for row in errors]).rate:.3f}")
        if pitches[0]:
            hz = np.concatenate([row[label] for row in pitches])
            figures.append(f"f0 {np.nanmedian(hz):.1f}, voiced {np.isfinite(hz).mean():.3f}")
        print(f"  {label:<24} {', '.join(figures)}", flush=True)


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--by-speaker", action="store_true")
    parser.add_argument("--pitch", action="store_true")
    parser.add_argument("vocoders", nargs="+")
    asked = parser.parse_args()
    manifest = load_manifest(asked.cache)
    require_waves(asked.cache, manifest)
    entries = split_entries(asked.cache, manifest, asked.split, asked.limit)
    vocoders = {name: make_vocoder(name, manifest.audio) for name in asked.vocoders}
    judges, recogniser, rate = Judges(), Recogniser(), manifest.audio.sample_rate
    judged: list[Judgements] = []
    errors: list[dict[str, PhonemeErrors]] = []
    pitches: list[dict[str, np.ndarray]] = []
    for number, (_, mel, wave) in enumerate(read_ground_truth(asked.cache, manifest, entries, None)):
        waves = {"true": np.asarray(wave), **{name: vocode(mel) for name, vocode in vocoders.items()}}
        for name, sound in waves.items():
            folder = asked.output / name.strip("/").replace("/", "_").replace(":", "-")
            folder.mkdir(parents=True, exist_ok=True)
            write_wave(folder / f"{number:04d}.wav", sound, rate)
        judged.append(judges.judge(waves, rate))
        phonemes = {name: recogniser.transcribe(sound, rate) for name, sound in waves.items()}
        errors.append({name: count_errors(phonemes[name], phonemes["true"]) for name in vocoders})
        pitched = waves if asked.pitch else {}
        pitches.append({name: find_pitch(sound, manifest.audio) for name, sound in pitched.items()})
    print_table(str(asked.cache), entries, judged, errors, pitches)
    for speaker in manifest.speakers if asked.by_speaker else ():
        rows = [row for row, entry in enumerate(entries) if entry.speaker == speaker]
        if rows:
            chosen = ([values[row] for row in rows] for values in (entries, judged, errors, pitches))
            print_table(speaker, *chosen)


if __name__ == "__main__":
    main()

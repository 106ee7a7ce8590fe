"""Synthesize in the voices of reference clips that a run was not trained on; measure how near and how clear they are.

    python benchmarks/cloning.py speak --run R --cache C --data CORPUS --output FOLDER --sentences 5
    python benchmarks/cloning.py judge --output FOLDER
    python benchmarks/cloning.py losses --run R --cache C

`speak` uses the first validation clips of each speaker as references and speaks the same validation sentences in every
voice. It reports the median fundamental frequency of the speech over that of the reference speaker. With `--per` (extra
`eval`) each voice also speaks as many of its own other validation sentences; the phoneme error rate is that against the
recordings of the same voice. `per_of_copies` is that of these recordings after their mels went through the same
vocoder. `--least-clips N` leaves out speakers with fewer validation clips.

`judge` compares speaker embeddings with the mean embedding of each speaker's other validation clips. It reports how
often the right speaker is the nearest, and the mean cosine similarity to it, for the speech and for those clips, each
against the rest of its speaker.
It needs `pip install resemblyzer soundfile "setuptools<81"` in a separate environment, since that brings PyTorch.

`losses` are those of validation on another cache, whose speakers the run may not know, in batches of 16.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile

ROWS_NAME, SUMMARY_NAME = "spoken.jsonl", "cloning.json"


def speak(arguments: argparse.Namespace) -> None:
    """Speak every sentence in every voice; write the waves, a line for each, and the summary."""
    from xtts_pipeline.audio.load import load_wave
    from xtts_pipeline.audio.save import write_wave
    from xtts_pipeline.cache.format.manifest import load_manifest
    from xtts_pipeline.evaluation.ground_truth import read_true_mels, split_entries
    from xtts_pipeline.evaluation.intelligibility import Recogniser, count_errors, pool_errors
    from xtts_pipeline.evaluation.pitch import find_pitch
    from xtts_pipeline.inference.synthesizer import Synthesizer

    manifest = load_manifest(arguments.cache)
    by_speaker = defaultdict(list)
    for entry in split_entries(arguments.cache, manifest, "val", None):
        by_speaker[entry.speaker].append(entry)
    by_speaker = {name: members for name, members in by_speaker.items() if len(members) >= arguments.least_clips}
    synthesizer = Synthesizer.load(arguments.run, arguments.overrides, vocoder=arguments.vocoder)
    recogniser = Recogniser() if arguments.per else None
    entries = [entry for members in by_speaker.values() for entry in members]
    sentences = sorted(entries, key=lambda entry: entry.id)[: arguments.sentences]
    arguments.output.mkdir(parents=True, exist_ok=True)

    rows, ratios, errors, errors_of_copies = [], {}, defaultdict(list), []
    few = sorted(speaker for speaker, members in by_speaker.items() if len(members) < arguments.references + 2)
    if few:
        raise SystemExit(
            f"{', '.join(few)}: under {arguments.references + 2} validation clips; raise cache.validation_share"
        )
    for speaker, members in sorted(by_speaker.items()):
        paths = [arguments.data / entry.source.path for entry in members]
        references, others = paths[: arguments.references], paths[arguments.references :]
        spoken_hz = []
        for number, sentence in enumerate(sentences):
            spoken = synthesizer.synthesize(sentence.raw_text, language=sentence.language, references=references)
            path = arguments.output / f"{speaker}-{number:02d}.wav"
            write_wave(path, spoken.wave, spoken.sample_rate)
            spoken_hz.append(find_pitch(spoken.wave, manifest.audio))
            rows.append(
                {"wave": path.name, "speaker": speaker, "text": sentence.raw_text, "has_stopped": spoken.has_stopped}
            )
        own = members[arguments.references : arguments.references + arguments.sentences]
        for entry, mel in read_true_mels(arguments.cache, manifest, own) if recogniser is not None else []:
            spoken = synthesizer.synthesize(entry.raw_text, language=entry.language, references=references)
            truth, rate = soundfile.read(arguments.data / entry.source.path, dtype="float32")
            found = recogniser.transcribe(spoken.wave, spoken.sample_rate)
            recognised = recogniser.transcribe(truth, rate)
            errors[speaker].append(count_errors(found, recognised))
            copied = recogniser.transcribe(synthesizer.vocoder(mel), spoken.sample_rate)
            errors_of_copies.append(count_errors(copied, recognised))
        true_hz = [find_pitch(load_wave(path, manifest.audio, manifest.limits), manifest.audio) for path in paths]
        spoken_median, true_median = (float(np.nanmedian(np.concatenate(hz))) for hz in (spoken_hz, true_hz))
        ratios[speaker] = {"spoken_hz": spoken_median, "true_hz": true_median, "ratio": spoken_median / true_median}
        rows += [{"wave": str(path.resolve()), "speaker": speaker, "text": None} for path in others]
        change = spoken_median / true_median - 1
        print(f"{speaker}: {spoken_median:.0f} Hz, its clips {true_median:.0f} Hz, {change:+.1%}", flush=True)
    summary = {
        "step": synthesizer.checkpoint.step,
        "median_f0": ratios,
        "speakers_within_10_percent": sum(abs(entry["ratio"] - 1) <= 0.1 for entry in ratios.values()),
        "stopped": sum(bool(row.get("has_stopped")) for row in rows),
        "spoken": len(sentences) * len(by_speaker),
        "per": pool_errors([count for counts in errors.values() for count in counts]).rate if errors else None,
        "per_of_copies": pool_errors(errors_of_copies).rate if errors else None,
        "per_by_speaker": {speaker: round(pool_errors(counts).rate, 3) for speaker, counts in errors.items()},
    }
    (arguments.output / ROWS_NAME).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (arguments.output / SUMMARY_NAME).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in summary.items() if name != "median_f0"}))


def judge(arguments: argparse.Namespace) -> None:
    """Print how often the speaker nearest to the speech is the reference's."""
    from resemblyzer import VoiceEncoder, preprocess_wav

    rows = [json.loads(line) for line in (arguments.output / ROWS_NAME).read_text(encoding="utf-8").splitlines()]
    encoder = VoiceEncoder("cpu", verbose=False)
    embedded = [encoder.embed_utterance(preprocess_wav(arguments.output / row["wave"])) for row in rows]
    speakers = sorted({row["speaker"] for row in rows})
    is_right, nearness_of_own = defaultdict(list), defaultdict(list)
    for judged, (vector, row) in enumerate(zip(embedded, rows, strict=True)):
        nearness = []
        for speaker in speakers:
            # A clip is not compared with itself.
            others = [
                embedded[i]
                for i, each in enumerate(rows)
                if each["speaker"] == speaker and each["text"] is None and i != judged
            ]
            centre = np.mean(others, axis=0)
            nearness.append(float(centre @ vector / np.linalg.norm(centre)))
        name, own = "true" if row["text"] is None else "spoken", speakers.index(row["speaker"])
        is_right[name].append(int(np.argmax(nearness)) == own)
        nearness_of_own[name].append(nearness[own])
    for name, found in is_right.items():
        right = f"{sum(found)} of {len(found)} nearest to the right of {len(speakers)} speakers, {np.mean(found):.0%}"
        print(f"{name}: {right}; cosine similarity to it {np.mean(nearness_of_own[name]):.3f}")


def losses(arguments: argparse.Namespace) -> None:
    """Print the validation losses of the last checkpoint, with references as in training."""
    from xtts_pipeline.cache.format.manifest import load_manifest
    from xtts_pipeline.data.batching import bucket_signatures
    from xtts_pipeline.data.cached import CachedSource
    from xtts_pipeline.training.acoustic.step import EvaluateStep
    from xtts_pipeline.training.acoustic.validation import mean_losses
    from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

    source = CachedSource(arguments.cache, load_manifest(arguments.cache))
    checkpoint = load_checkpoint(arguments.run)
    settings = checkpoint.config.training.model_copy(update={"batch_size": 16, "accumulation_steps": 1})
    signatures = bucket_signatures(source.identity(), source.specs, settings, 1)
    step = EvaluateStep(load_network(checkpoint), settings, signatures)
    found = mean_losses(step, source.validation_batches(signatures))
    print(json.dumps({"step": checkpoint.step, **{name: round(value, 4) for name, value in found.items()}}))


def main() -> None:
    """Parse the arguments and run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    speaking, judging, compared = map(commands.add_parser, ("speak", "judge", "losses"))
    for name in ("--run", "--cache", "--data", "--output"):
        speaking.add_argument(name, type=Path, required=True)
    for name in ("--run", "--cache"):
        compared.add_argument(name, type=Path, required=True)
    compared.set_defaults(command=losses)
    speaking.add_argument("--vocoder", type=Path, help="a run of xtts train-vocoder")
    speaking.add_argument("--set", dest="overrides", action="append", default=[], metavar="synthesis.KEY=VALUE")
    speaking.add_argument("--sentences", type=int, default=5)
    speaking.add_argument("--least-clips", type=int, default=0, help="leave out speakers with fewer validation clips")
    speaking.add_argument("--references", type=int, default=2, help="clips of the voice given together")
    speaking.add_argument("--per", action="store_true", help="also recognise phonemes (extra `eval`)")
    speaking.set_defaults(command=speak)
    judging.add_argument("--output", type=Path, required=True)
    judging.set_defaults(command=judge)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()

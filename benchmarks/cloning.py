"""Synthesize in the voices of reference clips that a run was not trained on; measure how near and how clear they are.

    python benchmarks/cloning.py speak --run R --cache C --data CORPUS --output FOLDER --sentences 5
    python benchmarks/cloning.py judge --output FOLDER

`speak` uses the first validation clips of each speaker as references and speaks the same validation sentences in every
voice. It reports the median fundamental frequency of the speech over that of the reference speaker. With `--per` (extra
`eval`) each voice also speaks as many of its own other validation sentences; the phoneme error rate is that against the
recordings of the same voice. `per_of_copies` is that of these recordings after their mels went through the same
vocoder.

`judge` compares speaker embeddings with the mean embedding of each speaker's other validation clips. It reports how
often the right speaker is the nearest, for the speech and for those clips, each against the rest of its speaker.
It needs `pip install resemblyzer soundfile "setuptools<81"` in a separate environment, since that brings PyTorch.
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
    synthesizer = Synthesizer.load(arguments.run, vocoder=arguments.vocoder)
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
            copied = recogniser.transcribe(synthesizer.vocode(mel), spoken.sample_rate)
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
    counts = {"spoken": [0, 0], "true": [0, 0]}
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
        count = counts["true" if row["text"] is None else "spoken"]
        count[0] += speakers[int(np.argmax(nearness))] == row["speaker"]
        count[1] += 1
    for name, (right, total) in counts.items():
        print(f"{name}: {right} of {total} nearest to the right of {len(speakers)} speakers, {right / total:.0%}")


def main() -> None:
    """Parse the arguments and run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    speaking, judging = commands.add_parser("speak"), commands.add_parser("judge")
    for name in ("--run", "--cache", "--data", "--output"):
        speaking.add_argument(name, type=Path, required=True)
    speaking.add_argument("--vocoder", type=Path, help="a run of xtts train-vocoder")
    speaking.add_argument("--sentences", type=int, default=5)
    speaking.add_argument("--references", type=int, default=2, help="clips of the voice given together")
    speaking.add_argument("--per", action="store_true", help="also recognise phonemes (extra `eval`)")
    speaking.set_defaults(command=speak)
    judging.add_argument("--output", type=Path, required=True)
    judging.set_defaults(command=judge)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()

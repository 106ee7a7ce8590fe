"""Count the faults in the speech of many held-out texts and of 200 odd ones.

    python benchmarks/odd_texts.py --run runs/two-cores --texts held-out.txt --count 2000

The odd texts are single letters, repeated words, numbers, lists, and sentences of 60 words. The guard counts the faults
in the first attempt and in what is kept. Speech that runs away or ends early shows in the seconds a token.
"""

import argparse
import random
from pathlib import Path

import numpy as np

from xtts_pipeline.inference.guard import NO_FAULTS
from xtts_pipeline.inference.synthesizer import Synthesizer

SENTENCE = "the old house by the river was sold to a man who came from far away with seven dogs"
WORDS = SENTENCE.split()
ODD_TEXTS_A_KIND = 40


def odd_texts(seed: int) -> list[str]:
    """Return 200 texts of five kinds."""
    draw = random.Random(seed)  # noqa: S311 (not for security)
    texts = []
    for number in range(ODD_TEXTS_A_KIND):
        word, letter = draw.choice(WORDS), chr(ord("a") + number % 26)
        texts += [
            f"{letter}." if number < ODD_TEXTS_A_KIND // 2 else f"{letter.upper()}!",
            " ".join([word] * draw.randint(2, 20)) + ".",
            f"{draw.randint(0, 10 ** draw.randint(1, 9))} and {draw.randint(1_000, 2_100)}, {draw.randint(1, 99)}%.",
            ", ".join(draw.sample(WORDS, draw.randint(5, 15))) + ".",
            " ".join(draw.choice(WORDS) for _ in range(60)) + ".",
        ]
    return texts


def report(name: str, synthesizer: Synthesizer, texts: list[str]) -> None:
    """Speak the texts and print their faults."""
    spoken = synthesizer.synthesize_batch(texts)
    words = sum(len(text.split()) for text in texts)
    faults = NO_FAULTS
    for speech in spoken:
        faults = faults.plus(speech.faults)
    seconds_a_token = [speech.seconds / len(speech.tokens) for speech in spoken]
    low, median, high = np.percentile(seconds_a_token, [0, 50, 100])
    print(f"{name}: {len(texts)} texts, {words} words, {sum(speech.seconds for speech in spoken) / 60:.0f} min")
    print(f"  at their limit  {sum(not speech.has_stopped for speech in spoken)}")
    for fault, count in faults._asdict().items():
        print(f"  {fault:<15} {count} ({count / words:.2%} of the words)")
    print(f"  spoken again    {sum(speech.attempts > 1 for speech in spoken)}")
    print(f"  ms a token      {1e3 * low:.0f} to {1e3 * high:.0f}, median {1e3 * median:.0f}", flush=True)


def main() -> None:
    """Speak both sets of texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True, help="held-out texts, one a line")
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    # Faults are found in mels; one iteration renders them fast.
    synthesizer = Synthesizer.load(asked.run, ["synthesis.griffin_lim_iterations=1"], vocoder="griffin-lim")
    report("odd", synthesizer, odd_texts(asked.seed))
    lines = asked.texts.read_text("utf-8").splitlines()
    report("held out", synthesizer, [line for line in lines if line.strip()][: asked.count])


if __name__ == "__main__":
    main()

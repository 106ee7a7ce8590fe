"""Write a table of a corpus whose held-out texts are spoken in no training clip.

    python benchmarks/hold_out_texts.py --data corpus --texts 80

A corpus that reads its sentences several times has many of its validation texts in its training clips too, since ids
choose the split. The table `held-out.csv` is written into the corpus: name it as `--data` of `xtts preprocess`. Hashes
choose the texts. The last clip of each is for validation, its others are left out. Case and punctuation do not count.
"""

import argparse
import csv
import hashlib
from collections import defaultdict
from pathlib import Path

from xtts_pipeline.corpus.read import read_corpus
from xtts_pipeline.corpus.utterance import Utterance
from xtts_pipeline.quality.duplicates import words_of

TABLE_NAME = "held-out.csv"


def table_rows(clips: list[Utterance], texts: int) -> list[tuple[str, str, str, str]]:
    """Return sound, text, speaker and split of the clips, with `texts` texts held out."""
    takes: defaultdict[tuple[str, ...], list[Utterance]] = defaultdict(list)
    for clip in clips:
        takes[words_of(clip.text)].append(clip)
    held_out = set(sorted(takes, key=lambda words: digest(takes[words][0].text))[:texts])
    chosen = [
        (clip, "val" if words in held_out else "train")
        for words, spoken in takes.items()
        for clip in (spoken[-1:] if words in held_out else spoken)
    ]
    return [(clip.audio.as_posix(), clip.text, clip.speaker, split) for clip, split in chosen]


def digest(text: str) -> bytes:
    """Return a hash by which texts are chosen."""
    return hashlib.sha1(text.lower().encode(), usedforsecurity=False).digest()


def main() -> None:
    """Read the corpus, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=int, required=True, help="number of texts to hold out")
    asked = parser.parse_args()
    table = asked.data / TABLE_NAME
    if table.exists():
        raise SystemExit(f"{table}: exists; remove it first")
    rows = table_rows(list(read_corpus(asked.data).utterances), asked.texts)
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "text", "speaker", "split"), *rows])
    print(f"{table}: {sum(row[3] == 'train' for row in rows)} clips for training, {asked.texts} texts held out")


if __name__ == "__main__":
    main()

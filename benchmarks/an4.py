"""Write tables of the AN4 corpus of Carnegie Mellon University, which `xtts preprocess --data` reads.

    git clone https://github.com/cmusphinx/an4
    python benchmarks/an4.py --data an4

`an4/train.csv` has 948 clips of 74 speakers, `an4/test.csv` 130 clips of ten others, all of them for validation. They
spell names, and read numbers and short commands.
"""

import argparse
import csv
import re
from pathlib import Path


def write_table(corpus: Path, part: str, **more: str) -> None:
    """Write the table of `train` or `test`; `more` are columns with one value each."""
    lists = corpus / "etc" / f"an4_{part}"
    sounds = lists.with_suffix(".fileids").read_text(encoding="utf-8").split()
    lines = lists.with_suffix(".transcription").read_text(encoding="utf-8").splitlines()
    texts = dict(reversed(re.fullmatch(r"(?:<s> )?(.*?)(?: </s>)? \((.*)\)", line).groups()) for line in lines)
    table = corpus / f"{part}.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("file", "text", "speaker", *more))
        for sound in map(Path, sounds):
            rows.writerow((f"wav/{sound}.wav", texts[sound.name].lower(), sound.parent.name, *more.values()))
    print(f"{table}: {len(sounds)} clips of {len({Path(sound).parent for sound in sounds})} speakers")


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    corpus = parser.parse_args().data
    write_table(corpus, "train")
    write_table(corpus, "test", split="val")


if __name__ == "__main__":
    main()

"""The tables of AN4 that `benchmarks/an4.py` writes, on two clips in its layout."""

import csv
from pathlib import Path

from benchmarks.an4 import write_table


def test_a_table_has_the_sound_text_and_speaker_of_each_clip(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "an4_test.fileids").write_text("an4test_clstk/ann/an1-ann-b\nan4test_clstk/bob/an2-bob-b\n")
    (tmp_path / "etc" / "an4_test.transcription").write_text("<s> A B SIX </s> (an1-ann-b)\nGO (an2-bob-b)\n")

    write_table(tmp_path, "test", split="val")

    with (tmp_path / "test.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"file": "wav/an4test_clstk/ann/an1-ann-b.wav", "text": "a b six", "speaker": "ann", "split": "val"},
            {"file": "wav/an4test_clstk/bob/an2-bob-b.wav", "text": "go", "speaker": "bob", "split": "val"},
        ]

"""The table of a corpus whose sentences are spoken several times."""

from pathlib import Path

from benchmarks.hold_out_texts import table_rows
from xtts_pipeline.corpus.utterance import Utterance


def clip(number: int, text: str) -> Utterance:
    return Utterance(f"clip-{number}", Path(f"wavs/clip-{number}.wav"), text, "ann", "en", None, "list.csv")


def test_a_held_out_text_is_in_no_training_clip_and_once_in_validation() -> None:
    clips = [clip(number, f"{'The' if number % 2 else 'the'} text {number % 10}") for number in range(30)]
    rows = table_rows(clips, 4)
    texts = {split: [text.lower() for _, text, _, found in rows if found == split] for split in ("train", "val")}
    assert (len(texts["val"]), len(set(texts["val"])), len(texts["train"])) == (4, 4, 18)
    assert set(texts["val"]).isdisjoint(texts["train"])
    assert all(sound == f"wavs/clip-{sound[10:-4]}.wav" and speaker == "ann" for sound, _, speaker, _ in rows)

"""Faults planted in a spoken corpus are among the strangest clips, each by the measure that is meant for it."""

from pathlib import Path

import pytest

from tests.quality.planted import FAULTS, make_planted_corpus
from xtts_pipeline.cache.build.plan import read_corpora
from xtts_pipeline.config.load import load_config
from xtts_pipeline.corpus.options import AUTO
from xtts_pipeline.quality.clips import CorpusClips
from xtts_pipeline.quality.duplicates import find_duplicates
from xtts_pipeline.quality.strangeness import measure_strangeness


def find_planted(folder: Path, clips: int, of_each: int, shown: int) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return how many clips of each fault its measure shows, and which of its clips are not shown."""
    planted = make_planted_corpus(folder, clips, of_each)
    config = load_config((), ())
    index = read_corpora(folder, None, AUTO, config)
    measured, rejections = CorpusClips(index, config).measure(1, lambda _: None)
    assert (len(measured), rejections) == (clips, [])
    ids = [Path(clip.id).stem for clip in measured]
    found = {
        strangeness.measure.name: {ids[number] for number in strangeness.strangest(shown)}
        for strangeness in measure_strangeness(measured)
    }
    groups = find_duplicates([clip.raw_text for clip in measured], [clip.sound.cepstra for clip in measured])
    found["duplicate"] = {ids[number] for group in groups if group.kind == "sound" for number in group.clips}
    missed = {fault: set(planted[fault]) - found[measure] for fault, measure in FAULTS.items()}
    return {fault: of_each - len(left) for fault, left in missed.items()}, missed


def test_a_planted_fault_of_each_kind_is_among_the_strangest_of_a_small_corpus(tmp_path: Path):
    counts, missed = find_planted(tmp_path / "corpus", clips=60, of_each=2, shown=8)

    assert sum(counts.values()) >= 11, missed


@pytest.mark.slow
def test_28_of_30_planted_faults_are_among_the_50_strangest_of_300_clips(tmp_path: Path):
    counts, missed = find_planted(tmp_path / "corpus", clips=300, of_each=5, shown=50)

    assert sum(counts.values()) >= 28, missed
    assert min(counts.values()) >= 4, missed

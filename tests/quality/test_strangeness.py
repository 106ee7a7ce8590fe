"""Which clips are suspect."""

from dataclasses import replace

import numpy as np
import pytest

from xtts_pipeline.quality.clips import MeasuredClip
from xtts_pipeline.quality.sound import CEPSTRA, SoundMeasures
from xtts_pipeline.quality.strangeness import SUSPECT_SCORE, measure_strangeness

SOUND = SoundMeasures(
    2.0, 172, 0.1, 0.1, 0.1, 88.0, None, None, np.zeros(80, np.float32), np.zeros((86, CEPSTRA), np.float16)
)


@pytest.mark.parametrize(
    ("usual_db", "other_db", "is_suspect"),
    [(88.0, 41.0, False), (88.0, 28.0, False), (88.0, 18.0, True), (36.0, 88.0, False), (36.0, 18.0, True)],
)
def test_noise_is_suspect_if_it_is_heard_and_a_very_clean_corpus_makes_no_clip_suspect(
    usual_db: float, other_db: float, is_suspect: bool
):
    ratios = [usual_db + 0.1 * number for number in range(30)] + [other_db]
    clips = [
        MeasuredClip(str(number), "text", "text", "ann", "en", 6, replace(SOUND, snr_db=ratio))
        for number, ratio in enumerate(ratios)
    ]

    found = next(item for item in measure_strangeness(clips) if item.measure.name == "snr")

    assert (found.scores[-1] >= SUSPECT_SCORE) == is_suspect
    assert found.values[-1] == other_db

"""How long a text should take."""

import numpy as np

from xtts_pipeline.quality.speaking_rate import predicted_seconds

DURATIONS = {"a": 0.12, "t": 0.05, " ": 0.08, ",": 0.4}


def test_the_durations_of_the_symbols_are_learnt_although_some_texts_are_wrong():
    draw = np.random.default_rng(0)
    texts = ["".join(draw.choice(list(DURATIONS), draw.integers(20, 80), p=[0.5, 0.3, 0.15, 0.05])) for _ in range(200)]
    true = np.array([sum(DURATIONS[symbol] for symbol in text) for text in texts])
    seconds = true * draw.normal(1.0, 0.03, len(texts))
    seconds[:10] *= 2.5

    predicted = predicted_seconds(texts, seconds)

    assert np.abs(np.log(predicted / true)).max() < 0.12

"""How well sounds fit their texts."""

import numpy as np
import pytest

from xtts_pipeline.quality.sound import CEPSTRA
from xtts_pipeline.quality.text_fit import text_fits


def test_a_wrong_text_fits_worst_for_any_number_of_processes(monkeypatch):
    monkeypatch.setattr("xtts_pipeline.quality.text_fit.TASK_CLIPS", 32)
    draw = np.random.default_rng(0)
    symbols = "abcdefgh"
    sounds = {symbol: draw.normal(0, 3, CEPSTRA) for symbol in symbols}
    texts = ["".join(draw.choice(list(symbols), draw.integers(8, 20))) for _ in range(80)]
    cepstra = []
    for text in texts:
        means = np.concatenate([np.zeros((3, CEPSTRA)), *(np.tile(sounds[symbol], (4, 1)) for symbol in text)])
        cepstra.append((means + draw.normal(0, 0.5, means.shape)).astype(np.float16))
    texts[7], texts[11] = texts[11], texts[7]

    fits = text_fits(texts, cepstra)

    assert set(np.argsort(fits)[:2]) == {7, 11}
    np.testing.assert_array_equal(text_fits(texts, cepstra, jobs=2), fits)
    # Smaller batches change nothing; what is too long for any has the median.
    monkeypatch.setattr("xtts_pipeline.quality.text_fit.MOST_CELLS", 90 * 22)
    np.testing.assert_allclose(text_fits(texts, cepstra), fits, rtol=1e-5)
    long = text_fits([*texts, "a" * 100], [*cepstra, np.zeros((200, CEPSTRA), np.float16)])
    assert long[-1] == np.median(long[:-1])
    # No path leads through a long text in a few steps.
    assert text_fits(texts, [cepstra[0][:2], *cepstra[1:]])[0] == pytest.approx(fits.min() - 1.0, abs=0.5)

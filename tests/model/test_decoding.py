import numpy as np
import pytest

from xtts_pipeline.model.decoding import sharpening_matrix


def test_a_sharpness_of_one_changes_nothing() -> None:
    np.testing.assert_allclose(sharpening_matrix(20, 1.0), np.eye(20), atol=1e-7)


@pytest.mark.parametrize("sharpness", [1.5, 4.0])
def test_silence_stays_silence(sharpness: float) -> None:
    silence = np.full((3, 80), -11.5, np.float32)
    np.testing.assert_allclose(silence @ sharpening_matrix(80, sharpness), silence, rtol=1e-5)


def test_harmonics_grow_and_formants_hardly() -> None:
    bins = np.arange(80)
    harmonics, formant = np.cos(2 * np.pi * bins / 4), np.cos(2 * np.pi * bins / 40)
    # Away from the edges. The Gaussian keeps exp(-(2 pi 2 / 4)^2 / 2) of the first, 0.7%, and exp(-(2 pi 2 / 40)^2 / 2)
    # of the second, 95%.
    matrix, inside = sharpening_matrix(80, 2.0), slice(10, 70)
    np.testing.assert_allclose((harmonics @ matrix)[inside], (1.993 * harmonics)[inside], atol=5e-3)
    np.testing.assert_allclose((formant @ matrix)[inside], (1.048 * formant)[inside], atol=5e-3)

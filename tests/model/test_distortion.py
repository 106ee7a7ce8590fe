import numpy as np
import pytest
import tensorflow as tf

from xtts_pipeline.audio.cepstrum import mel_cepstrum
from xtts_pipeline.evaluation.distortion import mel_cepstral_distortion
from xtts_pipeline.model.distortion import mel_distortion


def pad(mels: list[np.ndarray], frames: int) -> tuple[tf.Tensor, tf.Tensor]:
    padded = np.stack([np.pad(mel, ((0, frames - len(mel)), (0, 0)), constant_values=-11.5) for mel in mels])
    return tf.constant(padded, tf.float32), tf.constant([len(mel) for mel in mels])


def distort(true: list[np.ndarray], spoken: list[np.ndarray], frames: tuple[int, int] = (30, 40)) -> np.ndarray:
    return mel_distortion(*pad(true, frames[0]), *pad(spoken, frames[1])).numpy()


@pytest.fixture(scope="module")
def mel() -> np.ndarray:
    return np.random.default_rng(0).normal(-5.0, 2.0, [20, 20])


def test_speech_of_another_tempo_has_no_distortion(mel: np.ndarray):
    slow = np.repeat(mel, 2, axis=0)
    np.testing.assert_allclose(distort([mel, mel, slow[:30]], [mel, slow, mel[:15]]), 0.0, atol=0.05)


def test_frames_in_step_have_the_distortion_of_evaluation(mel: np.ndarray):
    louder = mel + np.random.default_rng(1).normal(0.0, 0.1, mel.shape)
    path = np.repeat(np.arange(len(mel))[:, None], 2, axis=1)
    expected = mel_cepstral_distortion(mel_cepstrum(mel), mel_cepstrum(louder), path)
    assert distort([mel], [louder])[0] == pytest.approx(expected, rel=0.02)


def test_the_warping_equals_that_of_all_cells_one_by_one(mel: np.ndarray):
    spoken = np.random.default_rng(2).normal(-5.0, 2.0, [13, 20])
    true_cepstrum, spoken_cepstrum = mel_cepstrum(mel), mel_cepstrum(spoken)
    distance = 10 / np.log(10) * np.sqrt(2 * np.square(true_cepstrum[:, None] - spoken_cepstrum[None]).sum(axis=-1))
    total = np.full([len(mel) + 1, len(spoken) + 1], np.inf)
    total[0, 0] = 0.0
    for x, y in np.ndindex(distance.shape):
        steps = total[x, y + 1] + distance[x, y], total[x + 1, y] + distance[x, y], total[x, y] + 2 * distance[x, y]
        total[x + 1, y + 1] = min(steps)
    expected = total[-1, -1] / (len(mel) + len(spoken))
    found = distort([mel, mel[:1], mel[:0]], [spoken, spoken[:1], spoken[:0]])
    np.testing.assert_allclose(found, [expected, distance[0, 0], 0.0], rtol=1e-4)

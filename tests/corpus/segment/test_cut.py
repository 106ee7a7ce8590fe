import numpy as np
import pytest

from xtts_pipeline.corpus.segment.align import TextAlignment
from xtts_pipeline.corpus.segment.cut import Misfit, cut_aligned
from xtts_pipeline.corpus.segment.reference import Reference
from xtts_pipeline.corpus.segment.speech import RecordedSpeech

STRETCH_FRAMES = 50
FOREIGN = slice(STRETCH_FRAMES, 2 * STRETCH_FRAMES)


@pytest.mark.parametrize("taken_for_text", [[], [0], [-1], [0, 1, -1]])
def test_foreign_speech_is_cut_off_though_its_soft_edges_fit_the_text(taken_for_text: list[int]):
    starts = 2.5 * np.arange(3)
    stretches = np.stack([starts, starts + 2.0], axis=1)
    quiet = np.stack([np.append(0.0, stretches[:, 1]), np.append(starts, 7.5)], axis=1)
    mels = np.zeros((3 * STRETCH_FRAMES, 4), np.float32)
    frame_seconds = np.concatenate([start + 0.04 * np.arange(STRETCH_FRAMES) for start in starts])
    speech = RecordedSpeech(mels, frame_seconds, stretches, STRETCH_FRAMES * np.arange(3), quiet)
    words = np.array([0, STRETCH_FRAMES, 2 * STRETCH_FRAMES])
    reference = Reference(["Hello.", "Bye."], mels[: 2 * STRETCH_FRAMES], words, np.arange(3))
    is_foreign = np.zeros(len(mels), bool)
    is_foreign[FOREIGN] = True
    is_foreign[FOREIGN][taken_for_text] = False
    steps = np.ones(len(mels), int)
    steps[FOREIGN] = 0
    read_after = np.cumsum(steps)
    fits = np.stack([np.full(len(mels), 0.5), np.ones(len(mels))])
    alignment = TextAlignment(read_after - steps, read_after, is_foreign, np.zeros(len(mels)), fits)

    clips = cut_aligned(speech, reference, alignment, 10.0)

    assert [(clip.text, clip.problem) for clip in clips] == [("Hello.", None), ("", Misfit.NO_TEXT), ("Bye.", None)]


def test_sound_after_the_last_whole_word_is_kept_and_the_rest_of_the_text_has_no_sound():
    stretches = np.array([[0.0, 2.0]])
    mels = np.zeros((STRETCH_FRAMES, 4), np.float32)
    frame_seconds = 0.04 * np.arange(STRETCH_FRAMES)
    speech = RecordedSpeech(mels, frame_seconds, stretches, np.zeros(1, int), np.array([[0.0, 0.0], [2.0, 2.0]]))
    word_starts = STRETCH_FRAMES * np.arange(4) - [0, 2, 0, 0]
    reference = Reference(["hello", "and", "more"], np.tile(mels, (3, 1)), word_starts, np.array([0, 3]))
    read_after = 1 + np.arange(STRETCH_FRAMES)
    fits = np.stack([np.full(len(mels), 0.5), np.ones(len(mels))])
    is_foreign = np.zeros(len(mels), bool)
    alignment = TextAlignment(read_after - 1, read_after, is_foreign, np.zeros(len(mels)), fits)

    clips = cut_aligned(speech, reference, alignment, 10.0)

    assert [(clip.text, clip.problem) for clip in clips] == [("hello", None), ("and more", Misfit.NO_SOUND)]

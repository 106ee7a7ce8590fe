import numpy as np

from xtts_pipeline.corpus.segment.align import BAND_AHEAD, BAND_BACK, _best_path, _Graph


def test_a_text_of_one_sentence_that_goes_on_after_the_sound_is_read_up_to_there():
    generator = np.random.default_rng(0)
    frames, unread = BAND_BACK + 225, BAND_AHEAD - 70
    spoken_UD = generator.standard_normal((frames + unread, 8)).astype(np.float32)
    states = len(spoken_UD) + 1
    graph = _Graph(np.full(states, 30.0, np.float32), np.arange(frames) == 0, np.array([0, states - 1]))
    # The band holds the end of the text, but no path of two reference frames a recorded one reaches it.
    assert 2 * frames < states - 1
    path = _best_path(spoken_UD[:frames], spoken_UD, graph, np.inf)
    assert path.read_after.tolist() == list(range(1, frames + 1))

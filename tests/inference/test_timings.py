import numpy as np

from xtts_pipeline.inference.timings import timings_to_json


def test_words_are_what_spaces_separate_without_punctuation_at_their_ends():
    symbols = ["<begin>", "“", "d", "o", "n", "'", "t", ".", " ", "-", " ", "a", "<end>"]
    durations = np.array([2, 1, 3, 1, 1, 1, 2, 4, 5, 1, 1, 2, 8])
    timings = timings_to_json(symbols, durations, 0.01)

    assert timings["words"] == [
        {"word": "don't", "begin": 0.03, "end": 0.11},
        {"word": "a", "begin": 0.22, "end": 0.24},
    ]
    assert timings["tokens"][1] == {"symbol": "“", "begin": 0.02, "end": 0.03}
    assert timings["tokens"][-1]["end"] == 0.32


def test_blanks_between_symbols_end_no_word():
    symbols = ["<begin>", "<blank>", "a", "<blank>", "b", "<blank>", " ", "<blank>", "c", "<blank>", "<end>"]
    timings = timings_to_json(symbols, np.ones(11), 0.1)

    assert timings["words"] == [{"word": "ab", "begin": 0.2, "end": 0.5}, {"word": "c", "begin": 0.8, "end": 0.9}]

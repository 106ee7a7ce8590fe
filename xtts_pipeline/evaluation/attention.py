"""Count skipped and repeated tokens in attention, float [F, S]: decoder steps by tokens, each row sums to 1.

The focus of a step is the token with the largest weight. Only tokens that sound count: letters, digits, phonemes.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np

# A spoken token is the focus of a step or more. A skipped one gets under a tenth of a step, from its neighbours' tails.
SKIPPED_BELOW_STEPS = 0.1
# Attention heads look a few tokens ahead and back. A repeated word starts further back.
REPEATED_BEYOND_TOKENS = 3


def sounding_mask(symbols: Sequence[str]) -> np.ndarray:
    """Return which symbols sound, bool [S].

    True for one character that is a letter or a number. False for spaces, punctuation, stress, length and tone marks,
    and for names such as `<begin>`.
    """
    categories = [unicodedata.category(symbol) if len(symbol) == 1 else "" for symbol in symbols]
    return np.array([category[:1] in {"L", "N"} and category != "Lm" for category in categories], bool)


def skipped_tokens(attention: np.ndarray, sounding: np.ndarray) -> np.ndarray:
    """Return the sounding tokens that are never the focus and weigh under 0.1 in total: int [tokens], ascending."""
    was_focus = np.zeros(attention.shape[1], bool)
    was_focus[attention.argmax(axis=1)] = True
    is_faint = attention.sum(axis=0) < SKIPPED_BELOW_STEPS
    return np.flatnonzero(sounding & ~was_focus & is_faint)


def repeated_tokens(attention: np.ndarray, sounding: np.ndarray) -> np.ndarray:
    """Return the tokens that are the focus again after a focus over 3 tokens further on: int [tokens], ascending.

    Steps whose focus does not sound are left out: during a pause attention may rest anywhere.
    """
    focus = attention.argmax(axis=1)
    focus = focus[sounding[focus]]
    repeated = []
    for token in np.unique(focus):
        steps = np.flatnonzero(focus == token)
        if focus[steps[0] : steps[-1] + 1].max() > token + REPEATED_BEYOND_TOKENS:
            repeated.append(int(token))
    return np.array(repeated, int)

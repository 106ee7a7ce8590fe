"""Find texts and sounds that a corpus has twice, exactly or nearly. No TensorFlow."""

import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

# Texts that share their first or last words are compared.
SHARED_WORDS = 4
MOST_COMPARED = 40
LIKE_TEXT = 0.9
# Sounds of nearly the same length are compared, by cepstra averaged over this many parts.
LIKE_LENGTH = 0.03
PARTS = 32
LIKE_SOUND = 0.97


@dataclass(frozen=True)
class DuplicateGroup:
    """Clips, by their numbers, that are alike; `likeness` is that of the least alike pair that joined them."""

    kind: str
    clips: tuple[int, ...]
    likeness: float


def find_duplicates(texts: Sequence[str], cepstra: Sequence[np.ndarray]) -> list[DuplicateGroup]:
    """Return the groups of clips of the same sound, then of the same text, then of nearly the same text.

    Case and punctuation of a text do not count. A pair of clips with the same sound is in no later group.
    """
    words = [words_of(text) for text in texts]
    sounds = _same_sounds(cepstra)
    seen = {(first, second) for first, second, _ in sounds}
    exact, near = _same_texts(words)
    kinds = (("sound", sounds), ("text", exact), ("near text", near))
    groups = []
    for kind, pairs in kinds:
        groups += _groups(kind, pairs if kind == "sound" else [pair for pair in pairs if pair[:2] not in seen])
    return groups


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text without case: runs of letters, their marks (vowels of many scripts) and numbers."""
    kept = "".join(letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in text.casefold())
    return tuple(kept.split())


Pair = tuple[int, int, float]


def _same_texts(words: Sequence[tuple[str, ...]]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs of the same words, one fewer than clips in a group, and the pairs of nearly the same words."""
    firsts: dict[tuple[str, ...], int] = {}
    exact: list[Pair] = []
    for number, text in enumerate(words):
        first = firsts.setdefault(text, number)
        if first != number and text:
            exact.append((first, number, 1.0))
    beginnings: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for text, number in firsts.items():
        if len(text) > SHARED_WORDS:
            beginnings["first", *text[:SHARED_WORDS]].append(number)
            beginnings["last", *text[-SHARED_WORDS:]].append(number)
    near: dict[tuple[int, int], float] = {}
    for numbers in beginnings.values():
        for place, one in enumerate(numbers[:MOST_COMPARED]):
            for other in numbers[place + 1 : MOST_COMPARED]:
                matcher = SequenceMatcher(None, words[one], words[other], autojunk=False)
                if matcher.real_quick_ratio() >= LIKE_TEXT and (ratio := matcher.ratio()) >= LIKE_TEXT:
                    near[one, other] = ratio
    return exact, [(*pair, ratio) for pair, ratio in near.items()]


def _same_sounds(cepstra: Sequence[np.ndarray]) -> list[Pair]:
    lengths = np.array([len(clip) for clip in cepstra])
    order = np.argsort(lengths, kind="stable")
    prints = np.stack([_fingerprint(cepstra[at]) for at in order])
    pairs = []
    ends = np.searchsorted(lengths[order], lengths[order] * (1 + LIKE_LENGTH), side="right")
    for place, (at, end) in enumerate(zip(order, ends, strict=True)):
        likeness = prints[place + 1 : end] @ prints[place]
        for found in np.flatnonzero(likeness >= LIKE_SOUND):
            other = order[place + 1 + found]
            pairs.append((int(min(at, other)), int(max(at, other)), float(likeness[found])))
    return pairs


def _fingerprint(cepstra: np.ndarray) -> np.ndarray:
    """Return a unit vector that knows neither the clip's level nor its length in steps."""
    edges = np.linspace(0, len(cepstra), PARTS + 1)
    sums = np.concatenate([np.zeros((1, cepstra.shape[1])), np.cumsum(cepstra, axis=0, dtype=np.float64)])
    places = np.arange(len(sums))
    at_edges = np.stack([np.interp(edges, places, column) for column in sums.T], axis=1)
    parts = np.diff(at_edges, axis=0)
    parts -= parts.mean(axis=0)
    flat: np.ndarray = parts.astype(np.float32).ravel()
    return flat / max(float(np.linalg.norm(flat)), 1e-9)


def _groups(kind: str, pairs: Sequence[Pair]) -> list[DuplicateGroup]:
    """Join pairs that share a clip."""
    clips = sorted({clip for pair in pairs for clip in pair[:2]})
    if not clips:
        return []
    place = {clip: number for number, clip in enumerate(clips)}
    ends = [place[one] for one, _, _ in pairs], [place[other] for _, other, _ in pairs]
    _, group_of = connected_components(
        coo_matrix((np.ones(len(pairs)), ends), (len(clips), len(clips))), directed=False
    )
    members, likeness = defaultdict[int, list[int]](list), defaultdict[int, float](lambda: 1.0)
    for clip in clips:
        members[group_of[place[clip]]].append(clip)
    for one, _, pair_likeness in pairs:
        group = group_of[place[one]]
        likeness[group] = min(likeness[group], pair_likeness)
    return [DuplicateGroup(kind, tuple(members[group]), likeness[group]) for group in members]

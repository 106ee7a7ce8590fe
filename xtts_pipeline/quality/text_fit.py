"""How well each clip's sound fits its text, by a hidden Markov model that is trained on the clips themselves.

As a recogniser's flat start (Young et al., The HTK Book): each symbol has a mean cepstrum, first from a uniform
alignment, then from Viterbi paths. A wrong text forces symbols onto frames of other sounds. NumPy only.
"""

from collections.abc import Iterator, Sequence

import joblib
import numpy as np

from xtts_pipeline.system.processes import in_processes

TRAINING_CLIPS, ITERATIONS = 300, 5
BATCH_CLIPS = 32
TASK_CLIPS = 16 * BATCH_CLIPS
# Steps times states, 5 bytes each, of a clip that is measured, and of a batch.
MOST_CELLS = 1 << 27
# Letters that are not spoken, and symbols shorter than a step, are skipped; a log probability.
SKIP_COST = 3.0
IMPOSSIBLE = np.float32(-1e9)
# Below the fit of any path. A text that is too long for its clip has none.
NO_PATH = -1e4
EDGE = "\0"  # the silence before and after the text


def text_fits(texts: Sequence[str], cepstra: Sequence[np.ndarray], jobs: int = 1, seed: int = 0) -> np.ndarray:
    """Return the fit of each clip, float64 [clips]: its mean log likelihood per step over that of any text.

    `cepstra` are those of `SoundMeasures`. A symbol is one character. Processes share the work; their number does not
    change the result. A clip that would take over MOST_CELLS, of some minutes, gets the median fit.
    """
    is_measured = np.array(
        [len(clip) * (len(text) + 2) <= MOST_CELLS for text, clip in zip(texts, cepstra, strict=True)]
    )
    if not is_measured.all():
        fits, rows = np.zeros(len(texts)), np.flatnonzero(is_measured).tolist()
        if rows:
            fits[rows] = text_fits([texts[row] for row in rows], [cepstra[row] for row in rows], jobs, seed)
            fits[~is_measured] = np.median(fits[rows])
        return fits
    symbols = {symbol: number for number, symbol in enumerate(sorted({EDGE}.union(*map(set, texts))))}
    states = [np.array([symbols[symbol] for symbol in f"{EDGE}{text}{EDGE}"]) for text in texts]
    order = np.random.default_rng(seed).permutation(len(texts))[:TRAINING_CLIPS]
    chosen, chosen_states = [_features(cepstra[at]) for at in order], [states[at] for at in order]
    paths = [
        clip_states[np.arange(len(clip)) * len(clip_states) // len(clip)]
        for clip, clip_states in zip(chosen, chosen_states, strict=True)
    ]
    for _ in range(ITERATIONS):
        model = _Symbols(chosen, paths, len(symbols))
        paths = _best_paths(model, chosen, chosen_states)
    model = _Symbols(chosen, paths, len(symbols))
    by_length = np.argsort([len(clip) for clip in cepstra], kind="stable")
    tasks = [by_length[start : start + TASK_CLIPS] for start in range(0, len(by_length), TASK_CLIPS)]
    score = joblib.delayed(_scores)
    found = in_processes(
        jobs, [score(model, [cepstra[at] for at in task], [states[at] for at in task]) for task in reversed(tasks)]
    )
    fits = np.zeros(len(texts))
    for task, scores in zip(reversed(tasks), found, strict=True):
        fits[task] = scores
    has_path = fits > NO_PATH
    fits[~has_path] = fits[has_path].min(initial=0.0) - 1.0
    return fits


def _features(cepstra: np.ndarray) -> np.ndarray:
    """Return cepstra without the clip's mean and with their slopes, float32 [steps, features]."""
    static = cepstra.astype(np.float32)
    static -= static.mean(axis=0)
    padded = np.pad(static, ((2, 2), (0, 0)), mode="edge")
    return np.concatenate([static, padded[4:] - padded[:-4]], axis=1)


class _Symbols:
    """A Gaussian of each symbol, with one variance for all."""

    def __init__(self, features: Sequence[np.ndarray], paths: Sequence[np.ndarray], count: int) -> None:
        frames, symbols = np.concatenate(features), np.concatenate(paths)
        counts = np.bincount(symbols, minlength=count).astype(np.float32)
        sums = np.stack([frames[symbols == symbol].sum(axis=0) for symbol in range(count)])
        # A rare symbol stays near the mean of all.
        overall = frames.mean(axis=0)
        self._means = (sums + 10 * overall) / (counts + 10)[:, None]
        self._scale = 1 / np.sqrt(np.mean(np.square(frames - self._means[symbols]), axis=0) + 1e-6)
        self._shares = (counts + 1) / (counts + 1).sum()

    def log_likelihoods(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of each symbol, float32 [frames, symbols], and of the mixture of all, [frames]."""
        scaled, means = frames * self._scale, self._means * self._scale
        squares = np.square(scaled).sum(axis=1)[:, None] + np.square(means).sum(axis=1) - 2 * scaled @ means.T
        likelihoods = -0.5 * squares
        largest = likelihoods.max(axis=1)
        mixture = np.log(np.exp(likelihoods - largest[:, None]) @ self._shares) + largest
        return likelihoods, mixture


def _batches(
    model: _Symbols, features: Sequence[np.ndarray], states: Sequence[np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield clips of like length: numbers, likelihoods of states [T, B, S], steps, state counts, sums of mixtures."""
    order = np.argsort([len(clip) for clip in features], kind="stable")
    while len(order):
        rows = order[:BATCH_CLIPS]
        while len(rows) > 1 and _cells_of(rows, features, states) > MOST_CELLS:
            rows = rows[: len(rows) // 2]
        order = order[len(rows) :]
        steps = np.array([len(features[row]) for row in rows])
        sizes = np.array([len(states[row]) for row in rows])
        emissions = np.full((steps.max(), len(rows), sizes.max()), IMPOSSIBLE, np.float32)
        mixture = np.zeros(len(rows))
        for place, row in enumerate(rows):
            likelihoods, mixed = model.log_likelihoods(features[row])
            emissions[: steps[place], place, : sizes[place]] = likelihoods[:, states[row]]
            mixture[place] = mixed.sum()
        yield rows, emissions, steps, sizes, mixture


def _cells_of(rows: np.ndarray, features: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> int:
    """Return the steps times states of a batch, padded."""
    return len(rows) * max(len(features[row]) for row in rows) * max(len(states[row]) for row in rows)


def _viterbi(emissions: np.ndarray, steps: np.ndarray, sizes: np.ndarray, back: np.ndarray | None = None) -> np.ndarray:
    """Return the log likelihood of each clip's best path, float32 [B]; `back` [T, B, S] receives its moves backward."""
    clips = np.arange(len(steps))
    # Two more states before the first: nothing comes from there.
    scores = np.full((len(steps), emissions.shape[2] + 2), IMPOSSIBLE, np.float32)
    scores[:, 2] = emissions[0, :, 0]
    ends = np.full(len(steps), IMPOSSIBLE, np.float32)
    ends[steps == 1] = scores[clips, sizes + 1][steps == 1]
    for step in range(1, len(emissions)):
        stay, go, skip = scores[:, 2:], scores[:, 1:-1], scores[:, :-2] - SKIP_COST
        best = np.maximum(stay, go)
        if back is not None:
            np.greater(go, stay, out=back[step].view(bool))
            back[step][skip > best] = 2
        np.maximum(best, skip, out=best)
        np.add(best, emissions[step], out=scores[:, 2:])
        is_last = steps == step + 1
        if is_last.any():
            ends[is_last] = scores[clips, sizes + 1][is_last]
    return ends


def _scores(model: _Symbols, cepstra: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> np.ndarray:
    fits = np.zeros(len(cepstra))
    for rows, emissions, steps, sizes, mixture in _batches(model, [_features(clip) for clip in cepstra], states):
        fits[rows] = (_viterbi(emissions, steps, sizes) - mixture) / steps
    return fits


def _best_paths(model: _Symbols, features: Sequence[np.ndarray], states: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the symbol of each step of each clip."""
    paths: list[np.ndarray] = [np.zeros(0, np.int64)] * len(features)
    for rows, emissions, steps, sizes, _ in _batches(model, features, states):
        back = np.zeros(emissions.shape, np.int8)
        _viterbi(emissions, steps, sizes, back)
        state = sizes - 1
        clips = np.arange(len(rows))
        visited = np.zeros((len(rows), len(emissions)), np.int64)
        for step in range(len(emissions) - 1, -1, -1):
            visited[:, step] = state
            state = np.where(step < steps, np.maximum(state - back[step, clips, state], 0), state)
        for place, row in enumerate(rows):
            paths[row] = states[row][visited[place, : steps[place]]]
    return paths

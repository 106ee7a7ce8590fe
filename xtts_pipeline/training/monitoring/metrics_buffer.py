"""The metrics of the steps since the last report: on the device until somebody asks, and part of a checkpoint while they wait."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xtts_pipeline.training.checkpoints.state import window_from_state, window_to_state

State = tuple[tuple[float | None, ...], ...]


class MetricsWindow:
    """Vectors of the named metrics, one a step; `carried` are those of a process before this one."""

    def __init__(self, names: Sequence[str], carried: State = ()) -> None:
        self._names = tuple(names)
        self._read = window_from_state(carried, len(self._names))
        self._carried = len(self._read)
        self._waiting: list[tf.Tensor] = []

    def __len__(self) -> int:
        return len(self._read) + len(self._waiting)

    def add(self, vector: tf.Tensor) -> None:
        """Take in a step's float32 [len(names)], unread."""
        self._waiting.append(vector)

    def read(self) -> np.ndarray:
        """Return float32 [steps, len(names)]: what waits on the device is read back in one copy."""
        if self._waiting:
            self._read = np.concatenate([self._read, tf.stack(self._waiting).numpy()])
            self._waiting.clear()
        return self._read

    def state(self) -> State:
        """Return the vectors as a checkpoint keeps them."""
        return window_to_state(self.read())

    def column(self, name: str) -> np.ndarray:
        """Return one metric, float64 [steps]."""
        return self.read()[:, self._names.index(name)].astype(np.float64)

    def means(self, is_counted: np.ndarray) -> dict[str, float]:
        """Return the mean of each metric over the steps that count, bool [steps]; NaN where none does."""
        vectors = self.read().astype(np.float64)[is_counted]
        means = vectors.mean(axis=0) if len(vectors) else np.full(len(self._names), np.nan)
        return dict(zip(self._names, means.tolist(), strict=True))

    def own(self, name: str) -> float:
        """Return the sum of a metric over the steps that this process took."""
        return float(self.column(name)[self._carried :].sum())

    def clear(self) -> None:
        """Begin a new window."""
        self._read = self._read[:0]
        self._carried = 0
        self._waiting.clear()

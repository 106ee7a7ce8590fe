"""Keep the metrics of the steps since the last report: on the device until they are read, and in checkpoints."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

State = tuple[tuple[float | None, ...], ...]


class MetricsBuffer:
    """Vectors of the named metrics, one per step."""

    def __init__(self, names: Sequence[str], state: State = ()) -> None:
        """Begin with the steps of an earlier process, as `to_state` returned them."""
        self._names = tuple(names)
        rows = [[math.nan if number is None else number for number in vector] for vector in state]
        self._read = np.array(rows, np.float32).reshape(-1, len(self._names))
        self._restored = len(self._read)
        self._unread: list[tf.Tensor] = []

    def __len__(self) -> int:
        return len(self._read) + len(self._unread)

    def add(self, vector: tf.Tensor) -> None:
        """Add a step's float32 [len(names)] without reading it back."""
        self._unread.append(vector)

    def read(self) -> np.ndarray:
        """Return float32 [steps, len(names)]; what is still on the device is read back in one copy."""
        if self._unread:
            self._read = np.concatenate([self._read, tf.stack(self._unread).numpy()])
            self._unread.clear()
        return self._read

    def to_state(self) -> State:
        """Return the vectors as JSON can hold them: exact, with None for NaN and infinities."""
        return tuple(
            tuple(number if math.isfinite(number) else None for number in vector)
            for vector in self.read().astype(np.float64).tolist()
        )

    def column(self, name: str) -> np.ndarray:
        """Return one metric, float64 [steps]."""
        return self.read()[:, self._names.index(name)].astype(np.float64)

    def means(self, is_counted: np.ndarray) -> dict[str, float]:
        """Return the mean of each metric over the steps where bool [steps] is True; NaN if there are none."""
        vectors = self.read().astype(np.float64)[is_counted]
        means = vectors.mean(axis=0) if len(vectors) else np.full(len(self._names), np.nan)
        return dict(zip(self._names, means.tolist(), strict=True))

    def sum_of_process(self, name: str) -> float:
        """Return the sum of a metric over the steps of this process, without restored ones."""
        return float(self.column(name)[self._restored :].sum())

    def clear(self) -> None:
        """Remove all steps."""
        self._read = self._read[:0]
        self._restored = 0
        self._unread.clear()

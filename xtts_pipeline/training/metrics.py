"""A run's numbers on disk: metrics.jsonl for programs, TensorBoard event files for people."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import tensorflow as tf


class MetricsWriter:
    """Appends one line a report to metrics.jsonl and the same numbers to TensorBoard; a context manager that flushes both."""

    def __init__(self, run: Path) -> None:
        self._file = (run / "metrics.jsonl").open("a", encoding="utf-8", buffering=1)
        self._run = run
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        # What tf.summary.scalar would attach; that function itself needs the tensorboard package, which only the viewer should.
        self._metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"), data_class="DATA_CLASS_SCALAR"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        for writer in self._writers.values():
            writer.close()

    def write(self, step: int, split: str, numbers: Mapping[str, float]) -> None:
        """Record the numbers of `split` at `step`; what is not finite is `null` in the JSON line."""
        line = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        self._file.write(json.dumps({"step": step, "split": split, **line}, allow_nan=False) + "\n")
        if split not in self._writers:
            self._writers[split] = tf.summary.create_file_writer(str(self._run / "tensorboard" / split))
        with self._writers[split].as_default(step=step):
            for name, number in numbers.items():
                tf.summary.write(name, tf.constant(number, tf.float32), metadata=self._metadata)

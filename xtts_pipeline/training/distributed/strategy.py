"""Choose the devices and processes of a run, and exchange values between the processes.

Knows nothing of models. docs/clusters.md shows how to use several devices and explains the design.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.data.batching import rows_of
from xtts_pipeline.errors import ConfigError, TrainingError
from xtts_pipeline.training.distributed.cluster import TF_CONFIG, Cluster
from xtts_pipeline.training.distributed.rendezvous import wait_for_workers

# TensorFlow's errors in the other processes when one of them, or the connection to it, is lost.
_LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)
# Any number that the strategy, which counts from 1, does not reach.
_GROUP_KEY = 2_000_000_011


class Distribution:
    """The devices of a run: `replicas` in all, each with a copy of every variable, on `workers` processes.

    `worker` is the index of this process; `strategy` is None with a single device.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None, workers: int = 1, worker: int = 0) -> None:
        self.strategy, self.workers, self.worker = strategy, workers, worker
        self.replicas: int = 1 if strategy is None else strategy.num_replicas_in_sync
        self._sum = cache(self._compile_sum)

    def __str__(self) -> str:
        return f"{self.replicas} devices in {self.workers} {'process' if self.workers == 1 else 'processes'}"

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run and synthesizes its sentences."""
        return self.worker == 0

    @property
    def local_replicas(self) -> int:
        """The number of this process's devices."""
        return self.replicas // self.workers

    def scope(self) -> Any:
        """Return the context for creating variables, so that each device has its copy."""
        return nullcontext() if self.strategy is None else self.strategy.scope()

    def rows_of_worker(self, rows: int) -> range:
        """Return the rows of a whole batch that this process trains on."""
        share = rows // self.workers
        return range(self.worker * share, (self.worker + 1) * share)

    def batch_rows(self, signatures: Sequence[Any]) -> list[range] | None:
        """Return the rows of each signature's whole batch that this process trains on; None if it is the only one."""
        return None if self.workers == 1 else [self.rows_of_worker(rows_of(each)) for each in signatures]

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the sum over all processes, float64 [n]. Each must call it with n values; it waits for the slowest.

        Raises tf.errors.OpError if a process is lost: see `explaining_lost_workers`.
        """
        vector = np.asarray(values, np.float64)
        return vector if self.workers == 1 else self._sum(len(vector))(tf.constant(vector)).numpy()

    def broadcast(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the chief's values in every process, float64 [n]."""
        vector = np.asarray(values, np.float64)
        return self.sum(vector if self.is_chief else np.zeros_like(vector))

    def barrier(self) -> None:
        """Wait until every process has called it."""
        self.sum([0.0])

    def check_same(self, what: str, content: str) -> None:
        """Raise ConfigError unless the chief has the same content."""
        # 48 bits are exact in a float64.
        digest = float(int.from_bytes(hashlib.sha256(content.encode()).digest()[:6], "big"))
        if self.broadcast([digest])[0] != digest:
            raise ConfigError(
                f"worker {self.worker}: {what} differs from the chief's; "
                "start the same command on the same cache everywhere"
            )

    @contextmanager
    def explaining_lost_workers(self) -> Iterator[None]:
        """Turn TensorFlow's errors after the loss of another process into a TrainingError of one line."""
        try:
            yield
        except _LOST as error:
            if self.workers == 1:
                raise
            raise TrainingError(
                f"worker {self.worker} of {self.workers}: another worker is gone ({_reason(error.message)}); "
                "the run ends on all of them; start it again on all with --resume, "
                "and it goes on from the last checkpoint"
            ) from None

    def _compile_sum(self, length: int) -> Any:
        """Return the compiled sum of `length` values, over the hosts' network whatever the devices are."""

        @tf.function(input_signature=[tf.TensorSpec([length], tf.float64)], autograph=False)
        def sum_over_workers(values: tf.Tensor) -> tf.Tensor:
            return tf.raw_ops.CollectiveReduceV2(
                input=values,
                group_size=self.workers,
                group_key=_GROUP_KEY,
                instance_key=length,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                communication_hint="RING",
            )

        def on_host(values: tf.Tensor) -> tf.Tensor:
            with tf.device(f"/job:worker/task:{self.worker}/device:CPU:0"):
                return sum_over_workers(values)

        return on_host


SINGLE_DEVICE = Distribution()


def choose_distribution(
    cluster: Cluster | None = None, devices: int | None = None, log: Callable[[str], None] = print
) -> Distribution:
    """Return the distribution over all GPUs of this process, or `devices` of them, and the other workers of a cluster.

    Without a GPU, the CPU is split into `devices` logical devices. Call it before TensorFlow computes anything.
    The workers of a cluster wait for each other; `log` receives a line that names the missing ones.
    Raises ConfigError if there are fewer GPUs than asked for, TrainingError if the workers cannot connect.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and devices is not None:
        if devices > len(gpus):
            raise ConfigError(f"--devices {devices}: this machine has {len(gpus)} GPUs; ask for {len(gpus)} or fewer")
        tf.config.set_visible_devices(gpus[:devices], "GPU")
    if cluster is not None:
        wait_for_workers(cluster, log)
        return _join_cluster(cluster)
    count = devices or len(gpus) or 1
    if count == 1:
        return SINGLE_DEVICE
    if not gpus:
        parts = [tf.config.LogicalDeviceConfiguration()] * count
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    names = [f"{'GPU' if gpus else 'CPU'}:{number}" for number in range(count)]
    return Distribution(tf.distribute.MirroredStrategy(names))


def _join_cluster(cluster: Cluster) -> Distribution:
    os.environ[TF_CONFIG] = cluster.to_tf_config()
    workers = len(cluster.workers)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except tf.errors.OpError as error:
        found = f"the {workers} workers did not come together ({_reason(error.message)})"
        raise TrainingError(f"worker {cluster.index}: {found}; start the same command again on all of them") from None
    return Distribution(strategy, workers, cluster.index)


def _reason(message: str) -> str:
    """Return the line with the cause of TensorFlow's message; an error in a graph begins with where it was traced."""
    lines = message.splitlines()
    return next((line for line in lines if "aborted by" in line), lines[0] if lines else "no reason was given")[:160]

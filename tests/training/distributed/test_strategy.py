"""The exchange between processes, tested in one process with a fake sum."""

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from tests.model.conftest import SPEC
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.batching import batch_signature, with_rows
from xtts_pipeline.errors import ConfigError, TrainingError
from xtts_pipeline.training.distributed.step import DistributedStep, describe_distribution
from xtts_pipeline.training.distributed.strategy import SINGLE_DEVICE, Distribution

SIGNATURE = batch_signature(SPEC, 12, with_language=True)


class FakeWorker(Distribution):
    """One of several workers; `chief` are the values that the chief adds to a sum."""

    def __init__(self, workers: int, worker: int, chief: Sequence[float] = ()) -> None:
        super().__init__(None, workers, worker)
        self.replicas, self.chief = workers, np.array(chief)

    def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
        return np.asarray(values, np.float64) + self.chief


def test_each_row_of_a_batch_belongs_to_one_worker() -> None:
    rows = [Distribution(None, 3, worker).rows_of_worker(12) for worker in range(3)]
    assert [row for part in rows for row in part] == list(range(12))
    assert {len(part) for part in rows} == {4}


def test_content_that_differs_from_the_chiefs_is_refused() -> None:
    said: list[np.ndarray] = []

    class Chief(FakeWorker):
        def sum(self, values: Sequence[float] | np.ndarray) -> np.ndarray:
            said.append(np.asarray(values))
            return said[-1]

    Chief(2, 0).check_same("the cache", "one")
    FakeWorker(2, 1, said[0]).check_same("the cache", "one")
    with pytest.raises(
        ConfigError, match="worker 1: the cache differs from the chief's; start the same command on the same cache"
    ):
        FakeWorker(2, 1, said[0]).check_same("the cache", "another")
    SINGLE_DEVICE.check_same("the cache", "whatever")


IN_A_GRAPH = (
    "Graph execution error:\n\nDetected at node CollectiveReduceV2\n"
    "Collective ops is aborted by: Connection reset by peer\nMore"
)


@pytest.mark.parametrize("message", ["Connection reset by peer\nand a long trace", IN_A_GRAPH])
def test_a_lost_worker_is_an_error_of_one_line_unless_there_is_one_process(message: str) -> None:
    lost = tf.errors.UnavailableError(None, None, message)
    found = (
        r"worker 1 of 3: another worker is gone \((.* by: )?Connection reset by peer\); "
        r"the run ends on all of them; .* with --resume"
    )
    with pytest.raises(TrainingError, match=found), FakeWorker(3, 1).explaining_lost_workers():
        raise lost
    with pytest.raises(tf.errors.UnavailableError), SINGLE_DEVICE.explaining_lost_workers():
        raise lost


def test_the_description_names_devices_batches_and_learning_rate() -> None:
    text = describe_distribution(
        FakeWorker(4, 0), [SIGNATURE, with_rows(SIGNATURE, 8)], TrainingConfig(learning_rate=5e-4)
    )
    assert text == "4 devices in 4 processes; batches of 12, 8 in all, 3, 2 on each; learning rate 0.0005"


def test_with_rows_changes_only_the_rows_of_a_signature() -> None:
    part = with_rows(SIGNATURE, 3)
    assert part.speaker is None
    assert {spec.shape[0] for spec in part if spec is not None} == {3}
    assert [spec.shape[1:] for spec in part if spec is not None] == [
        spec.shape[1:] for spec in SIGNATURE if spec is not None
    ]


def test_a_single_device_has_no_distributed_step() -> None:
    with pytest.raises(ValueError, match="found a single device, expected several"):
        DistributedStep(None, [SIGNATURE], SINGLE_DEVICE)  # type: ignore[arg-type]

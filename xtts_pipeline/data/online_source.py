"""What training reads without a cache: the corpus itself, surveyed, in the batches that its cache would give."""

from dataclasses import dataclass

import tensorflow as tf

from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.cached import EpochPlace
from xtts_pipeline.data.online import NativeDatasets
from xtts_pipeline.data.source import Source
from xtts_pipeline.errors import CorpusError, XttsError


@dataclass(frozen=True)
class NativeSource(Source):
    """A corpus in the place of a cache: `folder` is the corpus, `manifest` what its cache's would say."""

    datasets: NativeDatasets

    def training_dataset(self, config: Config, bucket: int, place: EpochPlace) -> tf.data.Dataset:  # noqa: ARG002 (the survey has the settings)
        """Return the endless training batches of a bucket from a place on; the settings are those of the survey."""
        return self.datasets.training(bucket, place)

    def validation_dataset(self, bucket: int, batch_size: int) -> tf.data.Dataset:
        """Return the validation records of a bucket once."""
        return self.datasets.validation(bucket, batch_size)

    def bucket_clips(self, config: Config, bucket: int, place: EpochPlace, batches: int) -> list[tuple[str, bool]]:  # noqa: ARG002 (as above)
        """Return the ids of so many batches from a place on; a survey accepts finite sound alone."""
        return [(name, True) for name in self.datasets.training_ids(bucket, place, batches)]

    def bucket_left_out(self, config: Config, bucket: int, place: EpochPlace) -> list[str]:  # noqa: ARG002 (as above)
        """Return the ids of the clips of a bucket that no batch of the epoch of a place holds."""
        return self.datasets.left_out_ids(bucket, place)

    @property
    def wait_advice(self) -> str:
        """What to do where making the clips takes longer than the step."""
        return f"a cache is made once and read many times as fast: xtts preprocess --data {self.folder}"

    def unreadable(self, found: str) -> XttsError:
        """Return the error for a clip that could be read when it was surveyed."""
        return CorpusError(
            f"{self.folder}: a clip cannot be read any more ({found}); has the corpus changed? run again"
        )

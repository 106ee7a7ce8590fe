"""The acoustic model as what a run trains."""

from collections.abc import Mapping

import tensorflow as tf

from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.source import Source
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.acoustic.validation import AcousticValidation
from xtts_pipeline.training.checkpoints.files import Checkpoint, build_network
from xtts_pipeline.training.checkpoints.state import Origin, RunState
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.init_from import copy_weights
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.monitoring.warnings import AlignmentMonitor
from xtts_pipeline.training.task import Task


class AcousticTask(Task):
    """Text to mel frames, in one signature for each bucket of the source."""

    _alignment: AlignmentMonitor  # from `load_state` on

    def __init__(self, config: Config, source: Source, distribution: Distribution) -> None:
        self._config, self._source, self._distribution = config, source, distribution
        self._identity = source.identity()
        precision = tf.dtypes.as_dtype(config.training.product_type)
        self.signatures = bucket_signatures(self._identity, source.specs, config.training, distribution.replicas)
        with distribution.scope():
            self.network, self.average = (build_network(self._identity, config, precision) for _ in range(2))
            self.step = AcousticStep(self.network, self.average, config.training, self.signatures)

    def open_validation(self, monitor: CompilationMonitor) -> AcousticValidation | None:
        """Return the validation by the EMA network."""
        if not self._source.validation_clips:
            return None
        return AcousticValidation(
            self._source, self._config, self.average, self.signatures, monitor, self._distribution
        )

    @property
    def aligned_at_step(self) -> int | None:
        """The first report in which the aligner has found the text."""
        return self._alignment.aligned_at_step

    def copy_weights(self, base: Checkpoint) -> Origin:
        """Copy weights by name, and table rows by the names of their symbols, speakers and languages."""
        return copy_weights(self.network, self.average, base, self._config, self._identity)

    def load_state(self, state: RunState) -> None:
        """Continue the watch on the alignment."""
        self._alignment = AlignmentMonitor(self._config.training, state.aligned_at_step, state.reported_step)

    def check_report(self, step: int, numbers: Mapping[str, float]) -> list[str]:
        """Return the warning about frames that do not align with tokens."""
        return self._alignment.check(step, numbers)

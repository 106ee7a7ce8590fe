"""The acoustic model as what a run trains."""

from collections.abc import Mapping

import tensorflow as tf

from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.training.acoustic.step import AcousticStep
from xtts_pipeline.training.acoustic.validation import AcousticValidation
from xtts_pipeline.training.checkpoints.files import Checkpoint, build_network
from xtts_pipeline.training.checkpoints.state import Origin, RunState
from xtts_pipeline.training.context import RunContext
from xtts_pipeline.training.init_from import copy_weights
from xtts_pipeline.training.monitoring.warnings import AlignmentMonitor
from xtts_pipeline.training.task import Task


class AcousticTask(Task):
    """Text to mel frames, in one signature for each bucket of the source."""

    def __init__(self, context: RunContext) -> None:
        config, source, distribution = context.config, context.source, context.distribution
        self._identity, self._config = source.identity(), config
        precision = tf.dtypes.as_dtype(config.training.precision)
        self.signatures = bucket_signatures(self._identity, source.specs, config.training, distribution.replicas)
        with distribution.scope():
            self.network, self.average = (build_network(self._identity, config, precision) for _ in range(2))
            self.step = AcousticStep(self.network, self.average, config.training, self.signatures)
        validation = (source, config, self.average, self.signatures, context.monitor, distribution)
        self.validation = AcousticValidation(*validation) if source.validation_clips else None
        self._alignment = AlignmentMonitor(config.training)

    @property
    def aligned_at_step(self) -> int | None:
        """The first report with aligned attention."""
        return self._alignment.aligned_at_step

    @property
    def parameter_count(self) -> int:
        """The number of the network's parameters."""
        return self.network.parameter_count

    def copy_weights(self, base: Checkpoint) -> Origin:
        """Copy weights by name, and table rows by the names of their symbols, speakers and languages."""
        return copy_weights(self.network, self.average, base, self._config, self._identity)

    def load_state(self, state: RunState) -> None:
        """Continue the watch on the alignment too."""
        super().load_state(state)
        self._alignment = AlignmentMonitor(self._config.training, state.aligned_at_step, state.reported_step)

    def check_report(self, step: int, numbers: Mapping[str, float]) -> list[str]:
        """Return the warnings about attention that does not align."""
        return self._alignment.check(step, numbers)

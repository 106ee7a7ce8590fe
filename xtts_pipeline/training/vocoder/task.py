"""The vocoder as what a run trains."""

from xtts_pipeline.config.schema import Config
from xtts_pipeline.data.batching import with_rows
from xtts_pipeline.data.schedule import batch_parts
from xtts_pipeline.data.source import Source
from xtts_pipeline.data.waves import WaveSource
from xtts_pipeline.training.checkpoints.files import Checkpoint, build_generator
from xtts_pipeline.training.checkpoints.state import Origin
from xtts_pipeline.training.checkpoints.variables import named_variables
from xtts_pipeline.training.distributed.strategy import Distribution
from xtts_pipeline.training.init_from import copy_weights
from xtts_pipeline.training.monitoring.compilations import CompilationMonitor
from xtts_pipeline.training.task import Task
from xtts_pipeline.training.vocoder.step import VocoderStep
from xtts_pipeline.training.vocoder.validation import VocoderValidation

_DISCRIMINATORS = "discriminators."


class VocoderTask(Task):
    """Mel frames to sound, on crops of one shape."""

    def __init__(self, config: Config, source: Source, distribution: Distribution) -> None:
        if not isinstance(source, WaveSource):
            raise TypeError(f"found a {type(source).__name__}, expected a WaveSource")
        batch_parts(config.training, distribution.replicas)  # raises if the devices cannot share a batch
        self._config, self._source, self._distribution = config, source, distribution
        self.signatures = [source.signature(config.training.clips_per_batch)]
        with distribution.scope():
            self.network, self._average = build_generator(config), build_generator(config)
            self.step: VocoderStep = VocoderStep(self.network, self._average, config, self.signatures)

    def open_validation(self, monitor: CompilationMonitor) -> VocoderValidation | None:
        """Return the validation by the EMA generator, each device with its share of a batch."""
        if not self._source.validation_clips:
            return None
        share = with_rows(self.signatures[0], self._config.training.clips_per_batch // self._distribution.replicas)
        return VocoderValidation(self._source, self._config, self._average, share, monitor, self._distribution)

    def copy_weights(self, base: Checkpoint) -> Origin:
        """Copy the generator's weights, and those of the discriminators where all of them fit."""
        origin = copy_weights(self.network, self._average, base, self._config)
        if self.step.discriminators is not None:
            judges = named_variables(self.step.discriminators)
            arrays = {name: base.arrays.get(f"{_DISCRIMINATORS}{name}") for name in judges}
            if all(array is not None and array.shape == judges[name].shape for name, array in arrays.items()):
                for name, variable in judges.items():
                    variable.assign(arrays[name])
        return origin

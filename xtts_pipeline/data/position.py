"""The position of a run in its stream of training batches. Imports no TensorFlow: a checkpoint's state holds it."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class StreamPosition:
    """The next batch of a stream of training batches; epoch and batch count from 0."""

    epoch: _Count = 0
    batch: _Count = 0

    def after(self, batches_per_epoch: int) -> "StreamPosition":
        """Return the position one batch later."""
        is_last = self.batch + 1 >= batches_per_epoch
        return StreamPosition(self.epoch + 1, 0) if is_last else StreamPosition(self.epoch, self.batch + 1)

    def before(self, steps: int, batches_per_epoch: int) -> "StreamPosition":
        """Return the position `steps` batches earlier, or the first one if there are fewer."""
        return StreamPosition(*divmod(max(0, self.epoch * batches_per_epoch + self.batch - steps), batches_per_epoch))


START = StreamPosition()

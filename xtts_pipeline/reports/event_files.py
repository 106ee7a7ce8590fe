"""Read pictures, sounds and texts from TensorBoard's event files. Needs neither TensorFlow nor TensorBoard."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from xtts_pipeline.cache.format.example import message_class
from xtts_pipeline.cache.format.tfrecord import read_records
from xtts_pipeline.errors import CacheError

# The fields that are read, of tensorflow/core/{util/event,framework/summary,framework/tensor}.proto.
_EVENT_PROTO = """
name: "xtts_pipeline/event.proto" package: "tensorflow" syntax: "proto3"
message_type {
  name: "Tensor" field { name: "string_val" number: 8 label: LABEL_REPEATED type: TYPE_BYTES }
}
message_type {
  name: "Value"
  field { name: "tag" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "tensor" number: 8 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.Tensor" }
}
message_type {
  name: "Summary"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.Value" }
}
message_type {
  name: "Event"
  field { name: "step" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "summary" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.Summary" }
}
"""
_Event = message_class(_EVENT_PROTO, "tensorflow.Event")


@dataclass(frozen=True)
class LoggedBytes:
    """The bytes that a run wrote under a tag at a step: of a picture the last of its three strings."""

    tag: str
    step: int
    content: bytes


def read_events(folder: Path) -> Iterator[LoggedBytes]:
    """Yield what the event files of a folder hold as strings, file by file in the order of their writing.

    A file that ends within an event, as that of a running training may, is read up to there.
    """
    for path in sorted(folder.glob("events.out.tfevents.*")):
        with suppress(CacheError, DecodeError):
            for payload in read_records(path):
                event = _Event.FromString(payload)
                for value in event.summary.value:
                    if value.tensor.string_val:
                        yield LoggedBytes(value.tag, event.step, value.tensor.string_val[-1])

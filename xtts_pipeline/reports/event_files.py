"""Read pictures, sounds and texts from TensorBoard's event files. Needs neither TensorFlow nor TensorBoard."""

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
  name: "SessionLog" field { name: "status" number: 1 label: LABEL_OPTIONAL type: TYPE_INT32 }
}
message_type {
  name: "Event"
  field { name: "step" number: 2 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "summary" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.Summary" }
  field { name: "session_log" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.SessionLog" }
}
"""
_Event = message_class(_EVENT_PROTO, "tensorflow.Event")
# The status by which `hide_steps_after` marks that the steps from here on are written again.
_START = 1


@dataclass(frozen=True)
class LoggedBytes:
    """The bytes that a run wrote under a tag at a step: of a picture the last of its three strings."""

    tag: str
    step: int
    content: bytes


def read_events(folder: Path) -> list[LoggedBytes]:
    """Return what the event files of a folder hold as strings, file by file in the order of their writing.

    As in TensorBoard, steps that a resumed run takes again count once. A file that ends within an event, as that of a
    running training may, is read up to there.
    """
    found: list[LoggedBytes] = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        with suppress(CacheError, DecodeError):
            for payload in read_records(path):
                event = _Event.FromString(payload)
                if event.session_log.status == _START:
                    found = [earlier for earlier in found if earlier.step < event.step]
                for value in event.summary.value:
                    if value.tensor.string_val:
                        found.append(LoggedBytes(value.tag, event.step, value.tensor.string_val[-1]))
    return found

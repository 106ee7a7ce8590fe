"""Encode padded features as the bytes of a tf.train.Example, and decode them.

Needs only the protobuf runtime, so workers and the verifier run without TensorFlow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from xtts_pipeline.cache.format import schema
from xtts_pipeline.cache.format.problems import REPAIR
from xtts_pipeline.errors import CacheError

# The messages of tensorflow/core/example/{feature,example}.proto.
_EXAMPLE_PROTO = """
name: "xtts_pipeline/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature"
  oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".tensorflow.Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  nested_type {
    name: "FeatureEntry"
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.Feature" }
    options { map_entry: true }
  }
  field {
    name: "feature" number: 1 label: LABEL_REPEATED
    type: TYPE_MESSAGE type_name: ".tensorflow.Features.FeatureEntry"
  }
}
message_type {
  name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.Features" }
}
"""

_FEATURE_KINDS = {"raw": "bytes_list", "utf8": "bytes_list", "int64": "int64_list"}


def encode_example(example: schema.Example, spec: schema.RecordSpec) -> bytes:
    """Return the serialized tf.train.Example of one utterance, padded to the spec's static shape.

    Equal features give equal bytes. Raises ValueError if an array is longer than the spec allows.
    """
    return encode_values(schema.padded_values(example, spec), spec.fields)


def encode_values(values: Mapping[str, Any], fields: Sequence[schema.RecordField]) -> bytes:
    """Return the serialized tf.train.Example of the fields' stored values. Equal values give equal bytes."""
    message = _Example()
    feature = message.features.feature
    for field in fields:
        value = values[field.name]
        if field.storage == "int64":
            feature[field.name].int64_list.value.append(int(value))
        elif isinstance(value, str):
            feature[field.name].bytes_list.value.append(value.encode())
        else:
            feature[field.name].bytes_list.value.append(value.tobytes())
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


def empty_record(spec: schema.RecordSpec) -> bytes:
    """Return the record of no sound and no text; another of this spec is longer by its id alone."""
    tokens, mel = np.zeros(0, np.int32), np.zeros((0, spec.mel_bins), np.float32)
    return encode_example(schema.Example("", tokens, mel), spec)


def decode_example(payload: bytes, spec: schema.RecordSpec) -> dict[str, np.ndarray | str | int]:
    """Return one record's features as `decode_values` does."""
    return decode_values(payload, spec.fields)


def decode_values(payload: bytes, fields: Sequence[schema.RecordField]) -> dict[str, np.ndarray | str | int]:
    """Return the features of a record: `raw` fields as arrays of the field's dtype and shape, others as str or int.

    Raises CacheError if the payload is no tf.train.Example, or a feature is missing, unknown or of a wrong kind or
    size.
    """
    try:
        message = _Example.FromString(payload)
    except DecodeError:
        raise CacheError(f"found {len(payload)} bytes that are no tf.train.Example; {REPAIR}") from None
    feature = message.features.feature
    names = {field.name for field in fields}
    if set(feature) != names:
        found = ", ".join(sorted(set(feature) ^ names))
        raise CacheError(f"features differ from the manifest's fields in {found}; {REPAIR}")
    return {field.name: _decode_field(field, feature[field.name]) for field in fields}


def _decode_field(field: schema.RecordField, feature: Any) -> np.ndarray | str | int:
    expected_kind = _FEATURE_KINDS[field.storage]
    kind = feature.WhichOneof("kind")
    if kind != expected_kind:
        raise CacheError(f"feature {field.name} is a {kind}, expected a {expected_kind}; {REPAIR}")
    values = getattr(feature, expected_kind).value
    if len(values) != 1:
        raise CacheError(f"feature {field.name} holds {len(values)} values, expected 1; {REPAIR}")
    value = values[0]
    if field.storage == "int64":
        return int(value)
    if field.storage == "utf8":
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise CacheError(f"feature {field.name} is not UTF-8; {REPAIR}") from None
    if len(value) != field.raw_bytes:
        raise CacheError(f"feature {field.name} holds {len(value)} bytes, expected {field.raw_bytes}; {REPAIR}")
    return np.frombuffer(value, np.dtype(field.dtype).newbyteorder("<")).reshape(field.shape)


def _example_class() -> Any:
    """Return the message class of tf.train.Example.

    It has its own descriptor pool, because TensorFlow registers the same names in the default pool.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_EXAMPLE_PROTO, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _example_class()

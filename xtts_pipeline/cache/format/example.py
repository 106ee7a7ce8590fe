"""Encode padded features as the bytes of a tf.train.Example, and decode them.

Needs only the protobuf runtime, so workers and the verifier run without TensorFlow.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from xtts_pipeline.cache.format import schema
from xtts_pipeline.cache.format.problems import REPAIR
from xtts_pipeline.errors import CacheError

# The messages of tensorflow/core/example/{feature,example}.proto. A packed list of floats is written as bytes are, so
# here it is bytes.
_EXAMPLE_PROTO = """
name: "xtts_pipeline/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
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

# The tags of the messages' length-delimited fields: 8 times the field's number, plus 2.
_FIRST, _SECOND, _THIRD = b"\x0a", b"\x12", b"\x1a"
# The field of a Feature that holds each storage, and its tag.
_KINDS = {
    "raw": ("bytes_list", _FIRST),
    "utf8": ("bytes_list", _FIRST),
    "float32_bits": ("float_list", _SECOND),
    "int64": ("int64_list", _THIRD),
}


def encode_example(example: schema.Example, spec: schema.RecordSpec) -> bytes:
    """Return the serialized tf.train.Example of one utterance, padded to the spec's static shape.

    Equal features give equal bytes. Raises ValueError if an array is longer than the spec allows.
    """
    return encode_values(schema.padded_values(example, spec), spec.fields)


def encode_values(values: Mapping[str, Any], fields: Sequence[schema.RecordField]) -> bytes:
    """Return the serialized tf.train.Example of the fields' stored values. Equal values give equal bytes."""
    return b"".join(record_parts(values, fields))


def record_parts(values: Mapping[str, Any], fields: Sequence[schema.RecordField]) -> list[bytes]:
    """Return the parts of which `encode_values` makes a record; each stored value but an integer is one part.

    They are what protobuf writes, in the order of the names, without its copies of the large values.
    """
    parts = []
    for field in sorted(fields, key=_protobuf_order):
        value = values[field.name]
        if field.storage == "int64":
            parts.append(_integer_entry(field.name, int(value)))
        else:
            data = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else value.tobytes()
            parts += [_bytes_entry_head(field.name, field.storage, len(data)), data]
    return [_FIRST, _varint(sum(map(len, parts))), *parts]


def _protobuf_order(field: schema.RecordField) -> str:
    """Return the key by which protobuf's runtime sorts: a name comes after the longer names that begin with it."""
    return f"{field.name}\x7f"


@lru_cache(maxsize=1 << 12)
def _integer_entry(name: str, value: int) -> bytes:
    """Return the map entry of an integer feature."""
    values = _delimited(_FIRST, _varint(value & (1 << 64) - 1))
    key = _delimited(_FIRST, name.encode())
    return _delimited(_FIRST, key + _delimited(_SECOND, _delimited(_THIRD, values)))


@lru_cache(maxsize=1 << 12)
def _bytes_entry_head(name: str, storage: schema.Storage, size: int) -> bytes:
    """Return the map entry of a feature of `size` bytes up to these bytes."""
    head = _FIRST + _varint(size)
    for tag in (_KINDS[storage][1], _SECOND):
        head = tag + _varint(len(head) + size) + head
    head = _delimited(_FIRST, name.encode()) + head
    return _FIRST + _varint(len(head) + size) + head


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return a number as protobuf writes it: 7 bits a byte, the lowest first; the last byte is below 128."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def empty_record(spec: schema.RecordSpec) -> bytes:
    """Return the record of no sound and no text; another of this spec is longer by its id alone."""
    tokens, mel = np.zeros(0, np.int32), np.zeros((0, spec.mel_bins), np.float32)
    return encode_example(schema.Example("", tokens, mel), spec)


def decode_example(payload: bytes, spec: schema.RecordSpec) -> dict[str, np.ndarray | str | int]:
    """Return one record's features as `decode_values` does."""
    return decode_values(payload, spec.fields)


def decode_values(payload: bytes, fields: Sequence[schema.RecordField]) -> dict[str, np.ndarray | str | int]:
    """Return the features of a record: for an array one of the field's dtype and shape, else str or int.

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
    expected_kind, _ = _KINDS[field.storage]
    kind = feature.WhichOneof("kind")
    if kind != expected_kind:
        raise CacheError(f"feature {field.name} is a {kind}, expected a {expected_kind}; {REPAIR}")
    values = getattr(feature, expected_kind).value
    if field.storage == "float32_bits":
        value = b"".join(values)  # protobuf allows a packed list in pieces
    elif len(values) == 1:
        value = values[0]
    else:
        raise CacheError(f"feature {field.name} holds {len(values)} values, expected 1; {REPAIR}")
    if field.storage == "int64":
        return int(value)
    if field.storage == "utf8":
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise CacheError(f"feature {field.name} is not UTF-8; {REPAIR}") from None
    if len(value) != field.array_bytes:
        raise CacheError(f"feature {field.name} holds {len(value)} bytes, expected {field.array_bytes}; {REPAIR}")
    return np.frombuffer(value, np.dtype(field.dtype).newbyteorder("<")).reshape(field.shape)


def message_class(file: str, name: str) -> Any:
    """Return the class of a message of a file, which is in the text format of a FileDescriptorProto.

    It has its own descriptor pool, because TensorFlow registers the same names in the default pool.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(file, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


_Example = message_class(_EXAMPLE_PROTO, "tensorflow.Example")

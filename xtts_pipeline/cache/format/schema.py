"""The fields of a record: names, dtypes, shapes and padding.

The writer, the parser, the verifier and the step's signature are built from here. NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from xtts_pipeline.text.tokens import PAD_ID

FORMAT_VERSION = 2
SPLITS = ("train", "val", "test")

Storage = Literal["int64", "utf8", "raw", "float32_bits"]


@dataclass(frozen=True)
class RecordField:
    """One feature of a record.

    `int64` and `utf8` are stored as such in the tf.train.Example; `raw` is the array's little-endian bytes in C order.
    `float32_bits` has the same bytes, as the values of a float_list: TensorFlow's parser copies these straight into the
    batch, but bytes to a string first. `dtype` and `shape` are those of the parsed tensor, without a batch axis.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: Storage

    @property
    def is_array(self) -> bool:
        """Whether the stored value is the bytes of an array."""
        return self.storage in ("raw", "float32_bits")

    @cached_property
    def array_bytes(self) -> int:
        """Size of the stored value of an array."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class RecordSpec:
    """The static shape of the records of a cache or bucket.

    Padding is `PAD_ID` for tokens and `pad_value`, the log-mel floor (silence), for mels.
    """

    max_text_length: int
    max_mel_frames: int
    mel_bins: int
    pad_value: float

    @property
    def shape_text(self) -> str:
        """The shape for people: tokens x frames."""
        return f"{self.max_text_length} x {self.max_mel_frames}"

    @cached_property
    def fields(self) -> tuple[RecordField, ...]:
        """All features of a record, in the documented order."""
        # A float32 holds two values of the mel.
        mel_storage: Storage = "raw" if self.mel_bins % 2 else "float32_bits"
        return (
            RecordField("id", "str", (), "utf8"),
            RecordField("tokens", "int32", (self.max_text_length,), "raw"),
            RecordField("text_length", "int32", (), "int64"),
            RecordField("mel", "float16", (self.max_mel_frames, self.mel_bins), mel_storage),
            RecordField("mel_length", "int32", (), "int64"),
            RecordField("speaker", "int32", (), "int64"),
            RecordField("language", "int32", (), "int64"),
        )

    @cached_property
    def batch_fields(self) -> tuple[RecordField, ...]:
        """The fields of the compiled step, in their stored dtypes: casting earlier would double the bytes copied."""
        return tuple(field for field in self.fields if field.storage != "utf8")


def wave_fields(spec: RecordSpec, hop_samples: int) -> tuple[RecordField, ...]:
    """Return the features of a wave record, which lies beside a record of `spec`."""
    return (
        RecordField("id", "str", (), "utf8"),
        RecordField("wave", "int16", (spec.max_mel_frames * hop_samples,), "raw"),
    )


def bucket_of(specs: Sequence[RecordSpec], text_length: int, mel_length: int) -> int | None:
    """Return the index of the first (smallest) bucket that holds a clip of these lengths, or None.

    `specs` are those of the buckets, each at least as large as the one before.
    """
    fitting = (
        number
        for number, spec in enumerate(specs)
        if text_length <= spec.max_text_length and mel_length <= spec.max_mel_frames
    )
    return next(fitting, None)


@dataclass(frozen=True)
class Example:
    """One utterance's features before padding.

    tokens: int32 [text_length]. mel: float [mel_length, mel_bins], natural log.
    """

    id: str
    tokens: np.ndarray
    mel: np.ndarray
    speaker: int = 0
    language: int = 0


def pad_to(array: np.ndarray, length: int, value: float, dtype: str | None = None) -> np.ndarray:
    """Return the array extended along its first axis to `length` with `value`, as `dtype` if given.

    Raises ValueError if it is longer: nothing is ever cut to fit.
    """
    if len(array) > length:
        raise ValueError(f"length {len(array)} is over the limit {length}")
    padded = np.full((length, *array.shape[1:]), value, dtype or array.dtype)
    padded[: len(array)] = array
    return padded


def padded_wave(id: str, wave: np.ndarray, fields: Sequence[RecordField]) -> Mapping[str, np.ndarray | str]:
    """Return the stored values of a wave record, padded with zeros to the static shape of its `fields`."""
    (samples,) = fields[1].shape
    return {"id": id, "wave": pad_to(wave, samples, 0, "<i2")}


def without_padding(values: Mapping[str, Any]) -> Example:
    """Return the utterance of a record's decoded values, the inverse of `padded_values`; its arrays are copies."""
    tokens, mel = (
        values[name][: values[length]].copy() for name, length in (("tokens", "text_length"), ("mel", "mel_length"))
    )
    return Example(values["id"], tokens, mel, values["speaker"], values["language"])


def padded_values(example: Example, spec: RecordSpec) -> Mapping[str, np.ndarray | np.int32 | str]:
    """Return each field's stored value: arrays padded to the spec's static shape, and their lengths."""
    return {
        "id": example.id,
        "tokens": pad_to(example.tokens, spec.max_text_length, PAD_ID, "<i4"),
        "text_length": np.int32(len(example.tokens)),
        "mel": pad_to(example.mel, spec.max_mel_frames, spec.pad_value, "<f2"),
        "mel_length": np.int32(len(example.mel)),
        "speaker": np.int32(example.speaker),
        "language": np.int32(example.language),
    }

"""Streams for the variants of the step: the same clips in batches of one shape, of a few, or of a new shape each time.

Records are written and parsed as in a cache, in files of the benchmark, so that one cache serves every variant.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.build.shapes import Shape, best_shapes
from xtts_pipeline.cache.format.example import encode_example
from xtts_pipeline.cache.format.schema import Example, RecordSpec, bucket_of
from xtts_pipeline.cache.format.tfrecord import RecordWriter
from xtts_pipeline.data.batching import to_batch
from xtts_pipeline.data.cached import parse_batch
from xtts_pipeline.data.schedule import bucket_order
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.text.tokens import PAD_ID

BUCKETS = 3
# A bucket with fewer batches would give no reliable figure.
MIN_BUCKET_BATCHES = 4


@dataclass(frozen=True)
class Stream:
    """Endless batches, and the first batch of each shape that is known beforehand."""

    firsts: Sequence[Batch]
    batches: Iterator[Batch]


def choose_buckets(examples: Sequence[Example], largest: RecordSpec, batch_size: int) -> list[RecordSpec]:
    """Return up to three shapes with the least padding for these clips, the largest last."""
    tokens, frames = (
        np.array([len(part) for part in parts])
        for parts in zip(*((each.tokens, each.mel) for each in examples), strict=True)
    )
    least = MIN_BUCKET_BATCHES * batch_size
    shapes = best_shapes(
        Shape(largest.max_text_length, largest.max_mel_frames),
        BUCKETS,
        tokens,
        frames,
        least if len(examples) >= BUCKETS * least else 1,
    )
    return [
        replace(largest, max_text_length=shape.max_text_length, max_mel_frames=shape.max_mel_frames) for shape in shapes
    ]


def shaped_stream(
    folder: Path, examples: Sequence[Example], specs: Sequence[RecordSpec], signatures: Sequence[Batch], seed: int
) -> Stream:
    """Return batches of the signatures' shapes in mixed order, each clip in its smallest shape; writes to `folder`."""
    members: list[list[Example]] = [[] for _ in specs]
    for example in examples:
        bucket = bucket_of(specs, len(example.tokens), len(example.mel))
        if bucket is not None:
            members[bucket].append(example)
    batches = [-(-len(held) // signature.tokens.shape[0]) for held, signature in zip(members, signatures, strict=True)]

    def read(bucket: int) -> Iterator[Batch]:
        spec, rows = specs[bucket], signatures[bucket].tokens.shape[0]
        path = _write(folder / f"shape-{len(specs)}-{bucket}.tfrecord", members[bucket], spec)
        serialized = tf.data.TFRecordDataset(str(path)).repeat().batch(rows, drop_remainder=True)
        parsed = serialized.map(lambda batch: parse_batch(batch, spec, rows), num_parallel_calls=tf.data.AUTOTUNE)
        return (to_batch(fields, signatures[bucket]) for fields in parsed.prefetch(tf.data.AUTOTUNE))

    streams = [read(bucket) if held else iter(()) for bucket, held in enumerate(members)]
    firsts = [next(stream) for stream, held in zip(streams, members, strict=True) if held]
    order = chain.from_iterable(bucket_order(batches, seed, epoch) for epoch in count())
    return Stream(firsts, (next(streams[bucket]) for bucket in order))


def varying_stream(folder: Path, examples: Sequence[Example], spec: RecordSpec, signature: Batch) -> Stream:
    """Return batches padded to their longest text and longest mel: few have equal shapes."""
    path = _write(folder / "varying.tfrecord", examples, spec)

    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        fields = {name: value[0] for name, value in parse_batch(serialized[None], spec, 1).items()}
        return {
            **fields,
            "tokens": fields["tokens"][: fields["text_length"]],
            "mel": fields["mel"][: fields["mel_length"]],
        }

    records = tf.data.TFRecordDataset(str(path)).repeat().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    padding = dict.fromkeys(records.element_spec, 0) | {"tokens": PAD_ID, "mel": np.float16(spec.pad_value)}
    typed = {name: tf.constant(value, records.element_spec[name].dtype) for name, value in padding.items()}
    batches = records.padded_batch(signature.tokens.shape[0], padding_values=typed, drop_remainder=True).prefetch(
        tf.data.AUTOTUNE
    )
    stream = (to_batch(fields, signature) for fields in batches)
    return Stream([next(stream)], stream)


def _write(path: Path, examples: Sequence[Example], spec: RecordSpec) -> Path:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for example in examples:
            writer.write(encode_example(example, spec))
    return path

"""Batches of the compiled step: their static signatures, and how a dataset's fields become one."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from xtts_pipeline.cache.format.identity import CacheIdentity
from xtts_pipeline.cache.format.schema import RecordSpec
from xtts_pipeline.config.schema import TrainingConfig
from xtts_pipeline.data.schedule import batch_parts, batch_sizes
from xtts_pipeline.model.batch import Batch


def bucket_signatures(
    identity: CacheIdentity, specs: Sequence[RecordSpec], settings: TrainingConfig, replicas: int = 1
) -> list[Batch]:
    """Return the signature of each bucket's batches; speaker and language ids are in it if the cache has several.

    Raises ConfigError if `replicas` devices cannot share a batch in equal parts.
    """
    sizes = batch_sizes(specs, settings.clips_per_batch, batch_parts(settings, replicas))
    ids = {"with_speaker": len(identity.speakers) > 1, "with_language": len(identity.languages) > 1}
    return [batch_signature(spec, rows, **ids) for spec, rows in zip(specs, sizes, strict=True)]


def batch_signature(
    spec: RecordSpec, batch_size: int, *, with_speaker: bool = False, with_language: bool = False
) -> Batch:
    """Return the TensorSpecs of a batch: static shapes, from the record spec and the batch size alone."""
    specs = {
        field.name: tf.TensorSpec([batch_size, *field.shape], field.dtype, name=field.name)
        for field in spec.batch_fields
    }
    if not with_speaker:
        specs.pop("speaker")
    if not with_language:
        specs.pop("language")
    return Batch(**specs)


def rows_of(signature: Any) -> int:
    """Return the rows of a batch or of its signature."""
    return next(int(value.shape[0]) for value in signature if value is not None)


def with_rows(signature: Any, rows: int) -> Any:
    """Return the signature of a batch like `signature`, a batch or its signature, with `rows` rows."""
    named = signature._asdict().items()
    return type(signature)(
        *(
            None if value is None else tf.TensorSpec([rows, *value.shape[1:]], value.dtype, name)
            for name, value in named
        )
    )


def to_batch(fields: Mapping[str, Any], signature: Batch) -> Batch:
    """Return the fields that the signature has, as a batch."""
    return Batch(*(None if spec is None else fields[name] for name, spec in zip(Batch._fields, signature, strict=True)))


def from_signature(tensors: Sequence[tf.Tensor], signature: Any) -> Any:
    """Return the batch of a compiled function's positional tensors, with None for each field the signature omits."""
    given = iter(tensors)
    return type(signature)(*(None if spec is None else next(given) for spec in signature))

"""Predict the mels of a cache: what an acoustic model hands to the vocoder, under true alignment.

Imports TensorFlow.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xtts_pipeline.cache.build.predicted import MelComparison, write_predicted_cache
from xtts_pipeline.cache.format.example import decode_example, empty_record
from xtts_pipeline.cache.format.manifest import Manifest, MelOrigin, bucket_specs
from xtts_pipeline.data.batching import bucket_signatures, to_batch, with_rows
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.system.runtime import NativeLog
from xtts_pipeline.training.checkpoints.files import Checkpoint, load_checkpoint, load_network
from xtts_pipeline.training.compiled import CompiledByShape
from xtts_pipeline.training.resume import check_same_cache

# A run on several large devices has batches that one device may not hold.
MOST_ROWS = 32


def predict_mels(
    _log: NativeLog,
    run: Path,
    overrides: Sequence[str],
    cache: Path,
    manifest: Manifest,
    output: Path,
    progress: Callable[[int], object],
) -> tuple[MelOrigin, dict[str, MelComparison]]:
    """Write the cache to `output` with mels that the run predicts; return their origin and each split's error.

    `overrides` are settings such as `synthesis.flow_steps=8`. Raises CheckpointError if the run cannot be read, holds
    another network or was trained on another cache, and the errors of `write_predicted_cache`.
    """
    checkpoint = load_checkpoint(run).with_synthesis(overrides)
    predictor = MelPredictor(checkpoint, manifest)
    settings = checkpoint.config.synthesis
    origin = MelOrigin(checkpoint.weights_sha256, checkpoint.step, settings.flow_steps, settings.guidance)
    return origin, write_predicted_cache(cache, manifest, output, origin, predictor.rows, predictor, progress)


class MelPredictor:
    """Predicts the mels of a cache's records, each bucket by one compiled function of a fixed number of rows.

    The EMA weights predict frames along the aligner's path, from the recorded energies and pitches. What is random is
    that of synthesis, the same at each call and for each row, so a mel does not depend on its batch. A network with a
    voice encoder hears a part of the clip itself.
    """

    def __init__(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        """Raise CheckpointError if the checkpoint is of another network, or of another cache than the manifest's."""
        self._network, self._config = load_network(checkpoint), checkpoint.config
        check_same_cache(checkpoint, manifest)
        self._specs = bucket_specs(manifest)
        signatures = bucket_signatures(checkpoint.cache, self._specs, self._config.training)
        self._signatures = [with_rows(each, min(each.tokens.shape[0], MOST_ROWS)) for each in signatures]
        self.compiled = CompiledByShape(self._predict_batch, self._signatures, self._config.training)

    @property
    def rows(self) -> list[int]:
        """The number of records of each bucket that one call takes."""
        return [signature.tokens.shape[0] for signature in self._signatures]

    def __call__(self, bucket: int, records: Sequence[dict[str, Any]]) -> list[np.ndarray]:
        """Return the mel, float32 [mel_length, mel_bins], of each decoded record of a bucket, at most `rows` of it.

        A clip of more tokens than frames, which the aligner cannot align, keeps its recorded mel.
        """
        spec, signature = self._specs[bucket], self._signatures[bucket]
        filling = [decode_example(empty_record(spec), spec)] * (self.rows[bucket] - len(records))
        fields = {
            field.name: tf.constant(np.array([record[field.name] for record in [*records, *filling]], field.dtype))
            for field in spec.batch_fields
        }
        mels = self.compiled(to_batch(fields, signature)).numpy()
        kept = (
            mel if record["text_length"] <= record["mel_length"] else record["mel"].astype(np.float32)
            for mel, record in zip(mels, records, strict=False)
        )
        return [mel[: record["mel_length"]] for mel, record in zip(kept, records, strict=True)]

    def _predict_batch(self, batch: Batch) -> tf.Tensor:
        network, dropout = self._network, Dropout.fixed(self._config.training.seed)
        crop = network.choose_crops(batch.mel_length, dropout, reference_dropout=0.0)
        return network.predict_known(batch, network.own_references(batch, crop), dropout, self._config.synthesis)

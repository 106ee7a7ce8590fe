"""Mels that a run of random weights predicts under true alignment, for the records of a made-up cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cache.corpora import records_of
from tests.speaking import make_run_of_cache
from xtts_pipeline.cache.format.manifest import Manifest, load_manifest
from xtts_pipeline.config.load import load_config
from xtts_pipeline.errors import CheckpointError
from xtts_pipeline.inference.predicted_mels import MelPredictor
from xtts_pipeline.model.batch import Batch
from xtts_pipeline.model.layers import Dropout
from xtts_pipeline.training.checkpoints.files import load_checkpoint, load_network

WriteCache = Callable[..., Manifest]
BUCKETS = ((8, 12), (16, 24))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, write_cache: WriteCache) -> Path:
    folder = tmp_path_factory.mktemp("predicted") / "cache"
    write_cache(folder, buckets=BUCKETS)
    return folder


def records_in(cache: Path, bucket: int) -> list[dict[str, Any]]:
    return [record for shard, record in records_of(cache) if shard.bucket == bucket]


def test_a_predicted_mel_is_that_of_its_clip_alone_under_the_dropout_of_synthesis(cache: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(make_run_of_cache(tmp_path, load_manifest(cache)))
    predictor = MelPredictor(checkpoint, load_manifest(cache))
    network, dropout = load_network(checkpoint), Dropout.fixed(checkpoint.config.training.seed)

    field_dtypes = {field.name: field.dtype for field in checkpoint.cache.spec.batch_fields}
    for bucket in range(len(BUCKETS)):
        records = records_in(cache, bucket)[: predictor.rows[bucket]]
        assert records
        mels = predictor(bucket, records)
        for record, mel in list(zip(records, mels, strict=True))[:2]:
            alone = Batch(
                **{name: tf.constant(np.asarray(record[name])[None], dtype) for name, dtype in field_dtypes.items()}
            )
            crop = network.choose_crops(alone.mel_length, dropout, reference_dropout=0.0)
            reference = network.own_references(alone, crop)
            expected = network.predict_known(alone, reference, dropout, checkpoint.config.synthesis).numpy()[0]
            np.testing.assert_allclose(mel, expected[: record["mel_length"]], atol=1e-4)
    assert [function.experimental_get_tracing_count() for function in predictor.compiled.functions] == [1, 1]


def test_a_clip_that_the_aligner_cannot_align_keeps_its_recorded_mel(cache: Path, tmp_path: Path) -> None:
    predictor = MelPredictor(load_checkpoint(make_run_of_cache(tmp_path, load_manifest(cache))), load_manifest(cache))
    sound = next(record for record in records_in(cache, 1) if record["text_length"] <= record["mel_length"])
    short = sound | {"mel_length": sound["text_length"] - 1}
    predicted, kept = predictor(1, [sound, short])
    assert (kept == sound["mel"][: len(kept)].astype(np.float32)).all()
    assert len(kept) == sound["text_length"] - 1
    assert (predicted[: len(kept)] != kept).any()


def test_a_run_of_another_cache_is_refused(cache: Path, tmp_path: Path, write_cache: WriteCache) -> None:
    base = load_config(overrides=["audio.mel_bins=5", "limits.max_text_length=16", "limits.max_mel_frames=24"])
    write_cache(tmp_path / "other", base=base, buckets=BUCKETS)
    run = make_run_of_cache(tmp_path / "run", load_manifest(cache))

    with pytest.raises(CheckpointError, match=r"audio.mel_bins: the cache has 5, the config 4; use that cache"):
        MelPredictor(load_checkpoint(run), load_manifest(tmp_path / "other"))

"""The rows of one of several workers, read from a store."""

from pathlib import Path

import numpy as np

from tests.data.reading import training_dataset
from xtts_pipeline.cache.copy import copy_cache
from xtts_pipeline.cache.format.manifest import load_manifest
from xtts_pipeline.config.schema import Config, DataConfig, TrainingConfig
from xtts_pipeline.data.batching import bucket_signatures
from xtts_pipeline.data.cached import CachedSource
from xtts_pipeline.system.storage import folder_path


def test_workers_read_their_rows_from_a_store(tmp_path: Path, cache: Path) -> None:
    store = folder_path(f"ram://{tmp_path.name}/cache")
    copy_cache(cache, store, 2, lambda _: None, lambda _: None)
    manifest, data = load_manifest(store), DataConfig(cache_records=False)
    local, stored = (
        [
            batch["mel"].numpy()
            for batch in training_dataset(folder, manifest, batch_size=2, seed=3, data=data, epochs=1, rows=range(1, 2))
        ]
        for folder in (cache, store)
    )
    np.testing.assert_array_equal(local, stored)
    assert len(local)
    config = Config(training=TrainingConfig(batch_size=2), data=data)
    left_out = []
    for folder in (cache, store):
        source = CachedSource(folder, manifest)
        signatures = bucket_signatures(source.identity(), source.specs, config.training)
        left_out.append(source.left_out(config, signatures, 0))
    assert left_out[0] == left_out[1]
